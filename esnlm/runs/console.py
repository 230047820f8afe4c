"""What a person sees while a command works: lines, warnings and one line of progress, all on standard error."""

import sys
import time

LOG_EVERY_SECONDS = 15


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
