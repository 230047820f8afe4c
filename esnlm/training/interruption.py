"""Stopping when SIGTERM or Ctrl-C asks for it: at once, or where updates are under way, between two of them."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator


class Interruption:
    """True once the process was asked to stop."""

    def __init__(self):
        self.asked = self.patient = False

    def __bool__(self) -> bool:
        return self.asked

    @contextlib.contextmanager
    def awaited(self) -> Iterator[None]:
        """Within it, who asks must wait: only the flag is set, as there is something to save first."""
        self.patient = True
        try:
            yield
        finally:
            self.patient = False


@contextlib.contextmanager
def interruptible() -> Iterator[Interruption]:
    """Within it, SIGTERM and SIGINT raise KeyboardInterrupt, or set the flag; a second SIGINT ends the process at once."""
    interruption = Interruption()

    def ask(number, frame):
        if interruption.asked and number == signal.SIGINT:
            os._exit(130)
        asked, interruption.asked = interruption.asked, True
        if not interruption.patient:
            raise KeyboardInterrupt
        if not asked:
            print(
                "\nstopping after this update; Ctrl-C again leaves at once, without saving", file=sys.stderr, flush=True
            )

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
