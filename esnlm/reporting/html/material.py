"""What the report can tell of a run: its files, read when a section asks for them."""

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
from esnlm.reporting.html.markup import Html, ask, note
from esnlm.runs.directory import RunDirectory

MOST_ENTRIES = 100_000_000  # numbers in a model; one with more is not loaded for a report


class Material:
    """A finished run."""

    def __init__(self, folder: Path, scoring: str = "paper") -> None:
        """Reads what every section needs.

        Args:
            folder: the run directory.
            scoring: which report on minimal pairs is shown in full, evaluation/blimp-SCORING.json.

        Raises:
            InputError: this is not the directory of a finished run, or a file of it is damaged.
        """
        self.directory, self.scoring = RunDirectory(folder), scoring
        self.row: dict[str, Any] = run_table.row(folder)
        self.experiment: Experiment = config_io.read_begun(self.directory.config)
        self.name: str = self.row["run"]
        self.may_group = True  # whether it may be one row with other seeds
        self.may_load = True  # whether the page has the time to load the model

    @property
    def summary(self) -> dict[str, Any]:
        """What summary.json says."""
        return self.row["summary"]

    @property
    def path(self) -> str:
        """The run directory as a word of a command."""
        return shlex.quote(str(self.directory.path))

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl; empty where there are none. Raises InputError where the file is damaged."""
        if not self.directory.metrics.exists():
            return []
        self.directory.verify(self.directory.metrics)
        try:
            lines = [parse_json(line) for line in self.directory.metrics.read_bytes().splitlines()]
            if all(isinstance(line["step"], int) for line in lines):
                return lines
        except (ValueError, KeyError, TypeError):
            pass
        raise InputError(f"{self.directory.metrics}: damaged; restore it from a copy of the run")

    @cached_property
    def reports(self) -> dict[str, dict[str, Any]]:
        """The reports on minimal pairs by name, the one that is shown in full first."""
        found = blimp_report.read_all(self.directory.evaluation)
        chosen = f"blimp-{self.scoring}"
        return {name: found[name] for name in sorted(found, key=lambda name: name != chosen)}

    @property
    def report(self) -> dict[str, Any] | None:
        """The report on minimal pairs that is shown in full, or None."""
        return next(iter(self.reports.values()), None)

    @property
    def report_file(self) -> Path:
        """The JSON file of `report`, or where it would lie."""
        return self.directory.evaluation / f"{next(iter(self.reports), f'blimp-{self.scoring}')}.json"

    @cached_property
    def pairs(self) -> list[dict[str, Any]] | str:
        """What the report says of each pair, or the line that says why that is not known."""
        try:
            return blimp_report.read_pairs(self.report_file, self.report) if self.report is not None else []
        except InputError as error:
            return str(error)

    @property
    def diagnostics_file(self) -> Path:
        """Where `esnlm diagnose` writes, or would write."""
        return self.directory.diagnostics / "diagnostics.json"

    @cached_property
    def diagnostics(self) -> dict[str, Any] | None:
        """What `esnlm diagnose` wrote, or None. Raises InputError where it is damaged."""
        if not self.diagnostics_file.exists():
            return None
        try:
            found = parse_json(self.diagnostics_file.read_bytes())
            if isinstance(found["reservoirs"], list):
                return found
        except (ValueError, KeyError, TypeError):
            pass
        raise InputError(
            f"{self.diagnostics_file}: damaged; make it again with esnlm diagnose --run {self.path} --overwrite"
        )

    @cached_property
    def loaded(self) -> Run | Html:
        """The run's model, or the line that stands in place of what a section would have made with it."""
        if not self.may_load:
            alone = f"esnlm report {self.path} --html run.html"
            return ask(
                "This takes the model, and a page of so many runs loads none. A page of this run alone has it:", alone
            )
        if self.summary.get("total_entries", MOST_ENTRIES + 1) > MOST_ENTRIES:
            return note(
                f"This takes the model, and one of more than {MOST_ENTRIES:,} numbers is not loaded for a page."
            )
        say(f"{self.name}: loading the model")
        try:
            return loaded_run.load(self.directory.path)
        except InputError as error:  # checkpoints are large, and are not always kept
            return note(f"This takes the model. {error}.")

    def release(self) -> None:
        """Gives back the memory of what the sections of this run have read."""
        for name in ("loaded", "pairs"):
            self.__dict__.pop(name, None)
