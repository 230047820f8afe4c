"""A trace of what the host and the device do during some updates, written by JAX's profiler (`train.py --profile`)."""

import re
from pathlib import Path
from typing import NamedTuple

import jax
from jax.profiler import ProfileOptions

from esnlm.distributed import group
from esnlm.errors import InputError
from esnlm.io.console import say, warn


class Span(NamedTuple):
    """The updates that are to be traced, counted from 1 over the whole run."""

    first: int
    last: int


def parse_span(text: str) -> Span:
    """Returns the updates of "FROM:TO". Raises InputError for anything else."""
    words = re.fullmatch(r"(\d{1,12}):(\d{1,12})", text, re.ASCII)
    span = Span(*map(int, words.groups())) if words else Span(0, 0)
    if not 1 <= span.first <= span.last:
        raise InputError(f"--profile {text}: give the first and the last update, from 1, as in --profile 100:110")
    return span


class Profile:
    """Traces some updates of a run into a folder. Within `with`, a trace that was begun is always written.

    What cannot be traced is a warning, and does not end a run.
    """

    def __init__(self, span: Span | None, folder: Path) -> None:
        self.span, self.folder = span, folder
        self.tracing, self.begun = False, False

    def __enter__(self) -> "Profile":
        return self

    def __exit__(self, *exception: object) -> None:
        if self.tracing:
            warn("the profile ends before its last update")
            self.end()
        self.warn_if_missing()

    def warn_if_missing(self) -> None:
        """Warns if the updates that should be traced were none of those that this process made."""
        if self.span is not None and not self.begun and not self.folder.exists():
            warn(f"no profile: update {self.span.first} was not made here: it was done already, or is not reached")

    def begins_after(self, step: int) -> bool:
        """Returns whether a trace begins now, after update `step`."""
        return self.span is not None and step == self.span.first - 1 and not self.tracing

    def ends_after(self, step: int) -> bool:
        """Returns whether the trace ends now, after update `step`."""
        return self.tracing and self.span is not None and step == self.span.last

    def begin(self) -> None:
        """Begins the trace. Of several processes only process 0 has one."""
        self.begun = True
        if not group.writes():
            return
        options = ProfileOptions()
        options.python_tracer_level = 0  # Python's own calls would be most of the file, and slower for being traced.
        try:
            self.folder.mkdir(exist_ok=True)
            jax.profiler.start_trace(self.folder, profiler_options=options)
            self.tracing = True
        except (OSError, RuntimeError) as error:
            warn(f"{self.folder}: no profile: {error}")

    def end(self) -> None:
        """Writes the trace, and says how to look at it."""
        self.tracing = False
        try:
            jax.profiler.stop_trace()
            written = max(self.folder.glob("plugins/profile/*/*.trace.json.gz"))  # the file that Perfetto opens
        except (OSError, RuntimeError, ValueError) as error:
            warn(f"{self.folder}: the profile was not written: {error}")
            return
        say(f"profile: {written}: open it at https://ui.perfetto.dev, or with tensorboard --logdir {self.folder}")
