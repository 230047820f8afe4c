"""A grid as lines: which numeric setting is its axis, and where the cells lie along it."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from esnlm.studies.grid import short_names

Value = tuple[float, float | None] | None  # mean and standard error


class Point(NamedTuple):
    """A cell on its line. A cell that has no place on the axis has x nan."""

    x: float
    mean: float  # not finite where a run diverged so far
    error: float
    diverged: bool
    measured: int  # runs that the mean is of


def find_axis(cells: list[dict[str, Any]]) -> str | None:
    """Returns the grid's key with the most values, among those with at least two values that are all numbers."""
    values: dict[str, set[float | None]] = {}
    for cell in cells:
        for key, value in cell["values"].items():
            values.setdefault(key, set()).add(to_number(value))
    numeric = [key for key, found in values.items() if None not in found and len(found) > 1]
    return max(numeric, key=lambda key: len(values[key]), default=None)


def make_lines(
    cells: list[dict[str, Any]], key: str, values: Sequence[Value], measured: Sequence[int] | None = None
) -> dict[str, list[Point]]:
    """Returns the points of each line by the line's name, which is "" where nothing but the axis differs.

    Args:
        cells: from `grid_table.collect_cells`.
        key: the axis.
        values: of each cell.
        measured: runs that each is the mean of; None: all of the cell.
    """
    lines: dict[str, list[Point]] = {}
    names = short_names(list(dict.fromkeys(name for cell in cells for name in cell["values"])))
    cases = {cell["case"] for cell in cells if key in cell["values"]}
    counts = [len(cell["runs"]) for cell in cells] if measured is None else measured
    for cell, found, count in zip(cells, values, counts, strict=True):
        if found is None:
            continue
        others = [f"{names[name]} {value}" for name, value in cell["values"].items() if name != key]
        name = ", ".join([cell["case"]] * bool(cell["case"]) + others) if key in cell["values"] else cell["cell"]
        if key not in cell["values"] and name in cases:  # it is no point of the line that is called so
            name += f" without {key.rpartition('.')[2]}"
        x = to_number(cell["values"].get(key, math.nan))
        error = found[1] if found[1] is not None and math.isfinite(found[1]) else 0.0
        diverged = any(run["status"] == "diverged" for run in cell["runs"])
        point = Point(math.nan if x is None else x, found[0], error, diverged, count)
        lines.setdefault(name, []).append(point)
    return {name: sorted(points) for name, points in lines.items()}


def describe(cells: list[dict[str, Any]]) -> str:
    """Returns what a dot of the picture is: a mean with its error, or where no cell has several runs, one run."""
    several = any(len(cell["runs"]) > 1 for cell in cells)
    return "mean and one standard error" if several else "one run each"


def read_mean(cell: dict[str, Any], name: str) -> Value:
    found = cell["means"][name]
    return None if found["mean"] is None else (found["mean"], found["se"])


def to_number(value: Any) -> float | None:
    """Returns a setting's value as a number, also of a text such as "1e-3"; None for what is none."""
    try:
        return None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None
