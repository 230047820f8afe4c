"""What lies where in a run directory, and who may write there."""

import contextlib
import fcntl
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from esnlm.errors import InputError


@dataclass(frozen=True)
class RunDirectory:
    """The files of one run. A run directory moves to another machine and still loads."""

    path: Path

    @property
    def config(self) -> Path:  # resolved: what was asked for, and what was chosen for the device
        return self.path / "config.yaml"

    @property
    def tokenizer(self) -> Path:
        return self.path / "tokenizer"

    @property
    def data(self) -> Path:  # sha256 of the token stores and the tokenizer that the run was begun with
        return self.path / "data.json"

    @property
    def frozen(self) -> Path:  # the reservoir, saved once
        return self.path / "frozen"

    @property
    def checkpoints(self) -> Path:  # one folder a step
        return self.path / "checkpoints"

    @property
    def unigram(self) -> Path:  # how often each token is predicted in the training text, (V,) int64
        return self.path / "unigram.npy"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def summary(self) -> Path:
        return self.path / "summary.json"

    @property
    def plots(self) -> Path:
        return self.path / "plots"

    @property
    def minimal_pairs(self) -> Path:  # the run's own, where its corpus was generated
        return self.path / "minimal_pairs"

    @property
    def stores(self) -> Path:  # token stores of a generated corpus
        return self.path / "stores"

    def read_summary(self) -> dict | None:
        """The summary, or None where there is none that can be read."""
        try:
            return json.loads(self.summary.read_text())
        except (OSError, ValueError):
            return None

    @contextlib.contextmanager
    def cleared_if_not_begun(self) -> Iterator[None]:
        """Takes back what a start wrote that failed on bad input, so that the corrected command starts afresh."""
        begun = self.config.exists()
        try:
            yield
        except InputError:
            if not begun:
                for path in (self.config, self.data, self.unigram):
                    path.unlink(missing_ok=True)
                for path in (self.stores, self.minimal_pairs, self.tokenizer, self.frozen):
                    shutil.rmtree(path, ignore_errors=True)
            raise

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the run directory against a second training; the lock goes with the process, however it ends.

        Raises:
            InputError: another process holds it.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            handle = open(self.path / ".lock", "w")
        except OSError as error:
            raise InputError(f"{self.path}: cannot write the run directory: {error.strerror}; choose another with --run") from None
        with handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InputError(f"{self.path}: another training is writing to this run directory; choose another with --run") from None
            yield
