"""The picture of a grid: losses and minimal pairs along its numeric axis, beside what was published."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from esnlm.reporting import plots
from esnlm.reporting.plots import COLOURS, INK
from esnlm.studies.grid import MEASURES, Grid, short_names
from esnlm.studies.grid_dots import plot_dots
from esnlm.studies.grid_lines import Point, describe, find_axis, make_lines, read_mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS = ("train_nll", "val_nll", "perplexity", "blimp")
CROSS: dict[str, Any] = {"marker": "x", "s": 90, "color": INK, "zorder": 6, "label": "with diverged runs"}
WIDE = 16.0  # an axis whose ends have this ratio or a larger one is logarithmic


def plot_grid(grid: Grid, cells: list[dict[str, Any]]) -> bytes | None:
    """Returns a PNG, or None where nothing is measured yet, or matplotlib is missing.

    The axis is the numeric key with the most values. Every other difference makes another line. A grid without such an axis,
    or with more lines than there are colours, is drawn by `grid_dots.plot_dots`.

    Args:
        grid: the study.
        cells: from `grid_table.collect_cells`.
    """
    key = find_axis(cells)
    if key is None:
        return plot_dots(grid, cells)
    measured, published = {}, {}
    for name in PANELS:
        measured[name] = make_lines(cells, key, [read_mean(cell, name) for cell in cells])
        references = [grid.published.get(cell["cell"], {}).get(name) for cell in cells]
        published[name] = make_lines(cells, key, references)
    # Perplexity says the same as the NLL, and is shown only where it is what was published.
    panels = [name for name in PANELS if measured[name] and (name != "perplexity" or published[name])]
    series = list(dict.fromkeys(name for panel in panels for name in (*measured[panel], *published[panel])))
    if not panels:
        return None
    if len(series) > len(COLOURS):
        return plot_dots(grid, cells)
    made = plots.figure(min(5.2 * len(panels), 15), 4.4, columns=len(panels))
    if made is None:
        return None
    figure, grid_of_axes = made
    values = sorted({float(cell["values"][key]) for cell in cells if key in cell["values"]})
    for name, axes in zip(panels, grid_of_axes[0], strict=True):
        heights: list[float] = []
        for i, line in enumerate(series):
            colour = COLOURS[i % len(COLOURS)]
            heights += _plot_line(axes, measured[name].get(line, []), colour, line or "this study", solid=True)
            label = f"{line}, published" if line else "published"
            heights += _plot_line(axes, published[name].get(line, []), colour, label, solid=False)
        heights = [height for height in heights if math.isfinite(height)]
        if heights and min(heights) > 0 and max(heights) / min(heights) > 100:  # runs that diverged
            axes.set_yscale("log")
        _scale_axis(axes, values)
        axes.set(xlabel=short_names([key])[key].replace("_", " "), ylabel=MEASURES[name][0])
    shown = {
        label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.suptitle(f"{grid.title}: {describe(cells)}", x=0.02, ha="left", color=INK)
    style: dict[str, Any] = {"ncols": 2 * len(panels), "frameon": False, "fontsize": 9, "labelcolor": INK}
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", **style)
    return plots.png(figure)


def _plot_line(axes: "Axes", points: Sequence[Point], colour: str, label: str, solid: bool) -> list[float]:
    """Plots a line or a level, and returns its heights."""
    width, dashes = (1.8, "-") if solid else (1.0, (0, (4, 3)))
    style: dict[str, Any] = {"color": colour, "linewidth": width, "label": label}
    if points and math.isnan(points[0].x):
        _plot_level(axes, points[0], solid, style)
    elif points:
        x, errors = [p.x for p in points], [p.error for p in points]
        means = [p.mean if math.isfinite(p.mean) else math.nan for p in points]
        marks: dict[str, Any] = {
            "marker": "o",
            "markersize": 5,
            "markerfacecolor": colour if solid else "white",
            "capsize": 2,
        }
        axes.errorbar(x, means, errors, linestyle=dashes, zorder=3 + solid, **style, **marks)
        for point in points:
            if solid and point.diverged and math.isfinite(point.mean):
                axes.scatter([point.x], [point.mean], **CROSS)
            elif solid and point.diverged:  # at the upper edge: the line is broken there
                axes.scatter([point.x], [0.97], transform=axes.get_xaxis_transform(), **CROSS)
    return [p.mean for p in points]


def _plot_level(axes: "Axes", point: Point, solid: bool, style: dict[str, Any]) -> None:
    """Plots a mean that has no place on the axis: a level line, with a band of one standard error around it."""
    if not math.isfinite(point.mean):
        return
    axes.axhline(point.mean, linestyle="-." if solid else ":", **style)
    if point.error > 0:
        low, high = point.mean - point.error, point.mean + point.error
        axes.axhspan(low, high, color=style["color"], alpha=0.15, linewidth=0)
    if solid and point.diverged:
        axes.scatter([0.97], [point.mean], transform=axes.get_yaxis_transform(), **CROSS)


def _scale_axis(axes: "Axes", values: list[float]) -> None:
    """Puts ticks at the grid's own values, as far as there is room; the axis is logarithmic where they span much."""
    wide = values[0] > 0 and values[-1] / values[0] >= WIDE
    if wide:
        axes.set_xscale("log", base=2)
    powers = wide and all(math.log2(value).is_integer() for value in values) and values[0] < 1
    every = math.ceil(len(values) / 9)
    shown = values[::-every][::-1]
    axes.set_xticks(shown, [f"$2^{{{math.log2(value):.0f}}}$" if powers else f"{value:.10g}" for value in shown])
    axes.minorticks_off()
