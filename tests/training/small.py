"""Small runs of one size, which share their compiled programs: how they are trained, stopped and
compared."""

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np

import esnlm
from esnlm.runs.directory import RunDirectory
from esnlm.training import config_io
from esnlm.training.config import Experiment
from esnlm.training.log import TrainingLog
from esnlm.training.run import train_run

DATA = "data: {kind: grammar, sentences: 96, validation_sentences: 20, pairs: 2}\n"
# twelve updates an epoch
TRAINING = "training: {epochs: 2, batch_size: 8, learning_rate: 0.02, log_every: 5}\n"
ESN = "model: {reservoir: {state_size: 16, mean_degree: 4}, readout: {rank: 4}}\n"
SMALL = DATA + TRAINING + ESN
TIMES = ("seconds", "tokens_per_second", "peak_memory_bytes")


def read(folder: Path, name: str, *settings: str, text: str = SMALL) -> Experiment:
    """Returns the experiment whose run is `folder / name`."""
    file = folder / "small.yaml"
    file.write_text(text)
    return config_io.read(file, ["--run", str(folder / name), *settings])


def train(folder: Path, name: str, *settings: str, text: str = SMALL, **options: Any) -> Path:
    """Trains a run to its end, with options of `train_run`, and returns its directory."""
    assert train_run(read(folder, name, *settings, text=text), **options) == 0
    return folder / name


def train_with_stops(experiment: Experiment, monkeypatch, every: int) -> int:
    """Trains to the end, stopped after every so many updates and resumed each time; returns how
    often."""
    push, calls = TrainingLog.push, []

    def push_and_stop(self, *arguments):
        push(self, *arguments)
        calls.append(1)
        if len(calls) % every == 0:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(TrainingLog, "push", push_and_stop)
    statuses = []
    while not statuses or statuses[-1] == 75:
        statuses.append(train_run(experiment))
    assert statuses[-1] == 0
    return len(statuses) - 1


def summary_of(run: Path) -> dict:
    return json.loads((run / "summary.json").read_text())


def timeless(tree: dict) -> dict:
    return {key: value for key, value in tree.items() if key not in TIMES}


def metrics(run: Path) -> list[dict]:
    return [
        timeless(json.loads(line)) for line in RunDirectory(run).metrics.read_text().splitlines()
    ]


def same_run(one: Path, two: Path) -> None:
    """Two runs have the same arrays, bit for bit, the same summary and the same metrics."""
    first, second = esnlm.load(one).arrays(), esnlm.load(two).arrays()
    assert all(np.array_equal(first[name], second[name]) for name in first | second)
    assert timeless(summary_of(one)) == timeless(summary_of(two))
    assert metrics(one) == metrics(two)
