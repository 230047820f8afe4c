"""A trace of what the host and the device do during some updates, written by JAX's profiler (`train.py --profile`)."""

import gzip
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import jax
from jax.profiler import ProfileOptions

from esnlm.distributed import group
from esnlm.errors import InputError
from esnlm.io.console import say, warn

LONGEST = 10  # operations that are named
# What these do is done by other operations, which the trace has too.
CONTAINERS = ("while", "conditional", "call")


@dataclass(frozen=True)
class Span:
    """The updates that are to be traced, counted from 1 over the whole run."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}:{self.last}"


def parse_span(text: str) -> Span:
    """Returns the updates of "FROM:TO".

    Raises:
        InputError: it does not have this form, or there are no such updates.
    """
    words = text.split(":")
    if len(words) != 2 or not all(word.isascii() and word.isdigit() and len(word) < 12 for word in words):
        raise InputError(f"--profile {text}: give the first and the last update, as in --profile 100:110")
    span = Span(*map(int, words))
    if not 1 <= span.first <= span.last:
        raise InputError(
            f"--profile {text}: updates are counted from 1, and the last is not before the first, as in --profile 100:110"
        )
    return span


class Profile:
    """Traces some updates of a run into a folder. Within `with`, a trace that was begun is always written.

    What cannot be traced is told in one line, and does not end a run.

    Args:
        span: the updates; None: nothing is traced.
        folder: of the run, for traces.
    """

    def __init__(self, span: Span | None, folder: Path) -> None:
        self.span, self.folder, self.tracing = span, folder, False

    def __enter__(self) -> "Profile":
        return self

    def __exit__(self, *exception: object) -> None:
        if self.tracing and self.span is not None:
            warn(f"the profile ends before update {self.span.last}")
            self.end()

    def require_updates(self, updates: int) -> None:
        """Raises InputError where a run has fewer updates; 0 are those of a regression."""
        if self.span is None or self.span.last <= updates:
            return
        if not updates:
            raise InputError(f"--profile {self.span}: a regression makes no updates; leave --profile out")
        raise InputError(f"--profile {self.span}: this run has {updates:,} updates; name two of these")

    def warn_if_done(self, step: int) -> None:
        """Warns where a run goes on from update `step` and the updates that should be traced have begun before."""
        if self.span is not None and step >= self.span.first:
            warn(f"no profile: update {self.span.first} is done already; the run goes on at update {step + 1}")

    def warn_if_finished(self) -> None:
        """Warns where a run that is done should be traced, and has no trace of its time."""
        if self.span is not None and not self.folder.exists():
            warn("no profile: the run is done already; name another run directory with --run")

    def begins_after(self, step: int) -> bool:
        """Tells whether a trace begins now, after update `step`."""
        return self.span is not None and step == self.span.first - 1 and not self.tracing

    def ends_after(self, step: int) -> bool:
        """Tells whether the trace ends now, after update `step`."""
        return self.tracing and self.span is not None and step == self.span.last

    def begin(self) -> None:
        """Begins the trace. Of several processes only process 0 has one."""
        if not group.writes():
            return
        options = ProfileOptions()
        options.python_tracer_level = 0  # Python's own calls would be most of the file, and slower for being traced.
        try:
            self.folder.mkdir(exist_ok=True)
            jax.profiler.start_trace(self.folder, profiler_options=options)
        except (OSError, RuntimeError) as error:
            warn(f"{self.folder}: no profile: {error}")
            return
        self.tracing = True

    def end(self) -> None:
        """Writes the trace, and says how to look at it and which operations took longest."""
        written = self._stop()
        if not written:
            return
        say(
            f"profile of updates {self.span}: {written}: open it at https://ui.perfetto.dev, or in TensorBoard or XProf"
        )
        say(f"with tensorboard --logdir {self.folder} (its plugin is the package xprof)")
        for name, seconds, times in longest_operations(written):
            say(f"  {1e3 * seconds:10.3f} ms  {times:8,} times  {name}")

    def _stop(self) -> Path | None:
        """Writes the trace, and returns the file that Perfetto opens; None where it cannot be written."""
        self.tracing = False
        try:
            jax.profiler.stop_trace()
            return max(self.folder.glob("plugins/profile/*/*.trace.json.gz"))
        except (OSError, RuntimeError, ValueError) as error:
            warn(f"{self.folder}: the profile was not written: {error}")
            return None


def longest_operations(trace: Path) -> list[tuple[str, float, int]]:
    """Returns the compiled operations that took longest in a trace: name, seconds over all threads or streams, and times.

    Args:
        trace: a file *.trace.json.gz. (JAX's reader of the other file, ProfileData, can abort the process.)
    """
    seconds, times = Counter[str](), Counter[str]()
    for event in json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]:
        name = event.get("args", {}).get("hlo_op")
        if name is None or event.get("ph") != "X" or name.startswith(CONTAINERS) or event["name"].startswith("end: "):
            continue
        seconds[name] += event.get("dur", 0.0) / 1e6  # of microseconds
        times[name] += 1
    return [(name, each, times[name]) for name, each in seconds.most_common(LONGEST)]
