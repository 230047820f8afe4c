"""The picture of a grid: losses and minimal pairs along its numeric axis, or by case if there are many."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from esnlm.reporting import plots
from esnlm.reporting.plots import COLOURS, INK
from esnlm.studies.measures import MEASURES
from esnlm.studies.study_file import short_names
from esnlm.studies.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS = ("train_nll", "val_nll", "perplexity", "blimp")
WIDE = 16.0  # an axis whose ends have this ratio or a larger one is logarithmic
FAR = 100.0  # so are losses, as those of runs that diverged


class Point(NamedTuple):
    """A finite mean and the ends of its bar."""

    line: str  # "" if nothing but the axis differs
    x: float | None  # None without a place on the axis
    mean: float
    low: float
    high: float
    diverged: bool


def plot_grid(table: Table) -> bytes | None:
    """Returns a PNG, or None if nothing is measured yet or matplotlib is missing.

    The axis is the numeric setting with the most values; cells that differ in anything else are on lines of their own. Without
    such an axis, or with more lines than there are colours, each line is a row, and the axis is shown by colour.
    """
    key = find_axis(table.cells)
    ours = {name: _points(table, key, name, False) for name in PANELS}
    published = {name: _points(table, key, name, True) for name in PANELS}
    lines = list(dict.fromkeys(p.line for name in PANELS for p in (*ours[name], *published[name])))
    rows = key is None or len(lines) > len(COLOURS)
    # perplexity says the same as the NLL: it is shown if a paper gives it
    panels = [name for name in PANELS if ours[name] and (name != "perplexity" or published[name])]
    panels = [name for name in panels if not rows or name in ("val_nll", "blimp")]
    size = (2.6 + 4.2 * len(panels), 1.6 + 0.24 * len(lines)) if rows else (min(5.2 * len(panels), 15), 4.6)
    made = plots.figure(*size, columns=len(panels), sharey=rows) if panels else None
    if made is None:
        return None
    figure, axes = made
    label = (key or "").rpartition(".")[2].replace("_", " ")
    for name, panel in zip(panels, axes[0], strict=True):
        means = [point.mean for point in ours[name]]
        scale = "log" if min(means) > 0 and max(means) / min(means) > FAR else "linear"
        if rows:
            _plot_rows(panel, ours[name], lines, label)
            panel.set(xlabel=MEASURES[name][0], xscale=scale)
        else:
            _plot_lines(panel, ours[name], lines, "{}", "this study")
            _plot_lines(panel, published[name], lines, "{}, published", "published")
            _scale_axis(panel, sorted({p.x for p in (*ours[name], *published[name]) if p.x is not None}))
            panel.set(xlabel=label, ylabel=MEASURES[name][0], yscale=scale)
    handles = {
        text: handle for panel in axes[0] for handle, text in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    figure.suptitle(f"{table.title}: means, with 95 % intervals from three seeds on", x=0.02, ha="left", color=INK)
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    return plots.png(figure)


def find_axis(cells: Sequence[dict[str, Any]]) -> str | None:
    """Returns the key with the most values, among those with at least two values that are all numbers."""
    values: dict[str, set[float | None]] = {}
    for cell in cells:
        for key, value in cell["values"].items():
            values.setdefault(key, set()).add(_to_number(value))
    numeric = [key for key, found in values.items() if None not in found and len(found) > 1]
    return max(numeric, key=lambda key: len(values[key]), default=None)


def _points(table: Table, key: str | None, measure: str, published: bool) -> list[Point]:
    """Returns the means of a measure, of this study or as published, in the order of the axis."""
    found, short = [], short_names(list(dict.fromkeys(name for cell in table.cells for name in cell["values"])))
    for cell in table.cells:
        mean, ends = cell["means"][measure]["mean"], cell["means"][measure]["interval"]
        if published:
            mean, error = table.published.get(cell["cell"], {}).get(measure) or (None, None)
            ends = (mean - error, mean + error) if error else None
        if mean is None or not math.isfinite(mean):
            continue
        others = [f"{short[name]} {value}" for name, value in cell["values"].items() if name != key]
        line = ", ".join(filter(None, [cell["case"], *others])) if key in cell["values"] else cell["cell"]
        x = _to_number(cell["values"][key]) if key in cell["values"] else None
        diverged = not published and any(run["status"] == "diverged" for run in cell["runs"])
        low, high = ends or (mean, mean)
        found.append(Point(line, x, mean, low, high, diverged))
    return sorted(found, key=lambda point: (point.x is not None, point.x or 0))


def _plot_lines(panel: "Axes", points: list[Point], lines: Sequence[str], label: str, unnamed: str) -> None:
    """Plots each line, dashed if it is published; a mean without a place on the axis is level."""
    for number, line in enumerate(lines):
        its = [point for point in points if point.line == line]
        ours = "published" not in label
        style: dict[str, Any] = {"color": COLOURS[number], "linestyle": "-" if ours else "--"}
        style["label"] = label.format(line) if line else unnamed
        if its and its[0].x is None:
            panel.axhline(its[0].mean, linewidth=1.2, **style)
            panel.axhspan(its[0].low, its[0].high, color=COLOURS[number], alpha=0.12, linewidth=0)
        elif its:
            bars = [[p.mean - p.low for p in its], [p.high - p.mean for p in its]]
            x: list[Any] = [point.x for point in its]
            marks: dict[str, Any] = {"marker": "o", "markerfacecolor": COLOURS[number] if ours else "white"}
            panel.errorbar(x, [p.mean for p in its], bars, markersize=5, capsize=2, **marks, **style)
        _mark_diverged(panel, [(point.x, point.mean) for point in its if point.diverged and point.x is not None])


def _plot_rows(panel: "Axes", points: list[Point], lines: Sequence[str], label: str) -> None:
    """Plots a row of dots for each line; the darker, the larger the value on the axis."""
    values = sorted({point.x for point in points if point.x is not None})
    for point in points:
        place = values.index(point.x) / max(1, len(values) - 1) if point.x is not None else 0.5
        colour = (0.62 * (1 - place), 0.78 - 0.62 * place, 0.9 - 0.5 * place)
        bar = [[point.mean - point.low], [point.high - point.mean]]
        style: dict[str, Any] = {"label": None if point.x is None else f"{label} {point.x:.10g}", "color": colour}
        panel.errorbar(point.mean, lines.index(point.line), xerr=bar, fmt="o", markersize=5, capsize=2, **style)
        _mark_diverged(panel, [(point.mean, lines.index(point.line))] if point.diverged else [])
    panel.set_yticks(range(len(lines)), lines, fontsize=9, parse_math=False)
    panel.set_ylim(len(lines) - 0.4, -0.6)
    panel.grid(axis="y", linewidth=0.5, alpha=0.5)


def _mark_diverged(panel: "Axes", places: list[tuple[float, float]]) -> None:
    for place in places:
        panel.scatter(*place, marker="x", s=90, color=INK, zorder=6, label="with diverged runs")


def _scale_axis(panel: "Axes", values: list[float]) -> None:
    """Puts ticks at the grid's own values, as far as there is room."""
    if values and values[0] > 0 and values[-1] / values[0] >= WIDE:
        panel.set_xscale("log", base=2)
    shown = values[:: -math.ceil(max(1, len(values)) / 7)][::-1]
    panel.set_xticks(shown, [f"{value:.6g}" for value in shown])
    panel.minorticks_off()


def _to_number(value: Any) -> float | None:
    """Returns a setting's value as a number, also of a text such as "1e-3"; None for anything else."""
    try:
        return None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None
