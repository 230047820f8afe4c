"""The picture of a grid: losses and minimal pairs along its numeric axis, beside what was published."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from esnlm.reporting import plots
from esnlm.reporting.plots import COLOURS, INK
from esnlm.studies.grid import MEASURES, Grid, short_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS = ("train_nll", "val_nll", "perplexity", "blimp")
WIDE = 16.0  # an axis whose ends have this ratio or a larger one is logarithmic

Value = tuple[float, float | None] | None  # mean and standard error


class Point(NamedTuple):
    """A cell in a panel. A cell that has no place on the axis has x nan: it becomes a level across the panel."""

    x: float
    mean: float
    error: float
    diverged: bool


def plot_grid(grid: Grid, cells: list[dict[str, Any]]) -> bytes | None:
    """Returns a PNG, or None where the grid has no numeric axis, nothing is measured yet, or matplotlib is missing.

    The axis is the numeric key with the most values. Every other difference makes another line.

    Args:
        grid: the study.
        cells: from `grid_table.collect_cells`.
    """
    key = find_axis(cells)
    if key is None:
        return None
    measured, published = {}, {}
    for name in PANELS:
        measured[name] = _make_lines(cells, key, [_read_mean(cell, name) for cell in cells])
        references = [grid.published.get(cell["cell"], {}).get(name) for cell in cells]
        published[name] = _make_lines(cells, key, references)
    # Perplexity says the same as the NLL, and is shown only where it is what was published.
    panels = [name for name in PANELS if measured[name] and (name != "perplexity" or published[name])]
    if not panels:
        return None
    made = plots.figure(min(5.2 * len(panels), 15), 4.4, columns=len(panels))
    if made is None:
        return None
    figure, grid_of_axes = made
    series = list(dict.fromkeys(name for panel in panels for name in (*measured[panel], *published[panel])))
    values = sorted({float(cell["values"][key]) for cell in cells if key in cell["values"]})
    for name, axes in zip(panels, grid_of_axes[0], strict=True):
        heights: list[float] = []
        for i, line in enumerate(series):
            colour = COLOURS[i % len(COLOURS)]
            heights += _plot_line(axes, measured[name].get(line, []), colour, line or "this study", solid=True)
            label = f"{line}, published" if line else "published"
            heights += _plot_line(axes, published[name].get(line, []), colour, label, solid=False)
        if heights and min(heights) > 0 and max(heights) / min(heights) > 100:  # runs that diverged
            axes.set_yscale("log")
        _scale_axis(axes, values)
        axes.set(xlabel=short_names([key])[key].replace("_", " "), ylabel=MEASURES[name][0])
    shown = {
        label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.suptitle(f"{grid.name}: mean and one standard error", x=0.02, ha="left", color=INK, parse_math=False)
    style: dict[str, Any] = {"ncols": 2 * len(panels), "frameon": False, "fontsize": 9, "labelcolor": INK}
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", **style)
    return plots.png(figure)


def find_axis(cells: list[dict[str, Any]]) -> str | None:
    """Returns the grid's key with the most values, among those with at least two values that are all numbers."""
    values: dict[str, set[float | None]] = {}
    for cell in cells:
        for key, value in cell["values"].items():
            values.setdefault(key, set()).add(_to_number(value))
    numeric = [key for key, found in values.items() if None not in found and len(found) > 1]
    return max(numeric, key=lambda key: len(values[key]), default=None)


def _make_lines(cells: list[dict[str, Any]], key: str, values: Sequence[Value]) -> dict[str, list[Point]]:
    """Returns the points of each line by the line's name, which is "" where nothing but the axis differs.

    Args:
        cells: from `grid_table.collect_cells`.
        key: the axis.
        values: of each cell.
    """
    lines: dict[str, list[Point]] = {}
    names = short_names(list(dict.fromkeys(name for cell in cells for name in cell["values"])))
    for cell, found in zip(cells, values, strict=True):
        if found is None or not math.isfinite(found[0]):
            continue
        others = [f"{names[name]} {value}" for name, value in cell["values"].items() if name != key]
        name = ", ".join([cell["case"]] * bool(cell["case"]) + others) if key in cell["values"] else cell["cell"]
        x = _to_number(cell["values"].get(key, math.nan))
        error = found[1] if found[1] is not None and math.isfinite(found[1]) else 0.0
        diverged = any(run["status"] == "diverged" for run in cell["runs"])
        lines.setdefault(name, []).append(Point(math.nan if x is None else x, found[0], error, diverged))
    return {name: sorted(points) for name, points in lines.items()}


def _read_mean(cell: dict[str, Any], name: str) -> Value:
    found = cell["means"][name]
    return None if found["mean"] is None else (found["mean"], found["se"])


def _plot_line(axes: "Axes", points: Sequence[Point], colour: str, label: str, solid: bool) -> list[float]:
    """Plots a line or a level, and returns its heights."""
    width, dashes = (1.8, "-") if solid else (1.0, (0, (4, 3)))
    style: dict[str, Any] = {"color": colour, "linewidth": width, "label": label}
    if points and math.isnan(points[0].x):
        axes.axhline(points[0].mean, linestyle="-." if solid else ":", **style)
    elif points:
        x, means, errors = [p.x for p in points], [p.mean for p in points], [p.error for p in points]
        marks: dict[str, Any] = {
            "marker": "o",
            "markersize": 5,
            "markerfacecolor": colour if solid else "white",
            "capsize": 2,
        }
        axes.errorbar(x, means, errors, linestyle=dashes, zorder=3 + solid, **style, **marks)
        diverged = [p for p in points if p.diverged] if solid else []
        if diverged:
            cross: dict[str, Any] = {"marker": "x", "s": 90, "color": INK, "zorder": 6, "label": "with diverged runs"}
            axes.scatter([p.x for p in diverged], [p.mean for p in diverged], **cross)
    return [p.mean for p in points]


def _scale_axis(axes: "Axes", values: list[float]) -> None:
    """Puts ticks at the grid's own values, as far as there is room; the axis is logarithmic where they span much."""
    wide = values[0] > 0 and values[-1] / values[0] >= WIDE
    if wide:
        axes.set_xscale("log", base=2)
    powers = wide and all(math.log2(value).is_integer() for value in values) and values[0] < 1
    every = math.ceil(len(values) / 9)
    shown = values[::-every][::-1]
    axes.set_xticks(shown, [f"$2^{{{math.log2(value):.0f}}}$" if powers else f"{value:g}" for value in shown])
    axes.minorticks_off()


def _to_number(value: Any) -> float | None:
    try:
        return None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None
