"""Trackers log a run to a file or a service, and never stop it.

`tracking` names trackers of TRACKERS, or trackers that other packages register by an entry point.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import entry_points
from pkgutil import resolve_name
from typing import Any, Protocol

from esnlm.errors import InputError
from esnlm.io.console import warn
from esnlm.runs.directory import RunDirectory

GROUP = "esnlm.trackers"  # the group of entry points in which packages register trackers


class Tracker(Protocol):
    """The interface of a tracker. If it raises an error, the run warns and continues without it."""

    def log(self, step: int, values: dict[str, Any]) -> None:
        """Logs a line of metrics: values by name after update `step`, losses in nats per token."""

    def summary(self, values: dict[str, Any]) -> None:
        """Logs the content of summary.json, once, at the end of a run that was not interrupted."""

    def finish(self) -> None:
        """Closes files and connections at the end of the process; another process may resume an
        interrupted run."""


# Starts a tracker from the run directory, the settings of the run, and the step to resume from (0:
# a new run).
StartTracker = Callable[[RunDirectory, dict[str, Any], int], Tracker]
# The module and class of each tracker, or the class. Modules are imported when a tracker starts.
TRACKERS: dict[str, str | StartTracker] = {
    "tensorboard": "esnlm.runs.trackers.tensorboard:TensorBoardTracker",
    "wandb": "esnlm.runs.trackers.wandb:WandbTracker",
}


def find_tracker(name: str) -> StartTracker:
    """Returns the class of a tracker, from TRACKERS or an installed package. Raises InputError for
    an unknown name."""
    registered = {each.name: each.value for each in entry_points(group=GROUP)} | TRACKERS
    if name not in registered:
        names = dict.fromkeys([*TRACKERS, *sorted(registered)])
        raise InputError(f"tracking has {name!r}: choose from {', '.join(names)}")
    found = registered[name]
    return lambda *run: (resolve_name(found) if isinstance(found, str) else found)(*run)


class Trackers:
    """All trackers of a run. If one fails, a warning names it, and it is no longer called."""

    def __init__(
        self,
        start: Mapping[str, StartTracker],
        directory: RunDirectory,
        settings: dict[str, Any],
        step: int,
    ) -> None:
        self._trackers: dict[str, Tracker] = {}
        for name, each in start.items():
            with self._guard(name):
                self._trackers[name] = each(directory, settings, step)

    def __enter__(self) -> "Trackers":
        return self

    def __exit__(self, *exception: object) -> None:
        self._all("finish")

    def log(self, values: dict[str, Any]) -> None:
        """Passes a line of metrics to all trackers; its `step` is the update."""
        self._all("log", values["step"], {key: values[key] for key in values if key != "step"})

    def summary(self, values: dict[str, Any]) -> None:
        """Passes the summary to all trackers."""
        self._all("summary", values)

    def _all(self, method: str, *arguments: Any) -> None:
        for name, tracker in list(self._trackers.items()):
            with self._guard(name):
                getattr(tracker, method)(*arguments)

    @contextlib.contextmanager
    def _guard(self, name: str) -> Iterator[None]:
        """Drops a tracker that raises any exception, with a warning."""
        try:
            yield
        except (Exception, SystemExit) as error:
            self._trackers.pop(name, None)
            reason = " ".join(str(error).split())[:500]
            warn(
                f"tracking {name} failed: {type(error).__name__}: {reason}; the run continues"
                " without it"
            )


def numbers(values: dict[str, Any]) -> dict[str, float]:
    """Returns the values that are numbers, including those spelled "nan", "inf" and "-inf"."""
    found = {
        name: float(value) if value in ("nan", "inf", "-inf") else value
        for name, value in values.items()
    }
    return {
        name: each
        for name, each in found.items()
        if isinstance(each, int | float) and not isinstance(each, bool)
    }
