"""A run that is stopped again and again."""

import signal

from esnlm import config_io
from esnlm.training.log import TrainingLog
from esnlm.workflows.train import train_run


def train_with_stops(path, monkeypatch, every):
    """Trains the configuration at `path` to its end, stopped after every so many updates and resumed each time; how often."""
    enter, calls = TrainingLog.push, []

    def enter_and_stop(self, *arguments):
        enter(self, *arguments)
        calls.append(1)
        if len(calls) % every == 0:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(TrainingLog, "push", enter_and_stop)
    statuses = []
    while not statuses or statuses[-1] == 75:
        statuses.append(train_run(config_io.read(path)))
    assert statuses[-1] == 0
    return len(statuses) - 1
