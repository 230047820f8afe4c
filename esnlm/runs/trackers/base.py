"""What a tracker offers, and how several of them follow a run without ever stopping it."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from esnlm.errors import InputError
from esnlm.io.console import warn
from esnlm.runs.directory import RunDirectory


class Tracker(Protocol):
    """Follows a run, in a file or in somebody's service.

    What it raises is said once on stderr; the run goes on without it.
    """

    def log(self, step: int, values: dict[str, Any]) -> None:
        """Takes a line of metrics.

        Args:
            step: the update after which it was measured.
            values: by name; losses in nats per token.
        """

    def summary(self, values: dict[str, Any]) -> None:
        """Takes what summary.json holds, once, at the end of a run that was not interrupted."""

    def finish(self) -> None:
        """Lets go of files and connections, at the end of the process; an interrupted run may be resumed by another."""


# Starts a tracker from the run directory, the settings of the run, and the step that the run goes on from (0: a new run).
StartTracker = Callable[[RunDirectory, dict[str, Any], int], Tracker]


class Trackers:
    """All trackers of a run. One that fails is named on stderr, and no longer called.

    Example:
        >>> with Trackers({"csv": CsvTracker}, directory, settings, step=0) as trackers:
        ...     trackers.log({"step": 20, "train_nll": 4.2})
    """

    def __init__(
        self, start: Mapping[str, StartTracker], directory: RunDirectory, settings: dict[str, Any], step: int
    ) -> None:
        """
        Args:
            start: what starts each of them, by name.
            settings: of the run, as config.yaml has them.
            step: that the run goes on from.
        """
        self._trackers: dict[str, Tracker] = {}
        for name, start_tracker in start.items():
            tracker = self._guard(name, start_tracker, directory, settings, step)
            if tracker is not None:
                self._trackers[name] = tracker

    def __enter__(self) -> "Trackers":
        return self

    def __exit__(self, *exception: object) -> None:
        for name, tracker in list(self._trackers.items()):
            self._guard(name, tracker.finish)

    def log(self, values: dict[str, Any]) -> None:
        """Passes a line of metrics on, in which `step` is its update."""
        for name, tracker in list(self._trackers.items()):
            self._guard(name, tracker.log, values["step"], {key: values[key] for key in values if key != "step"})

    def summary(self, values: dict[str, Any]) -> None:
        """Passes the summary on."""
        for name, tracker in list(self._trackers.items()):
            self._guard(name, tracker.summary, values)

    def _guard(self, name: str, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except (Exception, SystemExit) as error:  # Of whatever kind: what only watches a training must not end it.
            self._trackers.pop(name, None)
            reason = str(InputError(" ".join(str(error).split())))  # one line, and none of a page's length
            warn(f"tracking {name} failed: {type(error).__name__}: {reason}; the run goes on without it")
            return None


def to_number(value: Any) -> float | None:
    """Returns a value of metrics.jsonl as a number, also one that is spelled there as "nan", or None for no number."""
    if value in ("nan", "inf", "-inf"):
        return float(value)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
