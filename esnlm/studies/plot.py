"""Plots a grid: losses and minimal-pair accuracies of its cells, with published values."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from esnlm.reports import plots
from esnlm.reports.plots import COLOURS, FAINT, INK
from esnlm.studies.measures import MEASURES

PANELS = ("train_nll", "val_nll", "blimp")
FAR = 100.0  # a larger ratio of losses, as with diverged runs, needs a logarithmic scale
UNKNOWN = (math.nan,) * 3


def plot_grid(tree: Mapping[str, Any]) -> bytes | None:
    """Returns a PNG of the content of table.json, or None if nothing is measured yet or matplotlib
    is missing."""
    cells, published = (
        {cell["cell"]: cell["means"] for cell in tree["cells"]},
        tree["reference"]["cells"],
    )
    names = list(dict.fromkeys([*cells, *published]))
    found = {
        key: np.array([_mean(cells[name][key]) if name in cells else UNKNOWN for name in names])
        for key in PANELS
    }
    panels = [key for key in PANELS if np.isfinite(found[key]).any()]
    size = 3 + 3.6 * len(panels), 0.26 * len(names) + 1.5
    made = plots.figure(*size, columns=len(panels), sharey=True) if panels else None
    if made is None:
        return None
    figure, (axes,) = made
    rows = np.arange(len(names))
    for key, panel in zip(panels, axes, strict=True):
        mean, low, high = found[key].T
        style = {"fmt": "o", "color": COLOURS[0], "capsize": 2, "label": "this study"}
        panel.errorbar(mean, rows, xerr=[mean - low, high - mean], **style)
        if published:
            mean, error = np.array(
                [published.get(name, {}).get(key) or UNKNOWN[:2] for name in names], float
            ).T
            style |= {
                "fmt": "D",
                "color": COLOURS[1],
                "markerfacecolor": "white",
                "label": "published",
                "zorder": 1,
            }
            panel.errorbar(mean, rows, xerr=np.nan_to_num(error), **style)
        known = found[key][np.isfinite(found[key])]
        panel.set(
            xlabel=MEASURES[key][0],
            xscale="log" if 0 < FAR * known.min() < known.max() else "linear",
        )
        panel.grid(color=FAINT, linewidth=0.5, alpha=0.6)
    axes[0].set_yticks(rows, names)
    axes[0].set_ylim(len(names) - 0.5, -0.5)
    title = f"{tree['study']}: means, with 95 % intervals for three or more seeds"
    figure.suptitle(title, x=0.02, ha="left", color=INK, fontsize=10)
    figure.legend(
        *axes[0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=2,
        frameon=False,
        fontsize=9,
    )
    return plots.picture(figure)


def _mean(found: Mapping[str, Any]) -> tuple[float, float, float]:
    """Returns a mean and the bounds of its interval, nan if not finite."""
    mean = found["mean"]
    return (
        UNKNOWN
        if mean is None or not math.isfinite(mean)
        else (mean, *(found["interval"] or (mean, mean)))
    )
