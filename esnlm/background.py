"""Runs work in another thread: what cannot be interrupted, so that Ctrl-C and SIGTERM need not wait for it, and what is needed later.

XLA compiles without looking at signals. Python's handlers run in the main thread, which waits here and can leave at once.
A thread inside XLA cannot be ended, and Python would crash where it shuts down beside one. So the process is then left
without Python's own end, by `leave`.
"""

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

Result = TypeVar("Result")

SLOW = 2.0  # seconds after which a person wonders what is going on

# An interrupted Thread.join takes its thread for ended in Python 3.11. So events say what goes on.
_unfinished: set[threading.Event] = set()


def run(work: Callable[[], Result], slow: Callable[[], None] | None = None) -> Result:
    """Returns what `work` returns, or raises what it raises. What a signal handler raises meanwhile is raised at once.

    Args:
        work: runs in another thread.
        slow: is called once where the work takes longer than SLOW seconds.
    """
    outcome: dict[str, Any] = {}
    done = threading.Event()

    def keep() -> None:
        try:
            outcome["result"] = work()
        except BaseException as error:
            outcome["error"] = error
        finally:
            _unfinished.discard(done)
            done.set()

    _unfinished.add(done)
    threading.Thread(target=keep, daemon=True).start()
    if not done.wait(SLOW) and slow is not None:
        slow()
    while not done.wait(1.0):  # A wait without a limit cannot be interrupted on every system.
        pass
    if "error" in outcome:
        raise outcome["error"]
    return outcome["result"]


def begin(work: Callable[[], Result]) -> Future[Result]:
    """Begins work whose result is asked for later, or never: the end of the process does not wait for it.

    It must not enter XLA (see above).
    """
    future: Future[Result] = Future()

    def keep() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=keep, daemon=True).start()
    return future


def leave_behind() -> None:
    """Lets `leave` end the process without Python's own end: other work cannot come to its end, and nobody waits for it."""
    _unfinished.add(threading.Event())


def leave(status: int) -> int:
    """Returns the exit status of a process; where work was left behind, it ends the process with it instead."""
    if _unfinished:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status
