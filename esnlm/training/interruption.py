"""Stopping between two updates when SIGTERM or Ctrl-C asks for it."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator


class Interruption:
    """True once the process was asked to stop."""

    def __init__(self):
        self.asked = False

    def __bool__(self) -> bool:
        return self.asked


@contextlib.contextmanager
def interruptible() -> Iterator[Interruption]:
    """Within it, SIGTERM and SIGINT set the flag instead of ending the process; a second SIGINT ends it at once."""
    interruption = Interruption()

    def ask(number, frame):
        if interruption.asked and number == signal.SIGINT:
            os._exit(130)
        if not interruption.asked:
            print("\nstopping after this update; Ctrl-C again leaves at once, without saving", file=sys.stderr, flush=True)
        interruption.asked = True

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
