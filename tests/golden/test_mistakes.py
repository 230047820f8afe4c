"""Guarantee 13: what users get wrong is one line that names the field or the file, and status 2; a
stop is 75."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

import esnlm
from tests.golden import small

ROOT = Path(__file__).parents[2]


def edit(file, **section):
    tree = yaml.safe_load(Path(file).read_text())
    Path(file).write_text(yaml.safe_dump(tree | section))


def cut(file):
    Path(file).write_bytes(Path(file).read_bytes()[:-10])


def flip_all(*names):
    """Flips a bit in the largest file of each folder."""
    for name in names:
        file = max(
            (file for file in Path(name).rglob("*") if file.is_file()),
            key=lambda file: file.stat().st_size,
        )
        small.flip(file)


def other_tokenizer():
    how = ("--tokenizer", "train:280", "--sentences", "line", "--overwrite", "--quiet")
    assert small.esnlm("prepare", "--input", "dev.txt", "--out", "dev", *how) == 0


TRAIN, GENERATE = (
    ("train", "--config", "new.yaml", "--quiet"),
    ("generate", "--prompt", "The", "--run"),
)
# What is wrong: the command, what the line names, and what is done before. The folder has
# train.txt, the stores train/ and dev/, the finished run done/ and new.yaml, a configuration of the
# run new/.
MISTAKES = {
    "no such configuration": (("train", "--config", "none.yaml"), "none.yaml"),
    "no such text": (("prepare", "--input", "none.txt", "--out", "out"), "none.txt"),
    "no such run": ((*GENERATE, "none"), "none"),
    "no such store": ((*TRAIN, "--data.train", "none"), "none"),
    "a setting misspelt in the file": (TRAIN, "sead", lambda: edit("new.yaml", sead=1)),
    "a setting misspelt on the command line": ((*TRAIN, "--training.epoch", "3"), "training.epoch"),
    "a topology that is not there": (
        (*TRAIN, "--model.reservoir.topology.kind", "star"),
        "model.reservoir.topology",
    ),
    "a text for a number": ((*TRAIN, "--training.epochs", "three"), "training.epochs"),
    "a number out of range": ((*TRAIN, "--training.batch_size", "0"), "training.batch_size"),
    "a degree above the size": ((*TRAIN, "--model.reservoir.mean_degree", "99"), "mean_degree"),
    "no YAML": (TRAIN, "new.yaml", lambda: Path("new.yaml").write_text("model: {")),
    "an empty text": (
        ("prepare", "--input", "e.txt", "--out", "out"),
        "e.txt",
        lambda: Path("e.txt").touch(),
    ),
    "a text in another encoding": (
        (
            "prepare",
            "--input",
            "latin.txt",
            "--out",
            "out",
            "--tokenizer",
            "train/tokenizer",
            "--sentences",
            "line",
        ),
        "latin.txt",
        lambda: Path("latin.txt").write_bytes(
            "The caf\xe9 is open all day long.\n".encode("latin-1")
        ),
    ),
    "a store that is there": (("prepare", "--input", "train.txt", "--out", "train"), "train"),
    "a tokenizer that is not there": (
        ("prepare", "--input", "train.txt", "--out", "x", "--tokenizer", "gtp2"),
        "gtp2",
    ),
    "a validation text of another tokenizer": (TRAIN, "dev", other_tokenizer),
    "a store cut short": (TRAIN, "tokens.bin", lambda: cut("train/tokens.bin")),
    "a store with a wrong bit": (TRAIN, "train", lambda: flip_all("train")),
    "pairs without a field": (
        ("blimp", "--run", "done", "--data", "p.jsonl"),
        "p.jsonl",
        lambda: Path("p.jsonl").write_text('{"sentence_good": "He left."}\n'),
    ),
    "a scoring that is not there": (("blimp", "--run", "done", "--scoring", "blimp"), "scoring"),
    "a step that was not saved": ((*GENERATE, "done", "--step", "7"), "7"),
    "checkpoints with wrong bits": (
        (*GENERATE, "done"),
        "checkpoints",
        lambda: flip_all(*Path("done/checkpoints").iterdir()),
    ),
    "a run of another format": (
        (*GENERATE, "done"),
        "format",
        lambda: Path("done/format.json").write_text(
            Path("done/format.json").read_text().replace(":", ": 9", 1)
        ),
    ),
    "another configuration in the same run": (
        (*TRAIN, "--run", "done", "--training.epochs", "3"),
        "training.epochs",
    ),
}


def listing(folder):
    return {file for file in folder.rglob("*") if file.is_file() and file.name != ".lock"}


@pytest.fixture(scope="module")
def original(stores, trained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("mistakes") / "original"
    shutil.copytree(stores, folder)
    shutil.copytree(trained("esn"), folder / "done")
    tree = yaml.safe_load(trained("esn").with_suffix(".yaml").read_text())
    data = {"kind": "store", "train": "train", "validation": "dev"}
    (folder / "new.yaml").write_text(yaml.safe_dump(tree | {"run": "new", "data": data}))
    return folder


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_and_status_2(name, original, tmp_path, monkeypatch, capsys):
    command, named, *begin = MISTAKES[name]
    shutil.copytree(original, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    if begin:
        begin[0]()
    capsys.readouterr()
    before = listing(tmp_path)
    assert small.esnlm(*command) == 2
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if not line.startswith("warning: ")]
    assert out == "" and len(lines) == 1 and lines[0].startswith("error: "), err
    assert named in lines[0]
    assert listing(tmp_path) == before


def test_a_full_disk_is_reported_before_training(original, tmp_path, monkeypatch, capsys):
    """The system reports that nothing is free."""
    shutil.copytree(original, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    real = os.statvfs("/")
    fields = {key: getattr(real, key) for key in dir(real) if key.startswith("f_")}
    monkeypatch.setattr(
        os, "statvfs", lambda path: SimpleNamespace(**fields | {"f_bavail": 0, "f_bfree": 0})
    )
    assert small.esnlm(*TRAIN) == 2
    _, err = capsys.readouterr()
    assert err.startswith("error: ") and err.count("\n") == 1 and "free" in err
    assert not (tmp_path / "here" / "new").exists() or not listing(tmp_path / "here" / "new")


def test_sigterm_is_75_and_the_same_command_resumes(trained, stores, tmp_path):
    """In a process of its own, as a cluster's scheduler ends it."""
    run = tmp_path / "esn"
    config = small.write_config(run, stores, small.MODELS["esn"])
    command = [sys.executable, str(ROOT / "train.py"), "--config", str(config), "--quiet"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not (run / "checkpoints" / "10").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 75, err
    assert json.loads((run / "summary.json").read_text())["status"] == "interrupted"
    assert small.esnlm("train", *command[2:]) == 0
    found, expected = esnlm.load(run).arrays(), esnlm.load(trained("esn")).arrays()
    assert all(found[name].tobytes() == expected[name].tobytes() for name in expected)
