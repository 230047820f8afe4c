"""The files of a run that a page is made of."""

import json
import shlex
from functools import cached_property
from pathlib import Path
from typing import Any

from esnlm import config_io, loaded_run
from esnlm.errors import InputError
from esnlm.io.console import say
from esnlm.loaded_run import Run
from esnlm.reporting import blimp_report, run_table
from esnlm.reporting.html.blocks import Block, note
from esnlm.reporting.loss_plot import Curves, read_curves
from esnlm.runs.directory import RunDirectory

MOST_ENTRIES = 100_000_000  # numbers in a model; one with more is not loaded for a page


class RunFiles:
    """A finished run. In full it shows the report evaluation/blimp-SCORING.json; `may_load`: the page may load its model."""

    def __init__(self, folder: Path, scoring: str = "paper", may_load: bool = True) -> None:
        self.directory, self.may_load = RunDirectory(folder), may_load
        self.row = run_table.row(folder)
        self.experiment = config_io.read_begun(self.directory.config)
        self.summary: dict[str, Any] = self.row["summary"]
        self.path = shlex.quote(str(folder))  # as a word of a command
        found = blimp_report.read_all(self.directory.evaluation)
        self.reports = {name: found[name] for name in sorted(found, key=lambda name: name != f"blimp-{scoring}")}
        self.report = next(iter(self.reports.values()), None)  # on minimal pairs, the one that is shown in full

    @property
    def name(self) -> str:
        return self.row["run"]

    @cached_property
    def curves(self) -> Curves | None:
        """The losses, if any were logged."""
        return read_curves(self.directory.path) if self.directory.metrics.exists() else None

    def pairs(self, name: str) -> list[dict[str, Any]]:
        """Returns what a report says of each pair. Raises InputError if its pairs were not kept."""
        return blimp_report.read_pairs(self.directory.evaluation / f"{name}.json", self.reports[name])

    @cached_property
    def diagnostics(self) -> dict[str, Any] | None:
        """What `esnlm diagnose` wrote."""
        file = self.directory.diagnostics / "diagnostics.json"
        return dict(json.loads(file.read_bytes())) if file.exists() else None

    @cached_property
    def loaded(self) -> Run | Block:
        """The run's model, or the line that stands in place of what a section would have made with it."""
        if not self.may_load:
            alone = f"esnlm report {self.path} --html run.html"
            return note("A page of so many runs loads no model. A page of this run alone has this:", alone)
        if self.summary.get("total_entries", MOST_ENTRIES + 1) > MOST_ENTRIES:
            return note(f"A model of more than {MOST_ENTRIES:,} numbers is not loaded for a page.")
        say(f"{self.name}: loading the model")
        try:
            return loaded_run.load(self.directory.path)
        except InputError as error:  # checkpoints are large, and are not always kept
            return note(f"This takes the model. {error}.")
