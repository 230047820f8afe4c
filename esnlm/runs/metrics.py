"""metrics.jsonl: what a training run tells programs, one JSON object a line."""

import contextlib
import hashlib
import json
import math
from pathlib import Path

from esnlm.runs.console import warn
from esnlm.runs.atomic import write_atomically, writing

class Metrics:
    """metrics.jsonl: one JSON object a line, appended as training goes.

    A resumed run first drops the lines that it will write again: those after the step that it resumes from, and the
    validation at that step. What is left must have the sha256 that the checkpoint knows, or a warning tells.
    """

    def __init__(self, file: Path, resume_step: int, sha256: str | None = None):
        lines = file.read_text(errors="replace").splitlines() if file.exists() else []
        kept = "".join(f"{line}\n" for line in lines if _place(line) <= (resume_step, False)).encode()
        self._digest = hashlib.sha256(kept)
        if sha256 not in (None, self.sha256):
            warn(f"{file}: changed since update {resume_step} was saved: lines up to there are missing or wrong")
        write_atomically(file, kept)
        self._file, self._handle = file, open(file, "ab")

    def __enter__(self) -> "Metrics":
        return self

    def __exit__(self, *exception) -> None:
        with contextlib.suppress(OSError):  # of a full disk, which `write` has told of
            self._handle.close()

    @property
    def sha256(self) -> str:
        """Of all lines so far."""
        return self._digest.hexdigest()

    def write(self, **values) -> None:
        """Appends a line. Raises InputError where it cannot be written."""
        line = (json.dumps(plain(values)) + "\n").encode()
        with writing(self._file):
            self._handle.write(line)
            self._handle.flush()
        self._digest.update(line)


def plain(values: dict) -> dict:
    """Values for JSON, which has no inf and no nan: such a number becomes the string "inf", "-inf" or "nan"."""
    def one(value):
        if isinstance(value, dict):
            return plain(value)
        if isinstance(value, list):
            return [one(each) for each in value]
        return str(value) if isinstance(value, float) and not math.isfinite(value) else value

    return {key: one(value) for key, value in values.items()}


def _place(line: str) -> tuple[float, bool]:
    try:
        values = json.loads(line)
        return values["step"], "val_nll" in values
    except (ValueError, KeyError, TypeError):
        return float("inf"), True  # a crash cut this line short
