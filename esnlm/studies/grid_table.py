"""The table of a grid: mean and standard error of each cell's runs, beside what was published."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from esnlm.reporting import run_table
from esnlm.runs.atomic import write_file
from esnlm.runs.directory import RunDirectory
from esnlm.runs.json_file import write_json
from esnlm.studies.grid import MEASURES, Grid, Run


def finished(run: Path) -> dict | None:
    """The summary of a run that was trained to its end, as a diverged run was too; None of any other."""
    summary = RunDirectory(run).read_summary()
    return summary if summary is not None and summary["status"] in ("finished", "diverged") else None


def collect(grid: Grid, runs: Sequence[Run]) -> list[dict]:
    """What is known so far: an entry a cell with its finished runs, and mean, standard error and n of each measure."""
    cells = []
    for cell in grid.cells:
        found = [_figures(run) for run in runs if run.cell == cell.name and finished(run.directory)]
        means = {name: mean_and_error([run[name] for run in found if run[name] is not None]) for name in MEASURES}
        cells.append(
            {
                "cell": cell.name,
                "case": cell.case,
                "values": cell.values,
                "settings": cell.settings,
                "runs": found,
                "means": means,
            }
        )
    return cells


def mean_and_error(values: Sequence[float]) -> dict:
    """{mean, se, n}: one standard error of the mean is the standard deviation (n - 1) / sqrt n; None where n is too small."""
    with np.errstate(invalid="ignore", over="ignore"):  # a diverged run may have any number
        mean = float(np.mean(values)) if values else None
        error = float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else None
    return {"mean": mean, "se": error, "n": len(values)}


def write(grid: Grid, cells: list[dict], command: str, plot: str | None) -> str:
    """Writes table.md and table.json into the study's folder, replacing what is there. Returns the Markdown.

    Args:
        cells: from `collect`.
        command: to be named as what made it.
        plot: a picture in the same folder, or None.
    """
    table = _markdown(grid, cells, command, plot)
    write_file(grid.out / "table.md", table)
    tree = {
        "format": "esnlm study",
        "study": grid.name,
        "note": grid.note,
        "command": command,
        "units": "NLL in nats per token, blimp in percent; means over seeds with one standard error, sd (n - 1) / sqrt n",
        "cells": cells,
        "reference": {"source": grid.source, "cells": grid.published},
    }
    write_json(grid.out / "table.json", tree)
    return table


def _figures(run: Run) -> dict:
    row = run_table.row(run.directory)
    summary = row["summary"]
    numbers = {name: summary.get(name) for name in MEASURES}
    if "regression" in summary:
        numbers["train_nll"] = (
            None  # it has that of a sample under the finished readout, not the mean over updates of S1
        )
    pairs = row["minimal_pairs"].get("blimp-paper", {})
    numbers["blimp"] = pairs.get("accuracy") if pairs.get("step") == summary["step"] else None
    device, versions = summary["device"], summary["versions"]
    machine = f"{device['kind']} x {device['count']}, {device['cores']} cores"
    return {
        "run": row["run"],
        "seed": run.seed,
        "status": summary["status"],
        "origin": f"{machine}; " + ", ".join(f"{name} {versions[name]}" for name in ("esnlm", "jax", "numpy")),
    } | {
        name: None if number is None else float(number) for name, number in numbers.items()
    }  # "inf" and "nan" are texts in JSON


def _markdown(grid: Grid, cells: list[dict], command: str, plot: str | None) -> str:
    published = {measure for values in grid.published.values() for measure in values}
    header, align = ["", "runs"], ["---", "---"]
    for name in grid.columns:
        title, _ = MEASURES[name]
        header += [title, *([f"{title}, published"] if name in published else [])]
    align += ["---:"] * (len(header) - 2)
    rows = [
        [
            cell["cell"],
            _runs(cell, len(grid.seeds)),
            *_cells(grid, published, cell["cell"], cell["means"], len(cell["runs"])),
        ]
        for cell in cells
    ]
    others = [name for name in grid.published if name not in {cell["cell"] for cell in cells}]
    rows += [[name, "published only", *_cells(grid, published, name, {}, 0)] for name in others]
    lines = [f"# {grid.name}", "", *([grid.note, ""] if grid.note else [])]
    lines += [
        "Mean over runs that differ in their seed (one standard error). NLL is in nats per token; a regression has no train NLL,"
    ]
    lines += ["which is a mean over updates.", ""]
    lines += [f"| {' | '.join(row)} |" for row in (header, align, *rows)]
    diverged = [run for cell in cells for run in cell["runs"] if run["status"] == "diverged"]
    if diverged:
        lines += [
            "",
            "Diverged (a train or validation NLL that is not finite or above 10 ln V), and in the means above all the same:",
            "",
        ]
        for run in diverged:
            numbers = [
                f"{MEASURES[name][0]} {_number(run[name], 3)}"
                for name in ("train_nll", "val_nll", "blimp")
                if run[name] is not None
            ]
            lines.append(f"- {run['run']}: {', '.join(numbers)}")
    lines += ["", f"![{grid.name}]({plot})"] if plot else []
    lines += ["", f"Published: {grid.source}"] if grid.source else []
    lines += [
        "",
        f"Made by `{command}`",
        *dict.fromkeys(f"on {run['origin']}" for cell in cells for run in cell["runs"]),
    ]
    return "\n".join(lines) + "\n"


def _runs(cell: dict, asked: int) -> str:
    done, diverged = len(cell["runs"]), sum(run["status"] == "diverged" for run in cell["runs"])
    return (f"{done}" if done == asked else f"{done} of {asked}") + (f", {diverged} diverged" if diverged else "")


def _cells(grid: Grid, published: set[str], name: str, means: dict, runs: int) -> list[str]:
    texts = []
    for measure in grid.columns:
        digits = MEASURES[measure][1]
        found = means.get(measure, {"mean": None, "n": 0})
        fewer = f" of {found['n']}" if 0 < found["n"] < runs else ""  # a collapsed model has no accuracy
        texts.append("" if found["mean"] is None else _with_error(found["mean"], found["se"], digits) + fewer)
        if measure in published:
            value = grid.published.get(name, {}).get(measure)
            texts.append("" if value is None else _with_error(*value, digits))
    return texts


def _with_error(mean: float, error: float | None, digits: int) -> str:
    # Most counts are the same in every run.
    return _number(mean, digits) + (
        "" if error is None or (error == 0 and digits == 0) else f" ({_number(error, digits)})"
    )


def _number(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}" if digits == 0 or abs(value) < 1e5 else f"{value:.2e}"
