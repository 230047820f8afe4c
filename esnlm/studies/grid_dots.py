"""The picture of a grid with many cases, or without a numeric axis: a row for each case, a dot for each mean."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from esnlm.reporting import plots
from esnlm.reporting.plots import FAINT, INK
from esnlm.studies.grid import MEASURES, Grid, short_names
from esnlm.studies.grid_lines import Point, describe, find_axis, make_lines, read_mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS = ("val_nll", "blimp")
# Of the axis's values, from the lowest to the highest. Colours between them are mixed.
LEVELS = ("#9ecae1", "#4292c6", "#08519c", "#041f44")
OFF_AXIS = "#8a8f98"  # of a case that has no value on the axis
BEYOND = 0.75  # a dot is an arrow where it lies farther from all rows' best dots than this share of the range that these span


def plot_dots(grid: Grid, cells: list[dict[str, Any]]) -> bytes | None:
    """Returns a PNG, or None where fewer than two rows have a result, or matplotlib is missing.

    A row is what `grid_lines.make_lines` takes as a line. The darker a dot, the larger its value on the numeric axis, if
    the grid has one; a grey dot has no place on it. A bar is one standard error. An arrow at the edge stands for a dot far outside.

    Args:
        grid: the study.
        cells: from `grid_table.collect_cells`.
    """
    key = find_axis(cells)
    lines = {name: _finite(make_lines(cells, key or "", [read_mean(cell, name) for cell in cells])) for name in PANELS}
    rows = list(dict.fromkeys(name for found in lines.values() for name in found))
    panels = [name for name in PANELS if lines[name]]
    if len(rows) < 2:
        return None
    made = plots.figure(2.6 + 4.2 * len(panels), 1.4 + 0.24 * len(rows), columns=len(panels), sharey=True)
    if made is None:
        return None
    figure, axes = made
    values = sorted({point.x for found in lines.values() for points in found.values() for point in points})
    values = [value for value in values if not math.isnan(value)]
    colours = dict(zip(values, _ramp(len(values)), strict=True))
    for name, panel in zip(panels, axes[0], strict=True):
        low, high = _limits(lines[name], falls=name != "blimp")
        for height, row in enumerate(rows):
            _plot_row(panel, height, lines[name].get(row, []), colours, low, high)
        panel.set(xlabel=MEASURES[name][0], xlim=(low, high), ylim=(len(rows) - 0.4, -0.6))
        panel.grid(axis="y", color=FAINT, linewidth=0.5, alpha=0.6)
        panel.set_axisbelow(True)
    axes[0, 0].set_yticks(range(len(rows)), rows, fontsize=9, parse_math=False)
    figure.suptitle(f"{grid.title}: {describe(cells)}", x=0.02, ha="left", color=INK)
    if key is not None and values:
        for value in values:
            label = f"{short_names([key])[key].replace('_', ' ')} {value:.10g}"
            axes[0, 0].plot([], [], "o", color=colours[value], markersize=5, label=label)
        style: dict[str, Any] = {"ncols": min(len(values), 4), "frameon": False, "fontsize": 9, "labelcolor": INK}
        figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", **style)
    return plots.png(figure)


def _finite(lines: dict[str, list[Point]]) -> dict[str, list[Point]]:
    """Returns the rows that have a mean that is finite, with these means only: another one has no place in a panel."""
    found = {name: [point for point in points if math.isfinite(point.mean)] for name, points in lines.items()}
    return {name: points for name, points in found.items() if points}


def _ramp(steps: int) -> list[str]:
    """Returns so many different colours, the first the lightest."""
    places = np.linspace(0, len(LEVELS) - 1, steps)  # (S,)
    channels = np.array([[int(level[i : i + 2], 16) for i in (1, 3, 5)] for level in LEVELS])  # (4, 3)
    mixed = [np.interp(places, range(len(LEVELS)), channel).round().astype(int) for channel in channels.T]
    return [f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue in zip(*mixed, strict=True)]


def _limits(lines: dict[str, list[Point]], falls: bool) -> tuple[float, float]:
    """Returns the ends of the panel: the best dot of each row is inside, and what lies far from them all is not.

    Args:
        lines: points by row.
        falls: whether the lower value is the better one.
    """
    every = [point for points in lines.values() for point in points]
    edges = [edge for point in every for edge in (point.mean - point.error, point.mean + point.error)]
    best = [(min if falls else max)(point.mean for point in points) for points in lines.values()]
    room = max(max(best) - min(best), 1e-3 * abs(max(best)))
    low, high = (max(min(edges), min(best) - BEYOND * room), min(max(edges), max(best) + BEYOND * room))
    margin = 0.05 * max(high - low, room)
    return low - margin, high + margin


def _plot_row(
    axes: "Axes", height: float, points: Sequence[Point], colours: dict[float, str], low: float, high: float
) -> None:
    """Plots the dots of one row; one that lies outside the panel is an arrow at its edge."""
    for point in points:
        colour = colours.get(point.x, OFF_AXIS if colours else LEVELS[2])
        if point.mean > high or point.mean < low:
            right = point.mean > high
            edge: dict[str, Any] = {"marker": ">" if right else "<", "color": colour, "clip_on": False}
            axes.plot(high if right else low, height, markersize=5, **edge)
        else:
            bar: dict[str, Any] = {"fmt": "o", "color": colour, "markersize": 5, "capsize": 2, "zorder": 3}
            axes.errorbar(point.mean, height, xerr=point.error, **bar)
