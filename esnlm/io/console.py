"""What a person sees on standard error while a command works: lines, warnings and one line of progress.

A terminal has one line that is written over again and again. Any other line takes its place. A log file and a pipe get
whole lines only, without escape sequences and carriage returns.
"""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Any, Literal

from esnlm.distributed import group
from esnlm.io.recent_speed import RecentSpeed

LOG_EVERY_SECONDS = 15
USUAL_COLUMNS = 80  # of a terminal that does not say how wide it is
NARROWEST = 20  # columns; a terminal that says that it has fewer is believed to have so many


class Level(IntEnum):
    """How much is said on standard error."""

    QUIET = 0  # warnings and errors
    USUAL = 1
    VERBOSE = 2  # what was chosen, and how long each stage took, too


_level = Level.USUAL
_standing = False  # whether the line of a terminal that is written over is shown
_lock = threading.RLock()  # a signal handler and `working` may speak while a line is printed


@contextlib.contextmanager
def speaking(level: Level) -> Iterator[None]:
    """Lets all within it be said at this level."""
    global _level
    before, _level = _level, level
    try:
        yield
    finally:
        _level = before


def level() -> Level:
    """Returns how much is said at present."""
    return _level


def say(line: str) -> None:
    """Says how the work goes on: a line on standard error, as standard output is for results. Not with --quiet."""
    if _level >= Level.USUAL:
        tell(line)


def detail(line: str) -> None:
    """Says what most people need not know: a line that is shown with --verbose only."""
    if _level >= Level.VERBOSE:
        tell(line)


def warn(line: str) -> None:
    """Prints a line that begins with "warning: ", also with --quiet."""
    tell(f"warning: {line}")


def tell(line: str) -> None:
    """Prints a line on standard error, also with --quiet: for what a person has to act on.

    A line that cannot be shown is dropped. It is no reason to stop. Of several processes of a run only one prints.
    """
    with _lock:
        end_status()
        _write(f"{line}\n")


def status(line: str) -> None:
    """Shows a line on a terminal in place of the status before. The next line that is said takes its place."""
    global _standing
    if _level >= Level.USUAL and is_terminal(sys.stderr):
        with _lock:
            _write(f"\r\033[K{cut(line, columns(sys.stderr) - 1)}")
            _standing = True


def end_status() -> None:
    """Takes the status away, so that the next line begins at the margin."""
    global _standing
    if _standing:
        with _lock:
            _standing = False
            _write("\r\033[K")


def _write(text: str) -> None:
    if sys.stderr is not None and group.writes():  # as where it is closed; print would take None for standard output
        with contextlib.suppress(OSError):
            print(text, end="", file=sys.stderr, flush=True)


Shown = bool | Literal["brief"]  # whether to show progress; brief: in a line that vanishes at the end


class Progress:
    """A line that says how far, how fast and how much longer: rewritten on a terminal, repeated in a log file.

    The time left is that at the speed of the last minutes. Time spent in `aside` is not part of the speed. Where it comes
    again, as a validation does, its share of what is left is added.
    """

    def __init__(
        self,
        total: int,
        done: int = 0,
        unit: str = "tokens",
        brief: bool = False,
        spell_speed: Callable[[float], str] | None = None,
    ) -> None:
        """
        Args:
            total: what there is to do, in units.
            done: what was done before.
            unit: its name.
            brief: the line vanishes at the end, and work that is done soon has no line in a log file.
            spell_speed: returns units a second as text; None: with the name of the unit.
        """
        self.total, self.first, self.unit, self.brief = total, done, unit, brief
        self.began = self.printed = time.monotonic()
        self.terminal = is_terminal(sys.stderr)
        self._spell_speed = spell_speed or (lambda speed: f"{speed:,.0f} {unit}/s")
        self._recent = RecentSpeed()
        self._skipped = 0.0  # seconds in `aside`
        self._recurring = 0.0  # of these, what comes again

    def show(self, done: int, text: str, final: bool = False, describe: Callable[[float], str] | None = None) -> None:
        """Shows the line if it is due.

        Args:
            done: How much of the total is done, in units.
            text: What stands before the speed and the time left.
            final: Whether this is the last line, which is always due. Its speed is that of the whole work.
            describe: Makes the end of the line from the speed, in units a second.
        """
        now = time.monotonic()
        self._recent.add(now, done)
        if final and self.brief:
            end_status()
            return
        due = 0.2 if self.terminal else LOG_EVERY_SECONDS
        if not final and now - self.printed < due:
            return
        self.printed = now
        mean = (done - self.first) / max(now - self.began - self._skipped, 1e-9)
        speed = mean if final else self._recent.speed(mean)
        left = f"{clock(self._seconds_left(done, speed))} left"
        parts = [text, self._spell_speed(speed), left]
        end = describe(speed) if describe else ""
        if self.terminal and not final:
            status(_fitting([*text.split("  "), *parts[1:]], end, columns(sys.stderr) - 1))
        else:
            say("  ".join(parts) + end)

    @contextlib.contextmanager
    def aside(self, recurs: bool = False) -> Iterator[None]:
        """Does not count the time spent within it as part of the speed.

        Args:
            recurs: it will be spent again and again, in proportion to what is done.
        """
        since = time.monotonic()
        yield
        spent = time.monotonic() - since
        self._recent.skip(spent)
        self._skipped += spent
        self._recurring += spent if recurs else 0

    def _seconds_left(self, done: int, speed: float) -> float:
        rest = self.total - done
        aside = self._recurring / (done - self.first) if done > self.first else 0.0
        return rest / speed + aside * rest if speed else 0.0


@contextlib.contextmanager
def working(what: str) -> Iterator[None]:
    """Shows that something goes on of which nobody can say how far it is. What is done soon is not mentioned.

    Args:
        what: such as "loading the model".
    """
    began, ended = time.monotonic(), threading.Event()

    def show() -> None:
        said = began
        while not ended.wait(1.0):
            now = time.monotonic()
            if is_terminal(sys.stderr):
                status(f"{what}  {clock(now - began)}")
            elif now - said >= LOG_EVERY_SECONDS:
                said = now
                say(f"{what}  {clock(now - began)} so far")

    shown = threading.Thread(target=show, daemon=True) if _level >= Level.USUAL else None
    if shown is not None:
        shown.start()
    try:
        yield
    finally:
        ended.set()
        if shown is not None:
            shown.join()
        end_status()
    detail(f"{what}: {time.monotonic() - began:.1f} s")


@contextlib.contextmanager
def stage(what: str) -> Iterator[None]:
    """Says what is begun, and then does what `working` does."""
    say(what)
    with working(what):
        yield


def is_terminal(stream: Any) -> bool:
    """Returns whether a stream is a terminal whose lines can be written over."""
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"


def has_styles(stream: Any) -> bool:
    """Returns whether bold letters and colours may be written: NO_COLOR forbids and FORCE_COLOR demands them.

    Without them, only a terminal gets them. An empty variable counts as none, and FORCE_COLOR=0 as a no.
    """
    if os.environ.get("NO_COLOR"):
        return False
    if forced := os.environ.get("FORCE_COLOR"):
        return forced != "0"
    return is_terminal(stream)


def columns(stream: Any) -> int:
    """Returns how wide a terminal is: as COLUMNS says, or else as the terminal itself says."""
    asked = os.environ.get("COLUMNS", "")
    width = int(asked) if asked.isdecimal() else 0
    if not width:
        try:
            width = os.get_terminal_size(stream.fileno()).columns
        except (OSError, ValueError):
            width = 0
    return max(width or USUAL_COLUMNS, NARROWEST)


def cut(line: str, width: int) -> str:
    """Returns a line, or its beginning where it is too long."""
    return line if len(line) <= width else f"{line[: width - 3]}..."


def clock(seconds: float) -> str:
    """Returns seconds as h:mm:ss or m:ss."""
    minutes, seconds = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def counted(number: int, one: str, several: str | None = None) -> str:
    """Returns a number with the name of what is counted: "1 pair", "2,000 pairs".

    Args:
        number: of things.
        one: what one of them is called.
        several: what any other number of them is called; None: `one` and an s.
    """
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"


def _fitting(parts: list[str], end: str, width: int) -> str:
    """Returns parts of a line, side by side, and leaves out what does not fit.

    Args:
        parts: at last the speed and the time left, which stays longest.
        end: it is left out first, then the speed, and then the parts from the second one on.
    """
    line = "  ".join(parts)
    if len(line) + len(end) <= width:
        return line + end
    *kept, speed, left = parts
    line = "  ".join(parts)
    while len(line) > width and (speed or len(kept) > 1):
        if speed:
            speed = ""
        else:
            kept.pop()
        line = "  ".join([*kept, *([speed] if speed else []), left])
    return cut(line, width)
