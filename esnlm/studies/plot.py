"""The picture of a grid: losses and minimal pairs along its numeric axis, or cell by cell."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from esnlm.reporting import plots
from esnlm.reporting.plots import COLOURS, INK
from esnlm.studies.measures import MEASURES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS = ("train_nll", "val_nll", "blimp")
FAR = 100.0  # losses whose ratio is larger, as those of runs that diverged, have a logarithmic scale

Tree = Mapping[str, Any]


def plot_grid(tree: Tree) -> bytes | None:
    """Returns a PNG of what table.json holds, or None if nothing is measured yet or matplotlib is missing.

    The axis has the values of the numeric setting with the most, evenly spaced; cells that differ in anything else are on lines of
    their own. Without such a setting, or with more lines than there are colours, the cells stand side by side.
    """
    cells = tree["cells"]
    key = find_axis(cells)
    if len({_line(cell, key) for cell in cells}) > len(COLOURS):
        key = None
    values = [cell["cell"] if key is None else to_number(cell["values"].get(key)) for cell in cells]
    ticks = values if key is None else sorted({value for value in values if value is not None})
    lines: dict[str, list[tuple[int, Tree]]] = {}  # cells with their places on the axis, -1 for none
    for cell, value in zip(cells, values, strict=True):
        lines.setdefault(_line(cell, key), []).append((-1 if value is None else ticks.index(value), cell))
    panels = [name for name in PANELS if any(_is_finite(cell["means"][name]["mean"]) for cell in cells)]
    made = plots.figure(min(5.2 * len(panels), 15), 4.6, columns=len(panels)) if panels else None
    if made is None:
        return None
    figure, (axes,) = made
    for name, panel in zip(panels, axes, strict=True):
        for (line, its), colour in zip(lines.items(), COLOURS, strict=False):
            its = sorted(its, key=lambda pair: pair[0])
            _draw(panel, its, [_mean(cell, name) for _, cell in its], color=colour, label=line or "this study")
            published = [_published(tree, cell, name) for _, cell in its]
            _draw(panel, its, published, color=colour, linestyle="--", markerfacecolor="white")
        means = [cell["means"][name]["mean"] for cell in cells if _is_finite(cell["means"][name]["mean"])]
        is_far = min(means) > 0 and max(means) / min(means) > FAR
        panel.set(ylabel=MEASURES[name][0], yscale="log" if is_far else "linear")
        panel.set_xlabel("" if key is None else key.rpartition(".")[2].replace("_", " "))
        labels = ticks if key is None else [f"{value:.6g}" for value in ticks]
        panel.set_xticks(
            range(len(ticks)), labels, rotation=90 if len(ticks) > 7 or key is None else 0, parse_math=False
        )
    title = "means, with 95 % intervals from three seeds on; dashed: published; x: with diverged runs"
    figure.suptitle(f"{tree['study']}: {title}", x=0.02, ha="left", color=INK, fontsize=10)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    return plots.png(figure)


def find_axis(cells: Sequence[Tree]) -> str | None:
    """Returns the key with the most values, among those with at least two values that are all numbers."""
    values: dict[str, set[float | None]] = {}
    for cell in cells:
        for key, value in cell["values"].items():
            values.setdefault(key, set()).add(to_number(value))
    numeric = [key for key, found in values.items() if None not in found and len(found) > 1]
    return max(numeric, key=lambda key: len(values[key]), default=None)


def _line(cell: Tree, key: str | None) -> str:
    """Returns the name of the line that a cell is on; "" if nothing but the axis differs."""
    if key is None:
        return ""
    others = [f"{name.rpartition('.')[2]} {value}" for name, value in cell["values"].items() if name != key]
    return ", ".join(filter(None, [cell["case"], *others])) if key in cell["values"] else str(cell["cell"])


def _mean(cell: Tree, measure: str) -> tuple[float, float, float]:
    """Returns a mean and the ends of its interval, nan if it is not finite."""
    mean, interval = cell["means"][measure]["mean"], cell["means"][measure]["interval"]
    return (mean, *(interval or (mean, mean))) if _is_finite(mean) else (math.nan,) * 3


def _published(tree: Tree, cell: Tree, measure: str) -> tuple[float, float, float]:
    mean, error = tree["reference"]["cells"].get(cell["cell"], {}).get(measure) or (math.nan, None)
    return mean, mean - (error or 0), mean + (error or 0)


def _draw(panel: "Axes", cells: list[tuple[int, Tree]], found: list[tuple[float, float, float]], **style: Any) -> None:
    """Draws the means of a line with their bars; a cell without a place on the axis is a level line."""
    means, low, high = np.array(found).T
    if np.isnan(means).all():
        return
    if cells[0][0] < 0:
        panel.axhline(means[0], linewidth=1.2, color=style["color"], linestyle=style.get("linestyle", "-"))
        panel.axhspan(low[0], high[0], color=style["color"], alpha=0.12, linewidth=0, label=style.get("label"))
        return
    places = np.array([place for place, _ in cells])
    panel.errorbar(places, means, [means - low, high - means], marker="o", markersize=5, capsize=2, **style)
    if "linestyle" not in style:
        diverged = [any(run["status"] == "diverged" for run in cell["runs"]) for _, cell in cells]
        panel.scatter(places[diverged], means[diverged], marker="x", s=90, color=INK, zorder=6)


def _is_finite(mean: float | None) -> bool:
    return mean is not None and math.isfinite(mean)


def to_number(value: Any) -> float | None:
    """Returns a setting's value as a number, also of a text such as "1e-3"; None for anything else."""
    try:
        return None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None
