"""A run that is stopped again and again."""

import signal

from esnlm import config
from esnlm.training import loop
from esnlm.training.log import Ledger


def train_with_stops(path, monkeypatch, every, updates_per_call):
    """Trains the configuration at `path` to its end, stopped after every so many calls and resumed each time; how often."""
    enter, calls = Ledger.enter, []

    def enter_and_stop(self, *arguments):
        enter(self, *arguments)
        calls.append(1)
        if len(calls) % every == 0:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(Ledger, "enter", enter_and_stop)
    monkeypatch.setattr(
        Ledger, "updates_per_call", property(lambda self: updates_per_call, lambda self, value: None), raising=False
    )
    statuses = []
    while not statuses or statuses[-1] == 75:
        statuses.append(loop.train(config.read(path)))
    assert statuses[-1] == 0
    return len(statuses) - 1
