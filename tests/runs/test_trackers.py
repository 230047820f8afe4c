"""Trackers follow a run, and never stop it."""

import shutil
import sys
from pathlib import Path

import pytest

from esnlm.runs import trackers
from esnlm.runs.directory import RunDirectory
from esnlm.runs.trackers import Trackers
from esnlm.training.run import train_run
from tests.training.small import metrics, read, same_run, train


class FakeTracker:
    """Remembers what it is told."""

    def __init__(self, directory, settings, step):
        self.told = [("start", directory.path, settings["seed"], step)]

    def log(self, step, values):
        self.told.append(("log", step, sorted(values)))

    def summary(self, values):
        self.told.append(("summary", values["status"]))

    def finish(self):
        self.told.append(("finish",))


@pytest.fixture
def started(monkeypatch):
    """Registers a tracker as `fake`, and returns the list of those that are started."""
    found = []

    def start(*arguments):
        found.append(FakeTracker(*arguments))
        return found[-1]

    monkeypatch.setitem(trackers.TRACKERS, "fake", start)
    return found


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A run without trackers."""
    return train(tmp_path_factory.mktemp("alone"), "run")


def test_a_tracker_is_told_of_the_whole_run(started, tmp_path):
    run = train(tmp_path, "run", "--tracking", "[fake]")
    first, *logged, summary, last = started[0].told
    assert first == ("start", run, 0, 0) and (summary, last) == (
        ("summary", "finished"),
        ("finish",),
    )
    updates = ["epoch", "peak_memory_bytes", "tokens", "tokens_per_second", "train_nll", "words"]
    assert logged[0] == ("log", 5, updates)
    assert logged[-1] == (
        "log",
        24,
        ["epoch", "val_bits_per_byte", "val_nll", "val_nll_without_eos"],
    )
    assert [step for _, step, _ in logged] == [line["step"] for line in metrics(run)]


def test_metrics_jsonl_does_not_depend_on_trackers_and_they_may_change_within_a_run(
    alone, tmp_path
):
    run = Path(shutil.copytree(alone, tmp_path / "run"))
    RunDirectory(run).summary.unlink()  # as if it was killed while its results were made
    assert train_run(read(tmp_path, "run", "--tracking", "[tensorboard]")) == 0
    assert metrics(run) == metrics(alone) and list((run / "tensorboard").iterdir())


@pytest.mark.parametrize("method", ["__init__", "log", "summary", "finish"])
def test_a_tracker_that_fails_is_named_once_and_stops_nothing(
    tmp_path, monkeypatch, capsys, method
):
    def fail(self, *arguments):
        raise ConnectionError("no route to host")

    failing = type("Failing", (FakeTracker,), {method: fail})
    directory = RunDirectory(tmp_path)
    with Trackers({"bad": failing, "fake": FakeTracker}, directory, {"seed": 3}, step=8) as both:
        fake = both._trackers["fake"]
        for step in (9, 10):
            both.log({"step": step, "train_nll": 1.5})
        both.summary({"status": "finished"})
    assert [what[0] for what in fake.told] == ["start", "log", "log", "summary", "finish"]
    (line,) = capsys.readouterr().err.splitlines()
    assert (
        line == "warning: tracking bad failed: ConnectionError: no route to host; the run continues"
        " without it"
    )


def test_a_run_without_the_extras_that_it_names_has_the_same_bits(
    alone, tmp_path, monkeypatch, capsys
):
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto.event_pb2", None)
    capsys.readouterr()
    run = train(tmp_path, "run", "--tracking", "[tensorboard, wandb]")
    told = capsys.readouterr().err
    assert "pip install 'esnlm[tensorboard]'" in told and "pip install 'esnlm[wandb]'" in told
    same_run(alone, run)


THEIRS = """
class Tape:
    def __init__(self, directory, settings, step):
        self.tape = (directory.path / "tape.txt").open("a")

    def log(self, step, values):
        print(step, *sorted(values), file=self.tape)

    def summary(self, values):
        print(values["status"], file=self.tape)

    def finish(self):
        self.tape.close()
"""


def test_a_package_registers_a_tracker(tmp_path, monkeypatch):
    """Its module, and a folder that says what it registers, as pip installs them."""
    about = tmp_path / "site-packages" / "their_trackers-1.0.dist-info"
    about.mkdir(parents=True)
    (about.parent / "their_trackers.py").write_text(THEIRS)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: their-trackers\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[esnlm.trackers]\ntape = their_trackers:Tape\ntensorboard = their_trackers:Tape\n"
    )
    monkeypatch.syspath_prepend(str(about.parent))
    run = train(tmp_path, "run", "--tracking", "[tensorboard, tape]")
    told = (run / "tape.txt").read_text().splitlines()
    assert (
        told[0] == "5 epoch peak_memory_bytes tokens tokens_per_second train_nll words"
        and told[-1] == "finished"
    )
    assert (run / "tensorboard").exists()  # nobody takes a name of ours
    sys.modules.pop("their_trackers")
