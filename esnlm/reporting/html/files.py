"""The files of a run, read when a section asks for them."""

import shlex
from functools import cached_property
from pathlib import Path
from typing import Any

from esnlm import config_io, loaded_run
from esnlm.config import Experiment
from esnlm.errors import InputError
from esnlm.io.console import say
from esnlm.io.json_file import parse_json
from esnlm.loaded_run import Run
from esnlm.reporting import blimp_report, run_table
from esnlm.reporting.html.blocks import Block, note
from esnlm.runs.directory import RunDirectory

MOST_ENTRIES = 100_000_000  # numbers in a model; one with more is not loaded for a page


class RunFiles:
    """A finished run.

    Args:
        folder: the run directory.
        scoring: which report on minimal pairs is shown in full, evaluation/blimp-SCORING.json.
    """

    def __init__(self, folder: Path, scoring: str = "paper") -> None:
        self.directory, self.scoring = RunDirectory(folder), scoring
        self.row: dict[str, Any] = run_table.row(folder)
        self.experiment: Experiment = config_io.read_begun(self.directory.config)
        self.may_group = True  # whether it may be one row with other seeds
        self.may_load = True  # whether the page has the time to load the model

    @property
    def name(self) -> str:
        return self.row["run"]

    @property
    def summary(self) -> dict[str, Any]:
        return self.row["summary"]

    @property
    def path(self) -> str:
        """The run directory as a word of a command."""
        return shlex.quote(str(self.directory.path))

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl, if there are any."""
        if not self.directory.metrics.exists():
            return []
        self.directory.verify(self.directory.metrics)
        return [parse_json(line) for line in self.directory.metrics.read_bytes().splitlines()]

    @cached_property
    def reports(self) -> dict[str, dict[str, Any]]:
        """The reports on minimal pairs by name, the one that is shown in full first."""
        found = blimp_report.read_all(self.directory.evaluation)
        return {name: found[name] for name in sorted(found, key=lambda name: name != f"blimp-{self.scoring}")}

    @property
    def report(self) -> dict[str, Any] | None:
        """The report on minimal pairs that is shown in full."""
        return next(iter(self.reports.values()), None)

    def pairs(self, name: str) -> list[dict[str, Any]]:
        """Returns what a report says of each pair. Raises InputError if its pairs were not kept."""
        return blimp_report.read_pairs(self.directory.evaluation / f"{name}.json", self.reports[name])

    @cached_property
    def diagnostics(self) -> dict[str, Any] | None:
        """What `esnlm diagnose` wrote."""
        file = self.directory.diagnostics / "diagnostics.json"
        try:
            return dict(parse_json(file.read_bytes())) if file.exists() else None
        except ValueError:
            raise InputError(
                f"{file}: damaged; make it again with esnlm diagnose --run {self.path} --overwrite"
            ) from None

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

    def release(self) -> None:
        """Gives back the memory of the model."""
        self.__dict__.pop("loaded", None)
