"""metrics.csv: the lines of metrics.jsonl for R and spreadsheets, one value a row."""

import csv
import json
from typing import Any

from esnlm.runs.directory import RunDirectory


class CsvTracker:
    """Writes metrics.csv with the columns step, metric and value."""

    def __init__(self, directory: RunDirectory, settings: dict[str, Any], step: int) -> None:
        self._handle = directory.metrics_table.open("w", newline="", encoding="utf-8")
        self._writer = csv.writer(self._handle)
        self._writer.writerow(("step", "metric", "value"))
        # A run that is resumed, with or without this tracker before, begins with the lines that metrics.jsonl has kept.
        for line in directory.metrics.read_text().splitlines():
            values = json.loads(line)
            self.log(values.pop("step"), values)

    def log(self, step: int, values: dict[str, Any]) -> None:
        self._writer.writerows((step, name, value) for name, value in values.items())
        self._handle.flush()

    def summary(self, values: dict[str, Any]) -> None:
        pass  # It is in summary.json.

    def finish(self) -> None:
        self._handle.close()
