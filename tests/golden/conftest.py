"""Stores and runs that the golden tests share. Each is made once."""

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.golden import small


@pytest.fixture(scope="session")
def stores(tmp_path_factory) -> Path:
    """A folder with train.txt, dev.txt and their token stores train/ and dev/."""
    return small.make_stores(tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="session")
def trained(stores, tmp_path_factory) -> Callable[[str], Path]:
    """A function from the name of a model to its finished run."""

    @functools.cache
    def run(name: str) -> Path:
        folder = tmp_path_factory.mktemp("trained") / name
        assert small.train(folder, stores, small.MODELS[name], **small.training_of(name)) == 0
        return folder

    return run


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
