"""What is damaged, changed or held by another is never used in silence, and what failed is told in
one line."""

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
from esnlm.base.errors import InputError
from esnlm.runs import checkpoint
from esnlm.runs.directory import RunDirectory
from esnlm.runs.trackers import Metrics
from esnlm.training.log import TrainingLog
from esnlm.training.run import train_run
from tests.golden.small import flip
from tests.training.small import read, same_run, summary_of

REPOSITORY = Path(__file__).resolve().parents[2]
# 14 updates.
SMALL = """
data: {kind: grammar, sentences: 200, validation_sentences: 40, pairs: 2}
model: {reservoir: {state_size: 24, mean_degree: 4}, readout: {rank: 4}}
training: {epochs: 2, log_every: 1, checkpoint_every: 5}
"""


def train(run, *overrides, allowed=()):
    return train_run(read(run.parent, run.name, *overrides, text=SMALL), allowed)


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """A run that is finished, and the same stopped some updates before its last."""
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


# Rot.


@pytest.mark.parametrize(
    "name",
    [
        "config.yaml",
        "data.json",
        "unigram.npy",
        "tokenizer/ranks.tiktoken",
        "minimal_pairs/npi_item.jsonl",
    ],
)
@pytest.mark.parametrize("damage", [flip, os.remove])
def test_what_a_run_was_begun_with_is_refused_when_damaged(stopped, name, damage):
    damage(stopped / name)
    what = "missing" if damage is os.remove else "changed since it was written"
    with pytest.raises(
        InputError, match=f"^{stopped / name}: {what}; restore it from a copy of the run$"
    ):
        train(stopped)


@pytest.mark.parametrize("name", ["config.yaml", "tokenizer/tokenizer.json"])
def test_a_damaged_run_is_not_loaded(finished, name):
    flip(finished / name)
    with pytest.raises(InputError, match=f"{name}: changed since it was written"):
        esnlm.load(finished)


def test_a_damaged_summary_is_made_again(finished, originals, capsys):
    flip(finished / "summary.json")
    assert train(finished) == 0
    assert (
        f"warning: {finished / 'summary.json'}: changed since it was written"
        in capsys.readouterr().err
    )
    # the seconds, too: they were spent once
    assert summary_of(finished) == summary_of(originals / "finished")
    same_run(finished, originals / "finished")


def test_damage_that_can_be_passed_over_or_mended_is_told_of_and_the_end_is_the_same(
    stopped, originals, capsys
):
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
    assert (
        f"warning: {stopped}/checkpoints/{saved + 1}: damaged checkpoint, not used: manifest.json:"
        " missing" in told
    )
    assert (
        f"warning: {stopped / 'frozen'}: no such folder; the same reservoir was initialized again"
        in told
    )
    one, other = esnlm.load(stopped).arrays(), esnlm.load(originals / "finished").arrays()
    assert all(np.array_equal(one[name], other[name]) for name in one | other)


def test_another_reservoir_than_the_lost_one_is_refused(stopped, monkeypatch):
    flip(stopped / "frozen" / "manifest.json")
    monkeypatch.setattr(checkpoint, "digest", lambda arrays: "0" * 64)
    with pytest.raises(
        InputError, match="its seed gives another reservoir on this machine; restore it from a copy"
    ):
        train(stopped)


def test_a_damaged_manifest_is_refused_and_a_missing_one_told_of(stopped):
    manifest = stopped / "manifest.json"
    flip(manifest)
    with pytest.raises(InputError, match="manifest.json: changed since it was written; restore it"):
        RunDirectory(stopped).manifest.read()
    manifest.unlink()
    with pytest.warns(
        UserWarning, match="manifest.json: missing, so the files of this run cannot be verified"
    ):
        esnlm.load(stopped)


# Changes that are asked for.


def test_a_change_is_shown_and_refused_unless_asked_for(stopped, originals):
    with pytest.raises(
        InputError, match="compute.chunk_tokens 1024 -> 512.*--allow-change compute.chunk_tokens"
    ):
        train(stopped, "--compute.chunk_tokens", "512")
    with pytest.raises(
        InputError, match="--allow-change training.learning_rate: it may not change within a run"
    ):
        train(stopped, "--training.learning_rate", "0.1", allowed=["training.learning_rate"])
    saved = newest(stopped)
    assert train(stopped, "--compute.chunk_tokens", "512", allowed=["compute.chunk_tokens"]) == 0
    assert summary_of(stopped)["changes"] == [
        f"from update {saved}: compute.chunk_tokens 1024 -> 512"
    ]
    one, other = esnlm.load(stopped).arrays(), esnlm.load(originals / "finished").arrays()
    # 5 updates of 1e-3 at most, to a hundredth.
    np.testing.assert_allclose(one["readout.a"], other["readout.a"], atol=5e-3 * 1e-2)


def test_other_data_is_refused_though_its_path_may_change(stopped, tmp_path):
    shutil.rmtree(stopped / "stores" / "train")
    shutil.copytree(stopped / "stores" / "validation", stopped / "stores" / "train")
    with pytest.raises(InputError, match=r"was begun with other data \(train\)"):
        train(stopped)


# Disks that refuse.


def test_a_full_disk_while_logging_is_one_line(tmp_path):
    file = tmp_path / "metrics.jsonl"
    metrics = Metrics(file, 0)
    metrics.write(step=1)
    assert file.read_text() == '{"step": 1}\n'
    file.unlink()
    file.symlink_to("/dev/full")
    with pytest.raises(InputError, match="metrics.jsonl: No space left on device"):
        metrics.write(step=2)


# Stopping, and two at once.


@pytest.mark.nightly
def test_two_at_once_are_refused_and_a_killed_one_s_lock_is_gone(tmp_path):
    run = tmp_path / "run"
    (tmp_path / "small.yaml").write_text(f"run: {run}\n{SMALL}")
    command = [
        sys.executable,
        str(REPOSITORY / "train.py"),
        "--config",
        str(tmp_path / "small.yaml"),
    ]
    first = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    while not (run / "config.yaml").exists():
        assert first.poll() is None, first.stderr.read()
        time.sleep(0.01)
    with pytest.raises(
        InputError, match="another training is writing here; name another with --run"
    ):
        train(run)
    first.kill()
    first.communicate()
    assert train(run) == 0
