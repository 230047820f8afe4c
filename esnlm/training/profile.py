"""A trace of what the host and the device do during some updates, written by JAX's profiler
(`train.py --profile`)."""

import re
from pathlib import Path
from typing import NamedTuple

import jax
from jax.profiler import ProfileOptions

from esnlm.distributed import group
from esnlm.errors import InputError
from esnlm.io.console import say, warn


class Span(NamedTuple):
    """The updates to trace, counted from 1 over the whole run."""

    first: int
    last: int


def parse_span(text: str) -> Span:
    """Returns the updates of "FROM:TO". Raises InputError for anything else."""
    words = re.fullmatch(r"(\d{1,12}):(\d{1,12})", text, re.ASCII)
    span = Span(*map(int, words.groups())) if words else Span(0, 0)
    if not 1 <= span.first <= span.last:
        raise InputError(
            f"--profile {text}: give the first and the last update, from 1, as in --profile 100:110"
        )
    return span


class Profile:
    """Traces some updates of a run into a folder. Leaving the `with` block writes a trace under
    way.

    A trace that fails gives a warning and does not end the run. With several processes, only
    process 0 traces.
    """

    def __init__(self, span: Span | None, folder: Path) -> None:
        self.span, self.folder, self.tracing = span, folder, False

    def __enter__(self) -> "Profile":
        return self

    def __exit__(self, *exception: object) -> None:
        if self.tracing:
            self.switch()

    def is_due(self, step: int) -> bool:
        """Returns whether the trace begins or ends after update `step`."""
        return self.span is not None and step == (
            self.span.last if self.tracing else self.span.first - 1
        )

    def switch(self) -> None:
        """Begins the trace, or writes it and prints how to view it."""
        if not group.writes():
            return
        options = ProfileOptions()
        options.python_tracer_level = (
            0  # Python's own calls would fill most of the file, and run slower.
        )
        was_tracing, self.tracing = self.tracing, False
        try:
            if was_tracing:
                jax.profiler.stop_trace()
                say(f"profile: {self.folder}: open its *.trace.json.gz at https://ui.perfetto.dev")
            else:
                jax.profiler.start_trace(self.folder, profiler_options=options)
                self.tracing = True
        except (OSError, RuntimeError) as error:
            warn(f"{self.folder}: no profile: {error}")
