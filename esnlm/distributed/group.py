"""The processes of one run, as the rest of the package sees them: which one this is, and what they agree on.

A process alone is process 0 of 1, and everything here then costs nothing and changes nothing. Of several processes
(distributed/start.py) all make the same calls of JAX in the same order. Whatever decides which calls they make is therefore
process 0's decision: `agree` asks for it. Only process 0 writes files and lines, `writes` says so.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import TypeVar

from esnlm.distributed.channel import Channel, ProcessEnded
from esnlm.errors import InputError

Value = TypeVar("Value")

_channel: Channel | None = None  # None: this process is alone
_ended = False  # this process has told the others how it ends
_at_the_end: Callable[[], None] | None = None


def enter(channel: Channel, at_the_end: Callable[[], None]) -> None:
    """Makes this process one of several, until `finish`, which calls `at_the_end` when all have come to their end."""
    global _channel, _at_the_end
    _channel, _at_the_end = channel, at_the_end


def index() -> int:
    """Returns the number of this process, 0 where it is alone."""
    return 0 if _channel is None else _channel.index


def count() -> int:
    """Returns how many processes there are."""
    return 1 if _channel is None else _channel.count


def writes() -> bool:
    """Returns whether this is the process that writes files and lines: process 0."""
    return index() == 0


def agree(value: Value) -> Value:
    """Returns process 0's value in every process. It is what JSON can hold; process 0 does not wait for the others."""
    return value if _channel is None else _channel.agree(value)


def any_asked_to_stop(asked: bool) -> bool:
    """Returns, in all processes alike, whether process 0 knows of a process that was asked to stop.

    Another process that was asked tells process 0, which may know of it at the next call only.
    """
    if _channel is None:
        return asked
    if asked and _channel.index != 0:
        _channel.ask_to_stop()
    return _channel.agree(asked or _channel.stop_asked)


@contextlib.contextmanager
def in_turn() -> Iterator[None]:
    """Lets process 0 do what is within it first, and then the others, which read what it wrote. Process 0 waits for them.

    Where one of the others refuses its input, process 0 raises the same InputError.
    """
    if _channel is None:
        yield
    elif _channel.index == 0:
        yield
        _channel.tell("your turn")
        _channel.await_message("done with it")
    else:
        _channel.await_message("your turn")
        yield
        _channel.tell("done with it")


def meet() -> None:
    """Waits until all processes are here."""
    with in_turn():
        pass


@contextlib.contextmanager
def written_by_first() -> Iterator[bool]:
    """Yields whether this process writes. The others wait until process 0 has written.

    They wait here, without a limit, and not in the next collective operation, where nothing could tell them why it takes
    so long, and where a library may give up. Process 0 writes to the end although another process was lost meanwhile.
    """
    if _channel is None:
        yield True
    elif _channel.index == 0:
        with _channel.valuable():
            yield True
        _channel.agree(None)
    else:
        yield False
        _channel.agree(None)


def finish() -> None:
    """Waits for the end of all processes, where there are others and none has failed."""
    if _channel is not None and not _ended:
        _channel.finish()
        if _at_the_end is not None:
            _at_the_end()
        _leave()


def left() -> bool:
    """Returns whether this process has told others that it ends, and must leave without JAX's own end."""
    return _ended


def fail(status: int, line: str) -> None:
    """Ends the other processes, if there are any.

    Args:
        status: that this process ends with; the others end with it, too.
        line: what was wrong; they say it.
    """
    global _ended
    if _channel is not None and not _ended:
        _ended = True
        _channel.fail(status, line)


def reason() -> ProcessEnded | InputError | KeyboardInterrupt | None:
    """Returns the end of another process, which may be behind an error of JAX; None where all live on.

    It may be known a little later than the error, and is waited for. A KeyboardInterrupt says that the other one was asked to stop.
    """
    if _channel is None:
        return None
    try:
        _channel.require_all_there(patience=5.0)
    except (ProcessEnded, InputError, KeyboardInterrupt) as ended:
        return ended
    return None


def _leave() -> None:
    global _channel, _at_the_end
    if _channel is not None:
        _channel.close()
    _channel = _at_the_end = None
