"""Trackers follow a run, and never stop it."""

import csv
import json

import pytest

from esnlm import config_io
from esnlm.errors import InputError
from esnlm.runs import trackers
from esnlm.runs.directory import RunDirectory
from esnlm.runs.trackers import Trackers
from esnlm.workflows.train import train_run

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
        {key: value for key, value in json.loads(line).items() if key != "tokens_per_second"}
        for line in path.read_text().splitlines()
    ]


def test_a_tracker_is_told_of_the_whole_run(run, tmp_path, monkeypatch):
    found = started(monkeypatch, FakeTracker)
    assert train_run(run("--tracking", "[fake]")) == 0
    updates = ["epoch", "tokens", "tokens_per_second", "train_nll", "words"]
    validation = ["epoch", "val_bits_per_byte", "val_nll"]
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
        rows = [row for row in csv.DictReader(handle) if row["metric"] != "tokens_per_second"]
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


def test_a_tracker_that_is_not_there(run):
    with pytest.raises(InputError) as caught:
        run("--tracking", "[csv, tape]")
    assert str(caught.value) == "tracking has 'tape': choose from csv"
