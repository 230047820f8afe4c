"""The pictures of the bottleneck studies, as PNG bytes; None if matplotlib is not installed."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from esnlm.reporting import plots
from esnlm.reporting.plots import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_against_width(panels: dict[str, list[dict[str, Any]]], sizes: list[int]) -> bytes | None:
    """Plots rows of panels for each quantity: mean over seeds with its standard deviation, and the fits, dashed.

    Args:
        panels: for each quantity one dict per case: its name, mean and deviation (widths, layers), and fits.
        sizes: the widths n.
    """
    most = max(map(len, panels.values()))
    columns = most if most <= 3 else 2  # a picture of three is still read at the width of a page
    shown = [
        (quantity, cases[i : i + columns]) for quantity, cases in panels.items() for i in range(0, len(cases), columns)
    ]
    made = plots.figure(3 * columns + 0.6, 3.9 * len(shown) + 0.3, len(shown), columns, sharey="row")
    if made is None:
        return None
    figure, rows = made
    for row, (quantity, cases) in zip(rows, shown, strict=True):
        for axes, case in zip(row, cases, strict=False):
            for i, fit in enumerate(case["fits"]):
                colour, mean, deviation = COLOURS[i % len(COLOURS)], case["mean"][:, i], case["deviation"][:, i]
                label = f"l = {i + 1}, n^{fit.slope:+.2f} [{fit.low:+.2f}, {fit.high:+.2f}]"
                axes.plot(sizes, mean, "o", markersize=3, color=colour, label=label)
                _plot_band(axes, sizes, mean, deviation, colour)
                fitted = np.exp(fit.constant) * np.array(sizes, float) ** fit.slope
                axes.plot(sizes, fitted, "--", color=colour, linewidth=1)
            axes.set(xscale="log", yscale="log")
            axes.set_xticks([sizes[0], sizes[-1]], [f"{size:,}" for size in (sizes[0], sizes[-1])], fontsize=9)
            axes.set_xticks([], minor=True)
            axes.set_title(case["name"].replace(", sigma_1", ",\nsigma_1"), fontsize=10)
            axes.set_xlabel("n", fontsize=10)
            axes.legend(fontsize=9, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.2))  # below the curves
        row[0].set_ylabel(quantity)
    return _to_png(figure)


def plot_by_epoch(panels: dict[str, dict[str, dict[str, np.ndarray]]]) -> bytes | None:
    """Plots a panel for each pair of classes: mean and standard deviation of the losses, training solid, test dashed.

    Args:
        panels: pair -> parametrization -> "train" or "test" -> losses (seeds, epochs + 1).
    """
    down, across = math.ceil(len(panels) / 2), min(2, len(panels))
    made = plots.figure(4.6 * across + 0.6, 3.2 * down + 0.3, down, across, sharey="row")
    if made is None:
        return None
    figure, rows = made
    for axes, (pair, kinds) in zip(rows.flat, panels.items(), strict=False):
        for colour, (kind, parts) in zip(COLOURS, kinds.items(), strict=False):
            for (part, losses), style in zip(parts.items(), ("-", "--"), strict=True):
                finite = losses[np.isfinite(losses).all(axis=1)]
                if not len(finite):
                    continue
                epochs, mean = np.arange(losses.shape[1]), finite.mean(axis=0)
                fewer = "" if len(finite) == len(losses) else f" ({len(finite)} of {len(losses)} seeds)"
                axes.plot(epochs, mean, style, color=colour, linewidth=1.4, label=f"{kind}, {part}{fewer}")
                _plot_band(axes, epochs, mean, finite.std(axis=0), colour)
        axes.set(yscale="log", xlabel="epoch", ylabel="loss", title=pair)
        axes.legend(fontsize=7, frameon=False)
    return _to_png(figure)


def _plot_band(axes: "Axes", x: Any, mean: np.ndarray, deviation: np.ndarray, colour: str) -> None:
    """Shades one standard deviation on either side, above a tenth of the mean: the axis is logarithmic."""
    low = np.maximum(mean - deviation, mean / 10)
    axes.fill_between(x, low, mean + deviation, color=colour, alpha=0.12, linewidth=0)


def _to_png(figure: "Figure") -> bytes:
    for axes in figure.axes:
        axes.set_visible(axes.has_data())
    return plots.png(figure)
