"""Runs that the golden tests share, beside those of tests/conftest.py. Each is made once."""

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.golden import small


@pytest.fixture(scope="session")
def interrupted(stores, tmp_path_factory) -> Callable[[str], Path]:
    """A function from the name of a model to a run that was stopped after its second checkpoint."""

    @functools.cache
    def run(name: str) -> Path:
        folder = tmp_path_factory.mktemp("interrupted") / name
        with small.stop_at(folder / "checkpoints" / "20"):
            assert small.train(folder, stores, small.MODELS[name], **small.training_of(name)) == 75
        return folder

    return run


@pytest.fixture(scope="session")
def quickstart(tmp_path_factory) -> Path:
    """The run of the quickstart, much smaller."""
    return small.train_quickstart(tmp_path_factory.mktemp("quickstart") / "run")
