"""What lies where in a run directory, and who may write there."""

import contextlib
import fcntl
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from esnlm.errors import InputError
from esnlm.runs.atomic import parse_json, sealed, sha256, unsealed, write_atomically


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
    def sums(self) -> Path:  # of a regression that is under way, one folder a step
        return self.path / "sums"

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

    @property
    def manifest(self) -> Path:  # sha256 of the files that no longer change
        return self.path / "manifest.json"

    @property
    def fixed_files(self) -> tuple[Path, ...]:  # what is there before the first update, and stays as it is
        return self.config, self.data, self.unigram, self.tokenizer, self.minimal_pairs

    def update_manifest(self, *paths: Path, **facts: Any) -> None:
        """Puts the sha256 of files, and of all files in folders, into manifest.json, and what else is to be remembered."""
        known = self.read_manifest() or {}
        found = [
            file for path in paths for file in (sorted(path.rglob("*")) if path.is_dir() else [path]) if file.is_file()
        ]
        files = known.get("files", {}) | {file.relative_to(self.path).as_posix(): sha256(file) for file in found}
        write_atomically(self.manifest, sealed(known | facts | {"files": files}))

    def read_manifest(self) -> dict | None:
        """What manifest.json holds; None where there is none.

        Raises:
            InputError: it is damaged.
        """
        try:
            raw = self.manifest.read_bytes()
        except FileNotFoundError:
            return None
        if (content := unsealed(raw)) is None:
            raise InputError(
                f"{self.manifest}: changed since it was written; restore it from a copy of the run, or delete it to go on with"
                " files that nothing vouches for"
            )
        return content

    def find_damage(self, *paths: Path) -> list[str]:
        """A line for each file that is not as manifest.json has it, of `paths` (files, and folders for all in them)."""
        problems = []
        for name, expected in (self.read_manifest() or {"files": {}})["files"].items():
            file = self.path / name
            if file in paths or any(path in file.parents for path in paths):
                if not file.is_file():
                    problems.append(f"{file}: missing")
                elif sha256(file) != expected:
                    problems.append(f"{file}: changed since it was written")
        return problems

    def require_intact(self, *paths: Path, warn: Callable[[str], Any] = warnings.warn) -> None:
        """Calls `warn` with a line where the run has no manifest.json to check `paths` against.

        Raises:
            InputError: a file is damaged or missing.
        """
        if self.read_manifest() is None and self.checkpoints.exists():
            warn(f"{self.manifest}: missing: nothing vouches for the files of this run")
        if problems := self.find_damage(*paths):
            raise InputError(f"{problems[0]}; restore it from a copy of the run")

    def read_summary(self, warn: Callable[[str], Any] = warnings.warn) -> dict | None:
        """The summary of a run that came to its end, or None. Calls `warn` with a line where it is damaged."""
        if problems := self.find_damage(self.summary):
            warn(f"{problems[0]}; the command that made the run makes it again")
            return None
        known = self.read_manifest()
        if known is not None and self.summary.name not in known["files"]:
            return None  # interrupted, or killed before it was whole
        try:
            summary = parse_json(self.summary.read_bytes())
            return summary if summary["status"] in ("finished", "diverged") else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    @contextlib.contextmanager
    def rollback_on_error(self) -> Iterator[None]:
        """Takes back what a start wrote that failed on bad input, so that the corrected command starts afresh."""
        begun = self.config.exists()
        try:
            yield
        except InputError:
            if not begun:
                with contextlib.suppress(OSError):  # where nothing can be written, nothing was
                    for path in (self.config, self.data, self.unigram, self.manifest):
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
            handle = open(self.path / ".lock", "a")
        except OSError as error:
            raise InputError(
                f"{self.path}: cannot write the run directory: {error.strerror}; choose another with --run"
            ) from None
        with handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(
                    f"{self.path}: another training is writing to this run directory; choose another with --run"
                ) from None
            except OSError as error:
                warnings.warn(
                    f"{self.path}: no lock ({error.strerror}): see to it that no other training writes there",
                    stacklevel=3,
                )
            yield
