"""The trackers that `tracking` can name: ours, one line each, and those that other packages register."""

from importlib.metadata import entry_points
from pkgutil import resolve_name

from esnlm.errors import require
from esnlm.runs.directory import RunDirectory
from esnlm.runs.trackers.base import StartTracker, Tracker, Trackers

__all__ = ["GROUP", "TRACKERS", "StartTracker", "Tracker", "Trackers", "find_tracker"]

TRACKERS: dict[str, StartTracker] = {
    name: resolve_name(tracker)
    for name, tracker in {
        "csv": "esnlm.runs.trackers.csv_file:CsvTracker",
        "tensorboard": "esnlm.runs.trackers.tensorboard:TensorBoardTracker",
        "wandb": "esnlm.runs.trackers.wandb:WandbTracker",
    }.items()
}
GROUP = "esnlm.trackers"  # of entry points, by which an installed package registers a tracker under a name


def find_tracker(name: str) -> StartTracker:
    """Returns what starts a tracker: one of TRACKERS, or one that an installed package registers.

    A package's tracker is imported when it starts, so that one that cannot be imported fails as a tracker does.

    Raises:
        InputError: Nobody registers the name.
    """
    if name in TRACKERS:
        return TRACKERS[name]
    registered = {each.name: each for each in entry_points(group=GROUP)}
    names = dict.fromkeys([*TRACKERS, *sorted(registered)])
    require(name in registered, f"tracking has {name!r}: choose from {', '.join(names)}")

    def start(directory: RunDirectory, settings: dict, step: int) -> Tracker:
        return registered[name].load()(directory, settings, step)

    return start
