"""Messages on standard error, and one line of progress.

Messages go to the logger "esnlm". On a terminal the line of progress is overwritten, and messages
replace it. Log files and pipes only get whole lines.
"""

import codecs
import contextlib
import io
import json
import logging
import os
import shutil
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, Literal

from esnlm.base import processes

LOG_EVERY_SECONDS = 15.0  # between lines of progress in a log file
SHOW_EVERY_SECONDS = 0.2  # ... on a terminal
SPEED_SECONDS = 60.0  # the speed, and the time left, are those of the last minute
CLEAR = "\r\033[K"  # erases the current line of a terminal
ESCAPE = "esnlm.escape"  # handles characters that the encoding of standard output lacks
NOTICE = logging.WARNING + 5  # level of messages that --quiet prints, too

log = logging.getLogger("esnlm")
debug, info, warn = log.debug, log.info, log.warning

_has_status = False  # whether the terminal shows a line to be overwritten
_lock = threading.RLock()  # a signal handler and `spinner` may print at any moment


def notice(line: str) -> None:
    """Prints a line that is neither a warning nor left out by --quiet."""
    log.log(NOTICE, line)


class _Lines(logging.Handler):
    """Prints each message as a line, in one process of a run."""

    def emit(self, record: logging.LogRecord) -> None:
        prefix = "warning: " if record.levelno == logging.WARNING else ""
        with _lock:
            end_status()
            if sys.stderr is not None and processes.is_rank0():
                with contextlib.suppress(OSError):
                    print(prefix + record.getMessage(), file=sys.stderr, flush=True)


log.addHandler(_Lines())
log.setLevel(logging.INFO)
log.propagate = False


@contextlib.contextmanager
def verbosity(level: int) -> Iterator[None]:
    """Sets the lowest level that is printed within the block."""
    before = log.level
    log.setLevel(level)
    try:
        yield
    finally:
        log.setLevel(before)


def status(line: str) -> None:
    """Shows a status line on a terminal. The next status or message replaces it."""
    global _has_status
    if not (log.isEnabledFor(logging.INFO) and is_terminal(sys.stderr) and processes.is_rank0()):
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


# Whether to show progress; brief: in a line that is erased at the end.
ShowProgress = bool | Literal["brief"]


class Progress:
    """Shows progress, speed and time left: one line on a terminal, lines in a log file.

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
            info(line)

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Excludes the time spent in the block from the speed."""
        since = time.monotonic()
        yield
        self._aside += time.monotonic() - since

    def _now(self) -> float:
        return time.monotonic() - self._aside


@contextlib.contextmanager
def spinner(work: str, announce: bool = False) -> Iterator[None]:
    """Shows elapsed time for work of unknown length, such as "loading the model".

    Short work prints nothing, unless its beginning is announced.
    """
    if announce:
        info(work)
    began, ended = time.monotonic(), threading.Event()

    def show() -> None:
        while not ended.wait(1.0 if is_terminal(sys.stderr) else LOG_EVERY_SECONDS):
            line = f"{work}  {clock(time.monotonic() - began)}"
            if is_terminal(sys.stderr):
                status(line)
            else:
                info(f"{line} so far")

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        end_status()
    debug(f"{work}: {time.monotonic() - began:.1f} s")


def escape_unencodable() -> None:
    """Prints characters that the encoding of standard output lacks as escapes, with one warning.

    Escapes are those of JSON (\\u4e2d), so that JSON Lines stay valid. Standard error escapes
    by itself, as Python does.
    """
    stream = sys.stdout
    # A notebook's stream takes any text, and other handlers are the user's choice.
    is_strict = getattr(stream, "errors", None) in ("strict", "surrogateescape")
    if not (isinstance(stream, io.TextIOWrapper) and is_strict):
        return
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
