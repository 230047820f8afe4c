"""The picture of a grid: losses and minimal pairs along its numeric axis, beside what was published."""

import io
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from esnlm.studies.grid import MEASURES, Grid, short

PANELS = ("train_nll", "val_nll", "perplexity", "blimp")
INK = "#22262b"
COLOURS = ("#c8102e", "#1f6fb2", "#2a9d8f", "#e0a100", "#7b5ea7", "#8c6d31", "#6b8e23", "#d76ba3")
WIDE = 16.0  # from this ratio of its ends on, an axis is logarithmic


class Point(NamedTuple):
    x: float
    mean: float
    error: float
    diverged: bool


def draw(grid: Grid, cells: list[dict]) -> bytes | None:
    """A PNG, or None: no numeric axis in the grid, nothing to draw yet, or no matplotlib.

    The axis is the numeric key with the most values; everything else that differs makes a line of its own, and a cell
    that has no place on the axis a level across it.

    Args:
        cells: from `grid_table.collect`.
    """
    key = axis(cells)
    if key is None:
        return None
    measured = {name: _lines(cells, key, lambda cell, name=name: _measured(cell, name)) for name in PANELS}
    published = {name: _lines(cells, key, lambda cell, name=name: _published(grid, cell, name)) for name in PANELS}
    # Perplexity is the NLL again, but where it is what was published.
    panels = [name for name in PANELS if measured[name] and (name != "perplexity" or published[name])]
    if not panels:
        return None
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    figure = Figure(figsize=(min(5.2 * len(panels), 15), 4.4), layout="constrained")
    series = list(dict.fromkeys(name for panel in panels for name in (*measured[panel], *published[panel])))
    values = sorted({float(cell["values"][key]) for cell in cells if key in cell["values"]})
    for name, axes in zip(panels, figure.subplots(1, len(panels), squeeze=False)[0], strict=True):
        drawn = []
        for i, line in enumerate(series):
            colour = COLOURS[i % len(COLOURS)]
            drawn += _plot(axes, measured[name].get(line, []), colour, line or "this study", whole=True)
            drawn += _plot(
                axes, published[name].get(line, []), colour, f"{line}, published" if line else "published", whole=False
            )
        if drawn and min(drawn) > 0 and max(drawn) / min(drawn) > 100:  # runs that diverged
            axes.set_yscale("log")
        _scale(axes, values)
        axes.set(xlabel=short([key])[key].replace("_", " "), ylabel=MEASURES[name][0])
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(colors=INK)
    shown = {
        label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.suptitle(f"{grid.name}: mean and one standard error", x=0.02, ha="left", color=INK, parse_math=False)
    figure.legend(
        shown.values(),
        shown.keys(),
        loc="outside lower center",
        ncols=2 * len(panels),
        frameon=False,
        fontsize=9,
        labelcolor=INK,
    )
    picture = io.BytesIO()
    figure.savefig(picture, dpi=150, format="png")
    return picture.getvalue()


def axis(cells: list[dict]) -> str | None:
    """The grid's key with the most values, of those whose values are all numbers and at least two."""
    values: dict[str, set] = {}
    for cell in cells:
        for key, value in cell["values"].items():
            values.setdefault(key, set()).add(_float(value))
    numeric = [key for key, its in values.items() if None not in its and len(its) > 1]
    return max(numeric, key=lambda key: len(values[key]), default=None)


def _lines(cells: list[dict], key: str, value_of) -> dict[str, list[Point]]:
    """The points of each line, by its name: "" where nothing but the axis differs. A level has its x at nan."""
    lines: dict[str, list[Point]] = {}
    names = short(list(dict.fromkeys(name for cell in cells for name in cell["values"])))
    for cell in cells:
        found = value_of(cell)
        if found is None or not math.isfinite(found[0]):
            continue
        others = [f"{names[name]} {value}" for name, value in cell["values"].items() if name != key]
        name = ", ".join([cell["case"]] * bool(cell["case"]) + others) if key in cell["values"] else cell["cell"]
        x = _float(cell["values"].get(key, math.nan))
        diverged = any(run["status"] == "diverged" for run in cell["runs"])
        lines.setdefault(name, []).append(
            Point(x, found[0], found[1] if found[1] is not None and math.isfinite(found[1]) else 0.0, diverged)
        )
    return {name: sorted(points) for name, points in lines.items()}


def _measured(cell: dict, name: str) -> tuple[float, float | None] | None:
    its = cell["means"][name]
    return None if its["mean"] is None else (its["mean"], its["se"])


def _published(grid: Grid, cell: dict, name: str) -> tuple[float, float | None] | None:
    return grid.published.get(cell["cell"], {}).get(name)


def _plot(axes, points: Sequence[Point], colour: str, label: str, whole: bool) -> list[float]:
    """Draws a line or a level, and returns its heights."""
    style: dict[str, Any] = {
        "color": colour,
        "linewidth": 1.8 if whole else 1.0,
        "linestyle": "-" if whole else (0, (4, 3)),
    }
    if points and math.isnan(points[0].x):
        axes.axhline(points[0].mean, **style | {"linestyle": "-." if whole else ":"}, label=label)
    elif points:
        x, means, errors = [p.x for p in points], [p.mean for p in points], [p.error for p in points]
        fill = colour if whole else "white"
        axes.errorbar(
            x,
            means,
            errors,
            marker="o",
            markersize=5,
            markerfacecolor=fill,
            capsize=2,
            label=label,
            zorder=3 + whole,
            **style,
        )
        lost = [p for p in points if p.diverged] if whole else []
        if lost:
            cross = {"marker": "x", "s": 90, "color": INK, "zorder": 6, "label": "with diverged runs"}
            axes.scatter([p.x for p in lost], [p.mean for p in lost], **cross)
    return [p.mean for p in points]


def _scale(axes, values: list[float]) -> None:
    """Ticks at the grid's own values, as many as there is room for; logarithmic where they span much."""
    wide = values[0] > 0 and values[-1] / values[0] >= WIDE
    if wide:
        axes.set_xscale("log", base=2)
    powers = wide and all(math.log2(value).is_integer() for value in values) and values[0] < 1
    every = math.ceil(len(values) / 9)
    shown = values[::-every][::-1]
    axes.set_xticks(shown, [f"$2^{{{math.log2(value):.0f}}}$" if powers else f"{value:g}" for value in shown])
    axes.minorticks_off()


def _float(value) -> float | None:
    try:
        return None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None
