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

    Args:
        span: the updates; None: nothing is traced.
        folder: of the run, for traces.
    """

    def __init__(self, span: Span | None, folder: Path) -> None:
        self.first: int | None = None if span is None else span.first
        self.last: int | None = None if span is None else span.last
        self.folder, self.tracing = folder, False

    def __enter__(self) -> "Profile":
        return self

    def __exit__(self, *exception: object) -> None:
        if self.tracing:
            warn(f"the profile ends before update {self.last}")
            self.end()

    def require_updates(self, updates: int) -> None:
        """Raises InputError if a run has fewer updates; a regression has 0."""
        if self.last is not None and self.last > updates:
            raise InputError(f"--profile {self.first}:{self.last}: this run has {updates:,} updates")

    def warn_if_done(self, step: int) -> None:
        """Warns if a run goes on from update `step` and the updates that should be traced have begun before."""
        if self.first is not None and step >= self.first and not self.folder.exists():
            warn(f"no profile: update {self.first} is done already; the run is at update {step}")

    def begins_after(self, step: int) -> bool:
        """Returns whether a trace begins now, after update `step`."""
        return self.first is not None and step == self.first - 1 and not self.tracing

    def ends_after(self, step: int) -> bool:
        """Returns whether the trace ends now, after update `step`."""
        return self.tracing and step == self.last

    def begin(self) -> None:
        """Begins the trace. Of several processes only process 0 has one."""
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
        say(f"profile of updates {self.first}:{self.last}: {written}: open it at https://ui.perfetto.dev, or")
        say(f"with tensorboard --logdir {self.folder} (its plugin is the package xprof)")
