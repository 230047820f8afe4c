"""Output on standard error while a command works: messages, warnings and one line of progress.

On a terminal, the progress line is overwritten; other lines replace it. Log files and pipes only
get whole lines.
"""

import codecs
import contextlib
import io
import json
import os
import shutil
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, Literal

from esnlm.base import processes

# between lines of progress: in a log, on a terminal
LOG_EVERY_SECONDS, SHOW_EVERY_SECONDS = (
    15.0,
    0.2,
)
SPEED_SECONDS = 60.0  # the speed, and the time left, are those of the last minute
CLEAR = "\r\033[K"  # erases the current line of a terminal
# name of the error handler for characters that standard output cannot encode
ESCAPE = "esnlm.escape"


class Level(IntEnum):
    """How much is printed on standard error."""

    QUIET = 0  # warnings and errors
    USUAL = 1
    VERBOSE = 2  # also automatic choices and the time of each stage


_level = Level.USUAL
_has_status = False  # whether the terminal shows a line to be overwritten
_lock = threading.RLock()  # a signal handler and `working` may print at any moment


@contextlib.contextmanager
def speaking(level: Level) -> Iterator[None]:
    """Sets the output level within the block."""
    global _level
    before, _level = _level, level
    try:
        yield
    finally:
        _level = before


def say(line: str) -> None:
    """Prints a line on standard error (standard output is for results), except with --quiet."""
    if _level >= Level.USUAL:
        tell(line)


def detail(line: str) -> None:
    """Prints a line with --verbose only."""
    if _level >= Level.VERBOSE:
        tell(line)


def warn(line: str) -> None:
    """Prints a line that begins with "warning: ", also with --quiet."""
    tell(f"warning: {line}")


def tell(line: str) -> None:
    """Prints a line on standard error, also with --quiet. Only one process of a run prints."""
    with _lock:
        end_status()
        if sys.stderr is not None and processes.is_rank0():
            with contextlib.suppress(OSError):
                print(line, file=sys.stderr, flush=True)


def status(line: str) -> None:
    """Shows a status line on a terminal in place of the one before. The next printed line replaces
    it."""
    global _has_status
    if _level < Level.USUAL or not is_terminal(sys.stderr) or not processes.is_rank0():
        return
    with _lock, contextlib.suppress(OSError):
        print(
            CLEAR + line[: shutil.get_terminal_size().columns - 1],
            end="",
            file=sys.stderr,
            flush=True,
        )
        _has_status = True


def end_status() -> None:
    """Erases the status line, so that the next line begins at the margin."""
    global _has_status
    with _lock, contextlib.suppress(OSError):
        if _has_status:
            _has_status = False
            print(CLEAR, end="", file=sys.stderr, flush=True)


# whether to show progress; brief: in a line that is erased at the end
Shown = bool | Literal["brief"]


class Progress:
    """Shows progress, speed and time left: an overwritten line on a terminal, or lines in a log
    file.

    With `brief`, the line is erased at the end, and short work prints no line in a log file.
    """

    def __init__(
        self, total: int, done: int = 0, unit: str = "tokens", brief: bool = False
    ) -> None:
        self.total, self.unit, self.brief = total, unit, brief
        self._aside = 0.0  # seconds
        self._began = self._now(), done
        self._recent = deque([self._began])  # (seconds, done) of the last minute
        self._printed = time.monotonic()

    def show(self, done: int, text: str, final: bool = False) -> None:
        """Shows the line if it is due: `text`, the speed and the time left.

        The `final` line is always due. It has the mean speed of the whole work.
        """
        now = self._now()
        if not final and now - self._recent[-1][0] < SHOW_EVERY_SECONDS:
            return
        while now - self._recent[0][0] > SPEED_SECONDS and len(self._recent) > 1:
            self._recent.popleft()
        then, before = self._began if final else self._recent[0]
        self._recent.append((now, done))
        speed = (done - before) / max(now - then, 1e-9)
        left = f"{clock((self.total - done) / speed)} left" if speed else ""
        line = f"{text}  {speed:,.0f} {self.unit}/s  {left}"
        if final and self.brief:
            end_status()
        elif is_terminal(sys.stderr) and not final:
            status(line)
        elif final or time.monotonic() - self._printed >= LOG_EVERY_SECONDS:
            self._printed = time.monotonic()
            say(line)

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Excludes the time spent in the block from the speed."""
        since = time.monotonic()
        yield
        self._aside += time.monotonic() - since

    def _now(self) -> float:
        return time.monotonic() - self._aside


@contextlib.contextmanager
def working(what: str) -> Iterator[None]:
    """Shows elapsed time for work of unknown length, such as "loading the model". Short work prints
    nothing."""
    began, ended = time.monotonic(), threading.Event()

    def show() -> None:
        while not ended.wait(1.0 if is_terminal(sys.stderr) else LOG_EVERY_SECONDS):
            line = f"{what}  {clock(time.monotonic() - began)}"
            if is_terminal(sys.stderr):
                status(line)
            else:
                say(f"{line} so far")

    shown = threading.Thread(target=show, daemon=True)
    shown.start()
    try:
        yield
    finally:
        ended.set()
        shown.join()
        end_status()
    detail(f"{what}: {time.monotonic() - began:.1f} s")


@contextlib.contextmanager
def stage(what: str) -> Iterator[None]:
    """Prints the name of the work, and then acts as `working`."""
    say(what)
    with working(what):
        yield


def escape_unencodable() -> None:
    """Makes standard output print characters that its encoding lacks as escapes, such as \\u4e2d,
    with one warning.

    Escapes are those of JSON, so that JSON Lines stay valid. Standard error escapes by itself, as
    Python does.
    """
    stream = sys.stdout
    if not isinstance(stream, io.TextIOWrapper) or stream.errors not in (
        "strict",
        "surrogateescape",
    ):
        return  # a notebook's stream takes any text; other handlers are the user's choice
    has_warned = False

    def escape(error: UnicodeError) -> tuple[str | bytes, int]:
        nonlocal has_warned
        assert isinstance(error, UnicodeEncodeError), "standard output only encodes"
        escapes = json.dumps(error.object[error.start : error.end])[1:-1]  # without quotation marks
        if not has_warned:
            has_warned = True
            warn(
                f"standard output is in {error.encoding}, which lacks"
                f" {ascii(error.object[error.start])}: such characters are printed as escapes"
                " (PYTHONIOENCODING=utf-8 prints them)"
            )
        return escapes, error.end

    codecs.register_error(ESCAPE, escape)
    stream.reconfigure(errors=ESCAPE)


def is_terminal(stream: Any) -> bool:
    """Returns whether a stream is a terminal whose lines can be overwritten."""
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"


def clock(seconds: float) -> str:
    """Formats seconds as h:mm:ss or m:ss."""
    minutes, seconds = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def counted(number: int, one: str, several: str | None = None) -> str:
    """Formats a count with its noun: "1 pair", "2,000 pairs"; `several` is an irregular plural."""
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"
