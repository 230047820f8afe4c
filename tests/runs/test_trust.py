"""What is damaged, changed or held by another is never used in silence, and what failed is told in one line."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import esnlm
from esnlm import config_io
from esnlm.errors import InputError
from esnlm.evaluate_run import evaluate_run
from esnlm.reporting.run_table import report
from esnlm.runs import checkpoint
from esnlm.runs.directory import RunDirectory
from esnlm.runs.metrics import Metrics
from esnlm.training.interruption import interruptible
from esnlm.training.log import TrainingLog
from esnlm.workflows.train import train_run

MEASURED = ("tokens_per_second", "peak_memory_bytes")  # what differs from one run to the next
REPOSITORY = Path(__file__).resolve().parents[2]
SMALL = """
data: {kind: grammar, sentences: 200, validation_sentences: 40, pairs: 2}
model: {reservoir: {state_size: 24, mean_degree: 4}, readout: {rank: 4}}
training: {epochs: 2, log_every: 1, checkpoint_every: 5}
"""


def write_config(folder, run):
    (folder / "small.yaml").write_text(f"run: {run}\n{SMALL}")
    return folder / "small.yaml"


def train(run, *overrides, allowed=()):
    return train_run(config_io.read(write_config(run.parent, run), list(overrides)), allowed)


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """A run that is finished, and the same stopped some updates before its last, the 14th."""
    folder = tmp_path_factory.mktemp("runs")
    settle = TrainingLog._record

    def settle_and_stop(self, call):
        settle(self, call)
        if call.step == 8:
            signal.raise_signal(signal.SIGTERM)

    with pytest.MonkeyPatch.context() as patch:
        assert train(folder / "run") == 0
        (folder / "run").rename(folder / "finished")
        patch.setattr(TrainingLog, "_record", settle_and_stop)
        assert train(folder / "run") == 75
        (folder / "run").rename(folder / "stopped")
    return folder


@pytest.fixture
def finished(originals, tmp_path):
    return Path(shutil.copytree(originals / "finished", tmp_path / "run"))


@pytest.fixture
def stopped(originals, tmp_path):
    return Path(shutil.copytree(originals / "stopped", tmp_path / "run"))


def newest(run):
    return max(int(step.name) for step in (run / "checkpoints").iterdir())


def flip(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def timeless(text):
    return [
        {key: value for key, value in json.loads(line).items() if key not in MEASURED} for line in text.splitlines()
    ]


# Rot.


@pytest.mark.parametrize(
    "name", ["config.yaml", "data.json", "unigram.npy", "tokenizer/ranks.tiktoken", "minimal_pairs/npi_item.jsonl"]
)
@pytest.mark.parametrize("damage", [flip, os.remove])
def test_what_a_run_was_begun_with_is_refused_when_damaged(stopped, name, damage):
    damage(stopped / name)
    what = "missing" if damage is os.remove else "changed since it was written"
    with pytest.raises(InputError) as caught:
        train(stopped)
    assert str(caught.value) == f"{stopped / name}: {what}; restore it from a copy of the run"


@pytest.mark.parametrize("name", ["config.yaml", "tokenizer/tokenizer.json"])
def test_a_damaged_run_is_not_loaded(finished, name):
    flip(finished / name)
    with pytest.raises(InputError, match=f"{name}: changed since it was written"):
        esnlm.load(finished)


def test_damaged_counts_and_pairs_are_not_used(finished):
    flip(finished / "unigram.npy")
    with pytest.raises(InputError, match="unigram.npy: changed since"):
        esnlm.load(finished).unigram()
    flip(finished / "minimal_pairs" / "npi_item.jsonl")
    with pytest.raises(InputError, match="npi_item.jsonl: changed since"):
        evaluate_run(finished)


def test_a_damaged_summary_is_made_again(finished, originals, capsys):
    flip(finished / "summary.json")
    with (
        pytest.warns(UserWarning, match="summary.json: changed since"),
        pytest.raises(InputError, match="not a finished run"),
    ):
        report([finished])
    assert train(finished) == 0
    assert f"warning: {finished / 'summary.json'}: changed since it was written" in capsys.readouterr().err
    texts = [json.loads((run / "summary.json").read_text()) for run in (finished, originals / "finished")]
    assert texts[0] == texts[1]  # the seconds, too: they were spent once
    assert timeless((finished / "metrics.jsonl").read_text()) == timeless(
        (originals / "finished" / "metrics.jsonl").read_text()
    )


@pytest.mark.parametrize("text", [b"{", b'{"status": "finished"}'])
def test_a_summary_that_no_manifest_lists_is_no_sign_of_an_end(stopped, text):
    (stopped / "summary.json").write_bytes(text)
    assert RunDirectory(stopped).read_summary() is None


def test_damage_that_can_be_passed_over_or_mended_is_told_of_and_the_end_is_the_same(stopped, originals, capsys):
    """An empty folder with a step's name, no reservoir."""
    lines = (stopped / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (stopped / "metrics.jsonl").write_bytes(
        b"".join([lines[0].replace(b'"tokens"', b'"tokfns"'), b"\xff\n", *lines[2:]])
    )
    saved = newest(stopped)
    (stopped / "checkpoints" / str(saved + 1)).mkdir()
    shutil.rmtree(stopped / "frozen")
    assert train(stopped) == 0
    told = capsys.readouterr().err
    assert f"warning: {stopped}/checkpoints/{saved + 1}: damaged checkpoint, not used: manifest.json: missing" in told
    assert f"warning: {stopped / 'frozen'}: no such folder; the same reservoir was initialized again" in told
    one, other = esnlm.load(stopped), esnlm.load(originals / "finished")
    assert one.step == other.step and all(
        np.array_equal(one.arrays()[name], array) for name, array in other.arrays().items()
    )


def test_a_finished_run_tells_of_all_that_is_damaged_and_changes_nothing(finished, capsys):
    for name in ("metrics.jsonl", "frozen/metadata.json", "checkpoints/14/metadata.json"):
        flip(finished / name)
    assert train(finished) == 0
    told = capsys.readouterr().err
    assert f"warning: {finished / 'metrics.jsonl'}: changed" in told
    assert f"warning: {finished / 'frozen'}: metadata.json: changed" in told
    assert f"warning: {finished / 'checkpoints' / '14'}: damaged checkpoint, not used" in told
    assert "update 14 is missing or damaged; to train to it again, delete summary.json" in told


def test_another_reservoir_than_the_lost_one_is_refused(stopped, monkeypatch):
    flip(stopped / "frozen" / "manifest.json")
    monkeypatch.setattr(checkpoint, "digest", lambda arrays: "0" * 64)
    with pytest.raises(InputError, match="its seed gives another reservoir on this machine; restore it from a copy"):
        train(stopped)


def test_a_damaged_manifest_is_refused_and_a_missing_one_told_of(stopped):
    manifest = stopped / "manifest.json"
    whole = manifest.read_bytes()
    for position in range(0, len(whole), 97):
        manifest.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with pytest.raises(InputError, match="manifest.json: changed since it was written; restore it"):
            RunDirectory(stopped).manifest.read()
    manifest.unlink()
    with pytest.warns(UserWarning, match="manifest.json: missing: the files of this run cannot be verified"):
        esnlm.load(stopped)


# Changes that are asked for.


def test_a_change_is_shown_and_refused_unless_asked_for(stopped, originals):
    with pytest.raises(InputError) as caught:
        train(stopped, "--compute.chunk_tokens", "512")
    assert str(caught.value) == (
        f"{stopped / 'config.yaml'}: the run was begun with another configuration (compute.chunk_tokens 1024 -> 512); give the same one"
        f" (--config {stopped / 'config.yaml'} --run {stopped}), or another run directory with --run, or ask for the change with --allow-change compute.chunk_tokens"
    )
    saved = newest(stopped)
    assert train(stopped, "--compute.chunk_tokens", "512", allowed=["compute.chunk_tokens"]) == 0
    summary = json.loads((stopped / "summary.json").read_text())
    assert summary["changes"] == [f"from update {saved}: compute.chunk_tokens 1024 -> 512"]
    one, other = esnlm.load(stopped).arrays(), esnlm.load(originals / "finished").arrays()
    np.testing.assert_allclose(
        one["readout.a"], other["readout.a"], atol=5e-3 * 1e-2
    )  # 5 updates of 1e-3 at most, to a hundredth


def test_what_decides_the_result_cannot_change(stopped):
    with pytest.raises(
        InputError, match="--allow-change training.learning_rate: no setting that may change within a run"
    ):
        train(stopped, "--training.learning_rate", "0.1", allowed=["training.learning_rate"])


def test_other_data_is_refused_though_its_path_may_change(stopped, tmp_path):
    shutil.rmtree(stopped / "stores" / "train")
    shutil.copytree(stopped / "stores" / "validation", stopped / "stores" / "train")
    with pytest.raises(InputError, match="not the train store that .* was begun with"):
        train(stopped)


# Disks that refuse.


def test_a_full_disk_while_logging_is_one_line(tmp_path):
    with Metrics(tmp_path / "metrics.jsonl", 0) as metrics:
        metrics.write(step=1)
        metrics._handle.close()
        metrics._handle = open("/dev/full", "a")  # noqa: SIM115
        with pytest.raises(InputError, match="metrics.jsonl: No space left on device"):
            metrics.write(step=2)
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 1}\n'


# Stopping, and two at once.


def start(run, **options):
    command = [sys.executable, str(REPOSITORY / "train.py"), "--config", str(write_config(run.parent, run))]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)


def test_who_asks_while_nothing_is_to_be_saved_does_not_wait():
    with pytest.raises(KeyboardInterrupt), interruptible():
        signal.raise_signal(signal.SIGTERM)
    with interruptible() as interruption, interruption.awaited():
        signal.raise_signal(signal.SIGTERM)
        assert interruption


def test_a_second_ctrl_c_leaves_at_once():
    program = """
import signal
from esnlm.training.interruption import interruptible
with interruptible() as interruption, interruption.awaited():
    signal.raise_signal(signal.SIGINT)
    print("asked", flush=True)
    signal.raise_signal(signal.SIGINT)
    print("never", flush=True)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=REPOSITORY)
    assert (done.returncode, done.stdout) == (130, "asked\n")
    assert "Ctrl-C again leaves at once, without saving" in done.stderr


@pytest.mark.nightly
def test_two_at_once_are_refused_and_a_killed_one_s_lock_is_gone(tmp_path):
    run = tmp_path / "run"
    first = start(run)
    while not (run / "config.yaml").exists():
        assert first.poll() is None, first.stderr.read()
        time.sleep(0.01)
    with pytest.raises(InputError, match="another training is writing here; name another with --run"):
        train(run)
    first.kill()
    first.communicate()
    assert train(run) == 0
