"""What a training tells: metrics.jsonl for programs, one line of progress for people."""

import contextlib
import hashlib
import json
import math
import sys
import time
from pathlib import Path

from esnlm.files import write_atomically, writing

LOG_EVERY_SECONDS = 15


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
        return str(value) if isinstance(value, float) and not math.isfinite(value) else value

    return {key: one(value) for key, value in values.items()}


class Progress:
    """A line that says how far, how fast and how long still: rewritten on a terminal, repeated in a log."""

    def __init__(self, total: int, done: int = 0, unit: str = "tokens"):
        self.total, self.first, self.unit = total, done, unit
        self.began = self.printed = time.monotonic()
        self.terminal = sys.stderr.isatty()

    def show(self, done: int, text: str, final: bool = False) -> None:
        """Shows the line if it is due.

        Args:
            done: of the total, in units.
            text: what stands before speed and time left.
        """
        now = time.monotonic()
        due = 0.2 if self.terminal else LOG_EVERY_SECONDS
        if not final and now - self.printed < due:
            return
        self.printed = now
        speed = (done - self.first) / max(now - self.began, 1e-9)
        left = (self.total - done) / speed if speed else 0
        line = f"{text}  {speed:,.0f} {self.unit}/s  {clock(left)} left"
        print(f"\r\033[K{line}" if self.terminal else line, end="" if self.terminal and not final else "\n", file=sys.stderr, flush=True)


def say(line: str) -> None:
    """A line to the person who watches: on stderr, as stdout is for results."""
    print(line, file=sys.stderr, flush=True)


def warn(line: str) -> None:
    say(f"warning: {line}")


def clock(seconds: float) -> str:
    """Seconds as h:mm:ss or m:ss."""
    minutes, seconds = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def _place(line: str) -> tuple[float, bool]:
    try:
        values = json.loads(line)
        return values["step"], "val_nll" in values
    except (ValueError, KeyError, TypeError):
        return float("inf"), True  # a crash cut this line short
