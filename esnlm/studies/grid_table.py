"""The table of a grid: mean and standard error of each cell's runs, beside what was published."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from esnlm.io.atomic import write_files
from esnlm.io.json_file import write_json
from esnlm.reporting import run_groups, run_table
from esnlm.reporting.mean_text import format_mean, format_runs, format_value
from esnlm.reporting.tables import csv_table, latex_table, markdown_table
from esnlm.runs.directory import RunDirectory
from esnlm.studies import made_from
from esnlm.studies.grid import MEASURES, Grid, GridRun
from esnlm.studies.grid_cross import cross_tables

# What a run was made from, in hashes: its settings, its text, and the minimal pairs that it was scored on.
MADE_FROM = ("settings_sha256", "data_sha256", "pairs_sha256")
BASELINES = {"length": "length only", "unigram": "a unigram model of the training text"}  # of reports on minimal pairs
ERROR_NOTE = "Mean over runs that differ in their seed (one standard error)."


def collect_cells(
    grid: Grid, runs: Sequence[GridRun], elsewhere: Mapping[Path, dict[str, Any]] | None = None
) -> list[dict[str, Any]]:
    """Returns what is known so far: for each cell its finished runs, and mean, standard error and n of each measure.

    Args:
        grid: the study.
        runs: all its runs.
        elsewhere: the figures of runs that were finished elsewhere, by run directory. A run that is finished here counts first.
    """
    cells = []
    for cell in grid.cells:
        of_cell = (run for run in runs if run.cell == cell.name)
        known = (known_figures(run, elsewhere or {}) for run in of_cell)
        found = [figures for figures in known if figures is not None]
        means = {name: mean_and_error([run[name] for run in found if run[name] is not None]) for name in MEASURES}
        cell_values = {"cell": cell.name, "case": cell.case, "values": cell.values, "settings": cell.settings}
        cells.append(cell_values | {"runs": found, "means": means})
    return cells


def known_figures(run: GridRun, elsewhere: Mapping[Path, dict[str, Any]]) -> dict[str, Any] | None:
    """Returns the figures of a run that is finished, here or elsewhere, and None of any other."""
    here = RunDirectory(run.directory).read_summary()
    return elsewhere.get(run.directory) if here is None else read_measures(run)


def mean_and_error(values: Sequence[float]) -> dict[str, Any]:
    """Returns {mean, se, n}; se is the standard deviation (n - 1) / sqrt n, and None stands where n is too small."""
    with np.errstate(invalid="ignore", over="ignore"):  # a diverged run may have any number
        mean = float(np.mean(values)) if values else None
        error = float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else None
    return {"mean": mean, "se": error, "n": len(values)}


def write_table(grid: Grid, cells: list[dict[str, Any]], command: str, plot: str | None) -> str:
    """Writes table.md, .tex, .csv and .json into the study's folder, replacing what is there. Returns the Markdown.

    Args:
        grid: the study.
        cells: from `collect_cells`.
        command: the command that made it, to stand in both files.
        plot: a picture in the same folder, or None.
    """
    header, rows = _rows(grid, cells)
    notes = _notes(grid, cells)
    table = _render(grid, header, rows, notes, cells, command, plot)
    comments = [f"% {line}" for line in (f"{grid.title}. {ERROR_NOTE}", *notes)]
    latex = "\n".join([*comments, *latex_table(header, rows, align="llr")]) + "\n"
    write_files(
        {grid.out / "table.md": table, grid.out / "table.tex": latex, grid.out / "table.csv": _csv(grid, cells)}
    )
    tree = {
        "format": "esnlm study",
        "study": grid.name,
        "note": grid.note,
        "command": command,
        "units": "NLL in nats per token, blimp in percent; means over seeds with one standard error,"
        " sd (n - 1) / sqrt n",
        "columns": {name: dict(zip(("title", "digits"), MEASURES[name], strict=True)) for name in grid.columns},
        "seeds": list(grid.seeds),
        "cells": cells,
        "notes": notes,
        "reference": {"source": grid.source, "cells": grid.published},
    }
    write_json(grid.out / "table.json", tree)
    return table


def read_measures(run: GridRun) -> dict[str, Any]:
    """Returns what is told of a finished run, with MEASURES as numbers."""
    row = run_table.row(run.directory)
    summary = row["summary"]
    numbers = {name: summary.get(name) for name in MEASURES}
    of_part = "train_nll_of" in summary and summary["status"] != "diverged"
    if "regression" in summary or of_part:
        # It is that of a sample under the finished readout, or of the last few updates: not the mean over an epoch of Ueda et al. 2025a.
        numbers["train_nll"] = None
    pairs = row["minimal_pairs"].get("blimp-paper", {})
    is_of_end = pairs.get("step") == summary["step"]
    # A model that has collapsed was scored, and has no accuracy.
    numbers["blimp"] = pairs.get("accuracy") if is_of_end else None
    device, versions = summary["device"], summary["versions"]
    origin = f"{run_groups.machine(device)}; " + ", ".join(
        f"{name} {versions[name]}" for name in ("esnlm", "jax", "numpy")
    )
    # float also reads "inf" and "nan", which are texts in JSON.
    measures = {name: None if number is None else float(number) for name, number in numbers.items()}
    made_from = {
        "words": summary.get("words"),
        "vocab_size": _vocab_size(run.directory),
        "epochs": summary["epochs"],
        "learning_rate": row["settings"]["training"].get("learning_rate"),
    }
    hashes = {
        "settings_sha256": row["settings_sha256"],
        "data_sha256": summary.get("data_sha256"),
        "pairs_sha256": pairs["data_sha256"] if is_of_end else None,
    }
    if numbers["blimp"] is not None:  # A score says little without what word frequency and length alone have.
        hashes |= {f"blimp_{name}": pairs.get(name) for name in BASELINES}
    told = {"run": row["run"], "seed": run.seed, "status": summary["status"], "origin": origin}
    return told | made_from | hashes | measures


def _vocab_size(run: Path) -> int | None:
    """Returns V of a run; None where the counts of its training text are not there."""
    file = RunDirectory(run).unigram
    return int(np.load(file, mmap_mode="r").shape[0]) if file.exists() else None


def _rows(grid: Grid, cells: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Returns header and cells of the table: a row for each cell of the grid, and for each that is published only."""
    published = {measure for values in grid.published.values() for measure in values}
    header = ["", "runs"]
    for name in grid.columns:
        title, _ = MEASURES[name]
        header += [title, *([f"{title}, published"] if name in published else [])]
    rows = []
    for cell in cells:
        values = _format_row(grid, published, cell["cell"], cell["means"], len(cell["runs"]))
        rows.append([cell["cell"], format_runs(cell["runs"], len(grid.seeds)), *values])
    known = {cell["cell"] for cell in cells}
    rows += [
        [name, "published only", *_format_row(grid, published, name, {}, 0)]
        for name in grid.published
        if name not in known
    ]
    return header, rows


def _csv(grid: Grid, cells: list[dict[str, Any]]) -> str:
    """Returns a row for each cell, with all digits: settings, runs, and mean, standard error and number of runs of each measure.

    A collapsed model has no accuracy, so that a mean may be of fewer runs than the cell has.
    """
    varied = list(dict.fromkeys(key for cell in cells for key in cell["values"]))
    header = ["cell", "case", *varied, "runs"]
    for name in grid.columns:
        header += [name, f"{name}, se", f"{name}, n"]
    lines = []
    for cell in cells:
        line = [cell["cell"], cell["case"], *(cell["values"].get(key) for key in varied), len(cell["runs"])]
        for name in grid.columns:
            line += [cell["means"][name][part] for part in ("mean", "se", "n")]
        lines.append(line)
    return csv_table(header, lines)


def _render(
    grid: Grid,
    header: list[str],
    rows: list[list[str]],
    notes: list[str],
    cells: list[dict[str, Any]],
    command: str,
    plot: str | None,
) -> str:
    """Returns the page."""
    figures = made_from.sentence([run for cell in cells for run in cell["runs"]])
    lines = [f"# {grid.title}", "", *([grid.note, ""] if grid.note else []), *([figures, ""] if figures else [])]
    lines += [
        f"{ERROR_NOTE} NLL is in nats per token. Train NLL is a mean over the updates of the last",
        "epoch, with EOS: a regression has none, nor has a run that stopped early within an epoch, unless it diverged.",
        "",
    ]
    lines += markdown_table(header, rows, align="llr")
    lines += [line for note in notes for line in ("", note)]
    diverged = [run for cell in cells for run in cell["runs"] if run["status"] == "diverged"]
    if diverged:
        explanation = "a train or validation NLL that is not finite or above 10 ln V"
        lines += ["", f"Diverged ({explanation}), and in the means above all the same:", ""]
        for run in diverged:
            told = [name for name in ("train_nll", "val_nll", "blimp") if run[name] is not None]
            numbers = [f"{MEASURES[name][0]} {format_value(run[name], 3)}" for name in told]
            lines.append(f"- {run['run']}: {', '.join(numbers)}")
    lines += cross_tables(grid, cells)
    lines += ["", f"![{grid.title}]({plot})"] if plot else []
    lines += ["", f"Published: {grid.source}"] if grid.source else []
    origins = dict.fromkeys(f"on {run['origin']}" for cell in cells for run in cell["runs"])
    return "\n".join([*lines, "", f"Made by `{command}`", *origins]) + "\n"


def _notes(grid: Grid, cells: list[dict[str, Any]]) -> list[str]:
    """Returns what a reader has to know of the columns of minimal pairs, of losses on other text, and of what was published."""
    found, runs = [], [run for cell in cells for run in cell["runs"]]
    if "blimp" in grid.columns:
        beside = []
        for name, title in BASELINES.items():
            values = [run[key] for run in runs if run.get(key := f"blimp_{name}") is not None]
            if values:
                low, high = f"{min(values):.1f}", f"{max(values):.1f}"
                beside.append(f"{title} {low if low == high else f'{low} .. {high}'}")
        if beside:
            found.append(f"Minimal pairs: the convention paper. On the same pairs, in percent: {', '.join(beside)}.")
    # A validation text is known by its tokens: another tokenizer makes others of the same text.
    if _differ(runs, "tokenizer"):
        found.append("The cells are of different tokenizers: losses per token cannot be compared, only bits per byte.")
    elif _differ(runs, "validation"):
        found.append(
            "The cells are validated on different text, or cut it otherwise: their validation losses are not of the same sentences."
        )
    if grid.published and grid.changed:
        changed = ", ".join(f"{key} {value}" for key, value in grid.changed.items())
        found.append(f"The published values are of other settings: the command line changed them to {changed}.")
    return found


def _differ(runs: Sequence[Mapping[str, Any]], part: str) -> bool:
    """Tells whether runs of one seed have different tokenizers, or different validation text.

    Runs of different seeds may have: a text that is generated follows the seed.
    """
    known: dict[int, set[str]] = {}
    for run in runs:
        if sha256 := (run.get("data_sha256") or {}).get(part):
            known.setdefault(run["seed"], set()).add(sha256)
    return any(len(found) > 1 for found in known.values())


def _format_row(grid: Grid, published: set[str], name: str, means: dict[str, Any], runs: int) -> list[str]:
    """Returns the cell's measures, each followed by its published value where the study has such a column."""
    texts = []
    for measure in grid.columns:
        digits = MEASURES[measure][1]
        found = means.get(measure, {"mean": None, "n": 0})
        fewer = f" of {found['n']}" if 0 < found["n"] < runs else ""  # a collapsed model has no accuracy
        texts.append("" if found["mean"] is None else format_mean(found["mean"], found["se"], digits) + fewer)
        if measure in published:
            value = grid.published.get(name, {}).get(measure)
            texts.append("" if value is None else format_mean(*value, digits))
    return texts
