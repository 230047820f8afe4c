"""Studies that are small enough to be run in a test, in this process or in others."""

import pytest

from esnlm.reports.run_results import show_results
from esnlm.studies import pool
from esnlm.training import config_io
from esnlm.training.run import train_run
from tests.golden import small

BASE = """
data: {kind: grammar, sentences: 100, validation_sentences: 20, pairs: 2}
model: {reservoir: {state_size: 24, mean_degree: 4}, readout: {rank: 4}}
training: {log_every: 1, batch_size: 8}
"""


@pytest.fixture
def write(tmp_path):
    """Returns a function that writes a study file, beside its base."""

    def write(text, name="radius"):
        (tmp_path / "base.yaml").write_text(BASE)
        (tmp_path / f"{name}.yaml").write_text(text)
        return tmp_path / f"{name}.yaml"

    return write


@pytest.fixture
def asked(monkeypatch):
    """Lets a pool do its runs in this process, which is quicker; [names of those that it ran].

    `asked.endings` has another ending, "stopped" or "failed", for a run by its name.
    """

    class Names(list):
        endings = {}

    names = Names()

    def run(self, name, commands, slot, is_hopeless=lambda: False):
        names.append(name)
        ending = names.endings.get(name, "done")
        if ending == "done":
            train, *score = commands
            experiment = config_io.read(train[2], train[3:])
            assert train_run(experiment, show_results=show_results, owns_process=False) == 0
            if score:
                assert small.esnlm(*score[0]) == 0
        self.stopping = self.stopping or ending == "stopped"
        self.failed |= {name: 2} if ending == "failed" else {}
        return "given up" if is_hopeless() else ending

    monkeypatch.setattr(pool.Pool, "run", run)
    monkeypatch.setattr(pool.Pool, "reason", lambda self, name: "a full disk")
    return names
