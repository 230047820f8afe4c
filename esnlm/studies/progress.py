"""One line that says how far a study is, whose runs are trained side by side."""

import sys
import time
from collections.abc import Collection

from esnlm.io.console import clock, end_status, is_terminal, say, status, tell

NAMES = 3  # of runs under way that the line has room for


class StudyProgress:
    """The line: rewritten each second on a terminal, repeated in a log file where something has changed."""

    def __init__(self, total: int, done: int) -> None:
        """
        Args:
            total: runs.
            done: runs that were done before.
        """
        self.total, self.done, self.failed = total, done, 0
        self._began = self._shown = time.monotonic()
        self._last = ""
        self._terminal = is_terminal(sys.stderr)

    def show(self, under_way: Collection[str], share: float | None = None) -> None:
        """Shows the line where it is due.

        Args:
            under_way: the names of the runs that are being trained.
            share: the share of this process's work that is done, from 0 to 1, where it is known.
        """
        names = [*under_way][:NAMES] + ["..."] * (len(under_way) > NAMES)
        parts = [f"{self.done} of {self.total} runs done", *([f"{self.failed} failed"] if self.failed else [])]
        parts.append(f"{len(under_way)} under way{': ' if names else ''}{', '.join(names)}")
        line, now = ", ".join(parts), time.monotonic()
        left = f"; about {clock((now - self._began) / share * (1 - share))} left" if share and share < 1 else ""
        if self._terminal and now - self._shown >= 1:
            status(f"{line}{left}")
            self._shown = now
        elif not self._terminal and line != self._last:
            say(f"{line}{left}")
        self._last = line

    def tell(self, line: str) -> None:
        """Says what a person has to act on, on a line of its own, also with --quiet."""
        tell(line)

    def end(self) -> None:
        """Leaves the line of a terminal."""
        end_status()
