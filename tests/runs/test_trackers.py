"""Trackers follow a run, and never stop it."""

import csv
import json
import sys

import numpy as np
import pytest

import esnlm
from esnlm import config_io
from esnlm.errors import InputError
from esnlm.runs import trackers
from esnlm.runs.directory import RunDirectory
from esnlm.runs.trackers import Trackers
from esnlm.workflows.train import train_run

MEASURED = ("tokens_per_second", "peak_memory_bytes")  # what differs from one run to the next
SMALL = """
data: {kind: grammar, sentences: 100, validation_sentences: 20, pairs: 2}
model: {reservoir: {state_size: 24, mean_degree: 4}, readout: {rank: 4}}
training: {epochs: 2, log_every: 2}
"""


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


class FailsAt(FakeTracker):
    """Fails in one of its methods."""

    method = ""

    def fail(self, *arguments):
        self.told.append((self.method,))
        raise ConnectionError("no route to host")


@pytest.fixture
def run(tmp_path):
    """A configuration of a run in tmp_path/run, with settings of the command line."""

    def read(*overrides):
        (tmp_path / "small.yaml").write_text(f"run: {tmp_path / 'run'}\n{SMALL}")
        return config_io.read(tmp_path / "small.yaml", list(overrides))

    return read


def started(monkeypatch, kind, **names):
    """Registers a kind of tracker as `fake`, and returns the list of those that are started."""
    found = []

    def start(*arguments):
        found.append(kind(*arguments))
        for name, method in names.items():
            setattr(found[-1], name, getattr(found[-1], method))
        return found[-1]

    monkeypatch.setitem(trackers.TRACKERS, "fake", start)
    return found


def lines(path):
    return [
        {key: value for key, value in json.loads(line).items() if key not in MEASURED}
        for line in path.read_text().splitlines()
    ]


def test_a_tracker_is_told_of_the_whole_run(run, tmp_path, monkeypatch):
    found = started(monkeypatch, FakeTracker)
    assert train_run(run("--tracking", "[fake]")) == 0
    updates = ["epoch", "peak_memory_bytes", "tokens", "tokens_per_second", "train_nll", "words"]
    validation = ["epoch", "val_bits_per_byte", "val_nll", "val_nll_without_eos"]
    assert [tracker.told for tracker in found] == [
        [
            ("start", tmp_path / "run", 0, 0),
            *(("log", 2, updates), ("log", 4, updates), ("log", 4, validation)),
            *(("log", 6, updates), ("log", 8, updates), ("log", 8, validation)),
            *(("summary", "finished"), ("finish",)),
        ]
    ]


def test_metrics_jsonl_does_not_depend_on_trackers_and_they_may_change_within_a_run(run, tmp_path):
    path = RunDirectory(tmp_path / "run")
    assert train_run(run()) == 0
    alone, summary = lines(path.metrics), json.loads(path.summary.read_text())
    path.summary.unlink()  # as if it was killed while its results were made
    assert train_run(run("--tracking", "[csv]")) == 0
    assert lines(path.metrics) == alone
    assert json.loads(path.summary.read_text())["config_sha256"] == summary["config_sha256"]
    with open(tmp_path / "run" / "metrics.csv", newline="") as handle:
        rows = [row for row in csv.DictReader(handle) if row["metric"] not in MEASURED]
    expected = [(line["step"], key, value) for line in alone for key, value in line.items() if key != "step"]
    assert [(int(row["step"]), row["metric"], float(row["value"])) for row in rows] == expected


@pytest.mark.parametrize("method", ["log", "summary", "finish"])
def test_a_tracker_that_fails_is_named_once_and_stops_nothing(run, tmp_path, monkeypatch, capsys, method):
    monkeypatch.setattr(FailsAt, "method", method)
    found = started(monkeypatch, FailsAt, **{method: "fail"})
    assert train_run(run("--tracking", "[fake]")) == 0
    assert [what[0] for what in found[0].told].count(method) == 1
    told = [line for line in capsys.readouterr().err.splitlines() if "tracking" in line]
    assert told == ["warning: tracking fake failed: ConnectionError: no route to host; the run goes on without it"]
    assert len(lines(tmp_path / "run" / "metrics.jsonl")) == 6


def test_a_tracker_that_does_not_start_leaves_the_others(tmp_path, capsys):
    def refuse(*arguments):
        raise ImportError("No module named 'service'")

    directory = RunDirectory(tmp_path)
    with Trackers({"service": refuse, "fake": FakeTracker}, directory, {"seed": 3}, step=8) as both:
        fake = both._trackers["fake"]
        both.log({"step": 9, "train_nll": 1.5})
    assert fake.told == [("start", tmp_path, 3, 8), ("log", 9, ["train_nll"]), ("finish",)]
    assert capsys.readouterr().err.startswith(
        "warning: tracking service failed: ImportError: No module named 'service'"
    )


def test_a_tracker_that_ends_the_process_or_talks_much_is_one_line_all_the_same(tmp_path, capsys):
    def leave(*arguments):
        sys.exit("no key:\n  log in\n" + "." * 10_000)

    Trackers({"service": leave}, RunDirectory(tmp_path), {}, step=0)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: tracking service failed: SystemExit: no key: log in .....")
    assert len(line) < 700


def test_a_tracker_that_is_not_there(run, monkeypatch):
    monkeypatch.setattr(trackers, "entry_points", lambda group: ())
    with pytest.raises(InputError) as caught:
        run("--tracking", "[csv, tape]")
    assert str(caught.value) == "tracking has 'tape': choose from csv, tensorboard, wandb"


def test_a_run_without_the_extras_that_it_names_has_the_same_bits(run, tmp_path, monkeypatch, capsys):
    assert train_run(run()) == 0
    alone = esnlm.load(tmp_path / "run").arrays()
    (tmp_path / "run").rename(tmp_path / "alone")
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto", None)
    capsys.readouterr()
    assert train_run(run("--tracking", "[tensorboard, wandb]")) == 0
    told = [line for line in capsys.readouterr().err.splitlines() if "tracking" in line]
    assert [line.rpartition(": ")[2] for line in told] == [
        "pip install 'esnlm[tensorboard]'; the run goes on without it",
        "pip install 'esnlm[wandb]'; the run goes on without it",
    ]
    found = esnlm.load(tmp_path / "run").arrays()
    assert all(np.array_equal(alone[name], found[name]) for name in alone)


# ---- trackers of other packages ----

THEIRS = """
class Tape:
    def __init__(self, directory, settings, step):
        self.tape = (directory.path / "tape.txt").open("a")
        print("from", step, file=self.tape)

    def log(self, step, values):
        print(step, *sorted(values), file=self.tape)

    def summary(self, values):
        print(values["status"], file=self.tape)

    def finish(self):
        self.tape.close()
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package with a tracker, as pip installs one: its module, and a folder that says what it registers."""
    folder = tmp_path / "site-packages"
    about = folder / "their_trackers-1.0.dist-info"
    about.mkdir(parents=True)
    (folder / "their_trackers.py").write_text(THEIRS)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: their-trackers\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[esnlm.trackers]\ntape = their_trackers:Tape\ncsv = their_trackers:Tape\n")
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    sys.modules.pop("their_trackers", None)


def test_a_package_registers_a_tracker(installed, run, tmp_path):
    assert train_run(run("--tracking", "[csv, tape]")) == 0
    told = (tmp_path / "run" / "tape.txt").read_text().splitlines()
    assert told[:2] == ["from 0", "2 epoch peak_memory_bytes tokens tokens_per_second train_nll words"]
    assert told[-2:] == ["8 epoch val_bits_per_byte val_nll val_nll_without_eos", "finished"]
    assert (tmp_path / "run" / "metrics.csv").exists()  # nobody takes a name of ours
