"""What a person sees on standard error while a command works: lines, warnings and one line of progress."""

import contextlib
import sys
import time
from collections.abc import Callable

from esnlm.distributed import group

LOG_EVERY_SECONDS = 15


class Progress:
    """A line that says how far, how fast and how much longer: rewritten on a terminal, repeated in a log file."""

    def __init__(self, total: int, done: int = 0, unit: str = "tokens") -> None:
        self.total, self.first, self.unit = total, done, unit
        self.began = self.printed = time.monotonic()
        self.terminal = sys.stderr is not None and sys.stderr.isatty()

    def show(self, done: int, text: str, final: bool = False, describe: Callable[[float], str] | None = None) -> None:
        """Shows the line if it is due.

        Args:
            done: How much of the total is done, in units.
            text: What stands before the speed and the time left.
            final: Whether this is the last line, which is always due.
            describe: Makes the end of the line from the speed, in units a second.
        """
        now = time.monotonic()
        due = 0.2 if self.terminal else LOG_EVERY_SECONDS
        if not final and now - self.printed < due:
            return
        self.printed = now
        speed = (done - self.first) / max(now - self.began, 1e-9)
        left = (self.total - done) / speed if speed else 0
        line = f"{text}  {speed:,.0f} {self.unit}/s  {clock(left)} left{describe(speed) if describe else ''}"
        if self.terminal:
            line = f"\r\033[K{line}"
        say(line, end="" if self.terminal and not final else "\n")


def say(line: str, end: str = "\n") -> None:
    """Prints a line for the person who watches: on standard error, as standard output is for results.

    A line that cannot be shown is dropped. It is no reason to stop. Of several processes of a run only one prints.
    """
    if sys.stderr is not None and group.writes():  # as where it is closed; print would take None for standard output
        with contextlib.suppress(OSError):
            print(line, end=end, file=sys.stderr, flush=True)


def warn(line: str) -> None:
    """Prints a line that begins with "warning: "."""
    say(f"warning: {line}")


def clock(seconds: float) -> str:
    """Returns seconds as h:mm:ss or m:ss."""
    minutes, seconds = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
