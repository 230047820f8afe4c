"""The trackers that `tracking` can name, one line each. Any of them follows a run beside metrics.jsonl."""

from pkgutil import resolve_name

from esnlm.runs.trackers.base import StartTracker, Tracker, Trackers

__all__ = ["TRACKERS", "StartTracker", "Tracker", "Trackers"]

TRACKERS: dict[str, StartTracker] = {
    name: resolve_name(tracker)
    for name, tracker in {
        "csv": "esnlm.runs.trackers.csv_file:CsvTracker",
    }.items()
}
