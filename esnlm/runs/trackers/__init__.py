"""The trackers that `tracking` can name, one line each. Any of them follows a run beside metrics.jsonl."""

from esnlm.runs.trackers.base import StartTracker, Tracker, Trackers
from esnlm.runs.trackers.csv_file import CsvTracker

__all__ = ["TRACKERS", "StartTracker", "Tracker", "Trackers"]

TRACKERS: dict[str, StartTracker] = {
    "csv": CsvTracker,
}
