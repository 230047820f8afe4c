"""What --verbose says of a whole command: the programs that XLA compiled for it, and the time that it took."""

import contextlib
import time
from collections.abc import Iterator

from esnlm.io.console import Level, clock, detail, level

WORTH_A_LINE = 0.5  # seconds of compilation


@contextlib.contextmanager
def timed(program: str) -> Iterator[None]:
    """Says, with --verbose, what compiled within it and how long all of it took."""
    if level() < Level.VERBOSE:
        yield
        return
    from esnlm.compilation_cache import compilations

    began, compiled = time.monotonic(), [0, 0.0]

    def note(name: str, seconds: float) -> None:
        compiled[0], compiled[1] = compiled[0] + 1, compiled[1] + seconds
        if seconds >= WORTH_A_LINE:
            detail(f"compiled {name} in {seconds:.1f} s")

    with compilations(note):
        try:
            yield
        finally:
            programs = f"{compiled[0]:.0f} programs compiled or read in {compiled[1]:.1f} s"
            detail(f"{program}: {clock(time.monotonic() - began)}, {programs}")
