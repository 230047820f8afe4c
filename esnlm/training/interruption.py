"""Stopping on a signal such as SIGTERM or Ctrl-C: at once, or after the updates under way."""

import contextlib
import os
import signal
import stat
import threading
from collections.abc import Iterator
from types import FrameType

from esnlm.distributed import group
from esnlm.io.console import tell

# Signals of a closed terminal, and of SLURM before a job's time is over (sbatch --signal=USR1@60).
OTHERS = (signal.SIGHUP, signal.SIGUSR1)


class Interruption:
    """True once the process was asked to stop, or once any process of the run was."""

    def __init__(self, ends_process: bool = True) -> None:
        self.ends_process = (
            ends_process  # at a second SIGINT; otherwise that raises KeyboardInterrupt
        )
        self.asked = False
        self.must_wait = False

    def __bool__(self) -> bool:
        return group.any_asked_to_stop(self.asked)

    @contextlib.contextmanager
    def awaited(self) -> Iterator[None]:
        """Within this context a signal raises nothing, so that the run can save before it ends."""
        self.must_wait = True
        try:
            yield
        finally:
            self.must_wait = False

    def stop(self) -> None:
        """Asks the run to stop, in all processes."""
        self.asked = True
        if group.count() > 1:
            signal.raise_signal(signal.SIGTERM)  # JAX handles it and informs the other processes.

    def ask(self, number: int, frame: FrameType | None) -> None:
        """Handles a signal: raises KeyboardInterrupt, or remembers it; a second SIGINT ends the
        process at once."""
        if self.asked and number == signal.SIGINT:
            if not self.ends_process:
                raise KeyboardInterrupt
            os._exit(130)
        if number == signal.SIGHUP:
            _leave_terminal()
        asked_before = self.asked
        self.stop()
        if not self.must_wait and group.count() == 1:
            raise KeyboardInterrupt
        if not asked_before:
            tell("\nstopping after this update; Ctrl-C again leaves at once, without saving")


@contextlib.contextmanager
def interruptible(ends_process: bool = True) -> Iterator[Interruption]:
    """Handles SIGTERM, SIGINT and OTHERS within this context and yields an Interruption. It needs
    the main thread."""
    interruption = Interruption(ends_process)
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    numbers = [
        signal.SIGINT,
        *(each for each in OTHERS if signal.getsignal(each) != signal.SIG_IGN),
    ]  # as under nohup
    if group.count() == 1:  # With several processes JAX's own handler informs all of them.
        numbers.append(signal.SIGTERM)
    before = {number: signal.signal(number, interruption.ask) for number in numbers}
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave_terminal() -> None:
    """Discards output to a terminal that is gone, since writing there would fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        if stat.S_ISCHR(os.fstat(stream).st_mode):
            os.dup2(nowhere, stream)
