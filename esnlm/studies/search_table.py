"""The results of a search: its trials from the best to the worst, and the best one's configuration."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from esnlm import config_io
from esnlm.io.atomic import write_file, write_files
from esnlm.io.json_file import json_text
from esnlm.reporting.tables import csv_table, latex_table, markdown_table
from esnlm.runs.directory import RunDirectory
from esnlm.studies import folder
from esnlm.studies.grid import MEASURES, GridRun
from esnlm.studies.grid_table import read_measures
from esnlm.studies.search import Search
from esnlm.studies.search_plot import plot_search
from esnlm.studies.search_trials import Trial

BESIDE = ("train_nll", "val_nll", "val_bits_per_byte", "blimp", "trainable_params", "seconds")  # the objective


def write_results(search: Search, trials: Sequence[Trial], command: str) -> None:
    """Writes table.md, .tex, .csv and .json, table.png and best.yaml as they stand now."""
    ranked = rank(search, trials)
    measures = {trial.number: measure(search, trial.number) for trial in ranked if trial.state == "complete"}
    best = next((trial for trial in ranked if trial.state == "complete" and _is_finite(trial.objective)), None)
    with folder.held(search.out):
        picture = plot_search(search, trials)
        if picture is not None:
            write_file(search.out / "table.png", picture)
        header, rows = _rows(search, ranked, measures)
        note = f"Trials by {MEASURES[search.objective][0]}, the best first."
        latex = "\n".join([f"% {search.title}. {note}", *latex_table(header, rows, align="llr")]) + "\n"
        page = [
            f"# {search.title}",
            "",
            *([search.note, ""] if search.note else []),
            f"{note} NLL is in nats per token.",
            "",
        ]
        page += markdown_table(header, rows, align="llr")
        page += ["", f"![{search.title}](table.png)"] if picture else []
        page += (
            ["", f"The best one's configuration is best.yaml: `esnlm train --config {search.out / 'best.yaml'}`"]
            if best
            else []
        )
        origins = dict.fromkeys(f"on {found['origin']}" for found in measures.values() if found["origin"])
        page += ["", f"Made by `{command}`", *origins]
        files: dict[str, str | None] = {
            "table.md": "\n".join(page) + "\n",
            "table.tex": latex,
            "table.csv": _csv(search, ranked, measures),
        }
        files["best.yaml"] = None if best is None else _best(search, best)  # None: an earlier one is removed
        tree = {
            "format": "esnlm study",
            "study": search.name,
            "kind": "search",
            "note": search.note,
            "command": command,
            "units": "NLL in nats per token, blimp in percent",
            "definition": search.definition,
            "objective": search.objective,
            "settings": search.names,
            "columns": {
                name: dict(zip(("title", "digits"), MEASURES[name], strict=True))
                for name in (search.objective, *_beside(search, measures))
            },
            "best": None if best is None else best.number,
            "trials": [_as_tree(search, trial, measures.get(trial.number)) for trial in ranked],
        }
        files["table.json"] = json_text(tree)
        write_files({search.out / name: content for name, content in files.items()})


def _is_finite(objective: float | None) -> bool:
    return objective is not None and math.isfinite(objective)


def rank(search: Search, trials: Sequence[Trial]) -> list[Trial]:
    """Returns the trials that have a result, from the best to the worst, then those given up, then the others."""
    sign = 1 if search.direction == "minimize" else -1
    order = ("complete", "pruned")

    def key(trial: Trial) -> tuple[int, float, int]:
        place = order.index(trial.state) if trial.state in order else len(order)
        known = trial.objective is not None and not math.isnan(trial.objective) and place < len(order)
        return place, sign * (trial.objective or 0.0) if known else math.inf, trial.number

    return sorted(trials, key=key)


def measure(search: Search, number: int) -> dict[str, Any]:
    """Returns what is known of the run of a trial, as the table of a grid has it; None for what is not."""
    path = search.directory(number)
    if RunDirectory(path).read_summary() is None:
        return dict.fromkeys((*MEASURES, "status", "origin"))
    experiment = dataclasses.replace(search.experiment, run=str(path))
    return read_measures(GridRun(path.name, experiment.seed, experiment))


def _rows(
    search: Search, ranked: Sequence[Trial], measures: dict[int, dict[str, Any]]
) -> tuple[list[str], list[list[str]]]:
    beside = _beside(search, measures)
    header = [
        "",
        "state",
        MEASURES[search.objective][0],
        *search.names.values(),
        *(MEASURES[name][0] for name in beside),
    ]
    rows = []
    for trial in ranked:
        found = measures.get(trial.number, {})
        shown = trial.objective if trial.state == "complete" else None
        row = [search.directory(trial.number).name, _state(trial, found), _format(search.objective, shown)]
        row += [_spell_value(trial.values.get(key)) for key in search.space]
        rows.append(row + [_format(name, found.get(name)) for name in beside])
    return header, rows


def _csv(search: Search, ranked: Sequence[Trial], measures: dict[int, dict[str, Any]]) -> str:
    beside = _beside(search, measures)
    lines = []
    for trial in ranked:
        found = measures.get(trial.number, {})
        line = [
            search.directory(trial.number).name,
            trial.state,
            trial.objective if trial.state == "complete" else None,
        ]
        lines.append([*line, *(trial.values.get(key) for key in search.space), *(found.get(name) for name in beside)])
    return csv_table(["trial", "state", search.objective, *search.space, *beside], lines)


def _beside(search: Search, measures: dict[int, dict[str, Any]]) -> list[str]:
    """Returns the measures that any trial has, but the objective."""
    return [
        name
        for name in BESIDE
        if name != search.objective and any(found.get(name) is not None for found in measures.values())
    ]


def _state(trial: Trial, found: dict[str, Any]) -> str:
    if trial.state == "complete":
        return found.get("status") or "finished"
    if trial.state == "pruned":
        return f"given up after update {max(trial.reports, default=0)}"
    return "failed" if trial.error else "under way"


def _as_tree(search: Search, trial: Trial, measures: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "run": search.directory(trial.number).name,
        "number": trial.number,
        "state": trial.state,
        "state_in_words": _state(trial, measures or {}),
        "objective": trial.objective,
        "values": trial.values,
        "reports": {str(step): value for step, value in trial.reports.items()},
        "error": trial.error,
        "measures": measures,
    }


def _best(search: Search, best: Trial) -> str:
    """Returns the configuration of the best trial, for a run of its own."""
    run = search.out / "best"
    experiment = search.make_experiment(best.values, run)
    title = f"# {search.name}: {search.directory(best.number).name}, {search.objective} {best.objective!r}\n"
    return title + config_io.dump(experiment)


def _format(name: str, value: float | None) -> str:
    if value is None:
        return ""
    digits = MEASURES[name][1]
    return f"{value:,.{digits}f}" if abs(value) < 1e5 or digits == 0 and math.isfinite(value) else f"{value:.2e}"


def _spell_value(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
