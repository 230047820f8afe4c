"""What a training tells: metrics.jsonl for programs, one line of progress for people."""

import json
import math
import sys
import time
from pathlib import Path

from esnlm.files import write_atomically

LOG_EVERY_SECONDS = 15


class Metrics:
    """metrics.jsonl: one JSON object a line, appended as training goes.

    A resumed run first drops the lines that it will write again: those after the step that it resumes from, and the
    validation at that step.
    """

    def __init__(self, file: Path, resume_step: int):
        lines = file.read_text().splitlines() if file.exists() else []
        kept = [line for line in lines if _place(line) <= (resume_step, False)]
        write_atomically(file, "".join(f"{line}\n" for line in kept))
        self._handle = open(file, "a")

    def write(self, **values) -> None:
        self._handle.write(json.dumps(plain(values)) + "\n")
        self._handle.flush()

    def close(self) -> None:
        self._handle.close()


def plain(values: dict) -> dict:
    """Values for JSON, which has no inf and no nan: such a number becomes the string "inf", "-inf" or "nan"."""
    return {key: str(v) if isinstance(v, float) and not math.isfinite(v) else v for key, v in values.items()}


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
