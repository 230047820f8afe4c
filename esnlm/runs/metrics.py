"""Writes metrics.jsonl, from which other programs read how a training goes: one JSON object a line."""

import contextlib
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from esnlm.io.atomic import write_file, writing
from esnlm.io.console import warn
from esnlm.io.json_file import parse_json, spell_nonfinite


class Metrics:
    """Appends lines to metrics.jsonl as training goes.

    A resumed run first drops the lines that it will write again: those after the step that it resumes from, and the
    validation at that step. It warns of lines up to there that do not have the `sha256` of that step. Without a file another
    process of the run writes it.
    """

    def __init__(self, file: Path | None, resume_step: int, sha256: str | None = None) -> None:
        self.listeners: list[Callable[[dict[str, Any]], None]] = []  # called with the values of each line
        self._file, self._digest = file, hashlib.sha256()
        if file is None:
            return
        kept = "".join(f"{line}\n" for line in _lines(file) if _order(line) <= (resume_step, False)).encode()
        self._digest = hashlib.sha256(kept)
        if sha256 not in (None, self.sha256):
            warn(f"{file}: changed since update {resume_step} was saved: lines up to there are missing or wrong")
        write_file(file, kept)
        self._handle = open(file, "ab")  # noqa: SIM115 (`__exit__` closes it)

    def __enter__(self) -> "Metrics":
        return self

    def __exit__(self, *exception: object) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):  # of a full disk, which `write` has reported
                self._handle.close()

    @property
    def sha256(self) -> str:
        """The sha256 of all lines that were written so far, those before a resumption among them."""
        return self._digest.hexdigest()

    def write(self, **values: Any) -> None:
        """Appends a line. Raises InputError if it cannot be written."""
        if self._file is None:
            return
        values = spell_nonfinite(values)
        line = (json.dumps(values) + "\n").encode()
        with writing(self._file):
            self._handle.write(line)
            self._handle.flush()
        self._digest.update(line)
        for tell in self.listeners:
            tell(values)


def _lines(file: Path) -> list[str]:
    return file.read_text(errors="replace").splitlines() if file.exists() else []


def _order(line: str) -> tuple[float, bool]:
    """Returns what sorts a line: its step, and whether it is of a validation, which comes after the updates."""
    try:
        values = parse_json(line)
        return values["step"], "val_nll" in values
    except (ValueError, KeyError, TypeError):
        return float("inf"), True  # a crash cut this line short
