"""Stops a training on a signal such as SIGTERM or Ctrl-C, and traces some of its updates."""

import contextlib
import os
import re
import signal
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import jax
from jax.profiler import ProfileOptions

from esnlm.base import processes
from esnlm.base.console import info, notice, warn
from esnlm.base.errors import InputError

# Signals of a closed terminal, and of SLURM before a job's time is over (sbatch --signal=USR1@60).
OTHERS = (signal.SIGHUP, signal.SIGUSR1)


class Interruption:
    """True once the process was asked to stop, or once any process of the run was."""

    def __init__(self, owns_process: bool = True) -> None:
        # at a second SIGINT; otherwise that raises KeyboardInterrupt
        self.owns_process = owns_process
        self.requested = False
        self.must_wait = False

    def __bool__(self) -> bool:
        return processes.any_asked_to_stop(self.requested)

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
        self.requested = True
        if processes.count() > 1:
            signal.raise_signal(signal.SIGTERM)  # JAX handles it and informs the other processes.

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Handles a signal: raises KeyboardInterrupt, or remembers it.

        A second SIGINT ends the process at once.
        """
        if self.requested and number == signal.SIGINT:
            if not self.owns_process:
                raise KeyboardInterrupt
            os._exit(130)
        if number == signal.SIGHUP:
            _leave_terminal()
        was_requested = self.requested
        self.stop()
        if not self.must_wait and processes.count() == 1:
            raise KeyboardInterrupt
        if not was_requested:
            notice("\nstopping after this update; Ctrl-C again leaves at once, without saving")


@contextlib.contextmanager
def interruptible(owns_process: bool = True) -> Iterator[Interruption]:
    """Handles SIGTERM, SIGINT and OTHERS in this context, which needs the main thread."""
    interruption = Interruption(owns_process)
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    numbers = [
        signal.SIGINT,
        *(each for each in OTHERS if signal.getsignal(each) != signal.SIG_IGN),
    ]  # as under nohup
    if processes.count() == 1:  # With several processes JAX's own handler informs all of them.
        numbers.append(signal.SIGTERM)
    before = {number: signal.signal(number, interruption.handle) for number in numbers}
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


# A trace of what the host and the device do during some updates, written by JAX's profiler
# (`train.py --profile`).


def parse_span(text: str) -> range:
    """Returns the updates of "FROM:TO", counted from 1. Raises InputError for anything else."""
    words = re.fullmatch(r"(\d{1,12}):(\d{1,12})", text, re.ASCII)
    first, last = map(int, words.groups()) if words else (0, 0)
    if not 1 <= first <= last:
        raise InputError(
            f"--profile {text}: give the first and the last update, from 1, as in --profile 100:110"
        )
    return range(first, last + 1)


class Profile:
    """Traces some updates of a run into a folder.

    Leaving the `with` block writes a trace under way.

    A trace that fails gives a warning and does not end the run. With several processes, only
    process 0 traces.
    """

    def __init__(self, traced: range | None, folder: Path) -> None:
        self.traced, self.folder, self.tracing = traced, folder, False

    def __enter__(self) -> "Profile":
        return self

    def __exit__(self, *exception: object) -> None:
        if self.tracing:
            self.switch()

    def is_due(self, step: int) -> bool:
        """Returns whether the trace begins or ends after update `step`."""
        if self.traced is None:
            return False
        return step == (self.traced[-1] if self.tracing else self.traced[0] - 1)

    def switch(self) -> None:
        """Begins the trace, or writes it and prints how to view it."""
        if not processes.is_rank0():
            return
        options = ProfileOptions()
        # Python's own calls would fill most of the file, and run slower.
        options.python_tracer_level = 0
        was_tracing, self.tracing = self.tracing, False
        try:
            if was_tracing:
                jax.profiler.stop_trace()
                info(f"profile: {self.folder}: open its *.trace.json.gz at https://ui.perfetto.dev")
            else:
                jax.profiler.start_trace(self.folder, profiler_options=options)
                self.tracing = True
        except (OSError, RuntimeError) as error:
            warn(f"{self.folder}: no profile: {error}")
