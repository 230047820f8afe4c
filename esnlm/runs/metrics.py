"""Writes metrics.jsonl, the progress of training for other programs: one JSON object per line."""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from esnlm.base.files import spell_nonfinite, write_file, writing


class Metrics:
    """Appends lines to metrics.jsonl during training.

    A resumed run first drops the lines that it will write again: those after the step that it
    resumes from, and the validation at that step. Without a file, nothing is written, since another
    process of the run does it.
    """

    def __init__(self, file: Path | None, resume_step: int) -> None:
        # called with the values of each line
        self.listeners: list[Callable[[dict[str, Any]], None]] = []
        self._file = file
        if file is None:
            return
        lines = file.read_text("utf-8", errors="replace").splitlines() if file.exists() else []
        write_file(
            file, "".join(f"{line}\n" for line in lines if _order(line) <= (resume_step, False))
        )
        self._handle = open(file, "a", encoding="utf-8")  # noqa: SIM115 (`__exit__` closes it)

    def __enter__(self) -> "Metrics":
        return self

    def __exit__(self, *exception: object) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):  # a full disk, which `write` has reported
                self._handle.close()

    def write(self, **values: Any) -> None:
        """Appends a line. Raises InputError if it cannot be written."""
        if self._file is None:
            return
        values = spell_nonfinite(values)
        with writing(self._file):
            self._handle.write(json.dumps(values) + "\n")
            self._handle.flush()
        for tell in self.listeners:
            tell(values)


def _order(line: str) -> tuple[float, bool]:
    """Returns the sort key of a line: its step, and whether it is a validation, which follows the
    updates."""
    try:
        values = json.loads(line)
        return values["step"], "val_nll" in values
    except (ValueError, KeyError, TypeError):
        return float("inf"), True  # a crash cut this line short
