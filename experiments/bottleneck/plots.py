"""The pictures of the bottleneck studies, as PNG bytes; None where matplotlib is not installed."""

import io
import math

import numpy as np

COLOURS = ("#c8102e", "#1f6fb2", "#2a9d8f", "#e0a100", "#7b5ea7", "#8c6d31")


def against_width(panels: dict[str, list[dict]], sizes: list[int]) -> bytes | None:
    """A row of panels for each quantity: mean over seeds with its standard deviation, and the fits, dashed.

    Args:
        panels: by the quantity's name, one dict a case: its name, the mean and deviation (widths, layers), and fits.
    """
    most = max(map(len, panels.values()))
    axes_of = _axes(len(panels), most, 2.9, 2.9)
    if axes_of is None:
        return None
    figure, rows = axes_of
    for row, (quantity, cases) in zip(rows, panels.items(), strict=True):
        for axes, case in zip(row, cases, strict=False):
            for i, fit in enumerate(case["fits"]):
                colour, mean, deviation = COLOURS[i % len(COLOURS)], case["mean"][:, i], case["deviation"][:, i]
                label = f"l = {i + 1}: {fit.slope:+.2f} ± {fit.error:.2f}"
                axes.plot(sizes, mean, "o", markersize=3, color=colour, label=label)
                axes.fill_between(
                    sizes,
                    np.maximum(mean - deviation, mean / 10),
                    mean + deviation,
                    color=colour,
                    alpha=0.12,
                    linewidth=0,
                )
                axes.plot(
                    sizes, np.exp(fit.constant) * np.array(sizes, float) ** fit.slope, "--", color=colour, linewidth=1
                )
            axes.set(xscale="log", yscale="log")
            axes.set_xticks([sizes[0], sizes[-1]], [f"{size:,}" for size in (sizes[0], sizes[-1])])
            axes.set_xticks([], minor=True)
            axes.set_title(case["name"], fontsize=9)
            axes.set_xlabel("n", fontsize=9)
            axes.legend(fontsize=6, frameon=False, title="slope", title_fontsize=6)
        row[0].set_ylabel(quantity)
    return _png(figure)


def by_epoch(panels: dict[str, dict[str, dict[str, np.ndarray]]]) -> bytes | None:
    """A panel for each pair of classes: losses (seeds, epochs + 1), mean and standard deviation, training solid and test dashed."""
    axes_of = _axes(math.ceil(len(panels) / 2), min(2, len(panels)), 4.6, 3.2)
    if axes_of is None:
        return None
    figure, rows = axes_of
    for axes, (pair, kinds) in zip(rows.flat, panels.items(), strict=False):
        for colour, (kind, parts) in zip(COLOURS, kinds.items(), strict=False):
            for (part, losses), style in zip(parts.items(), ("-", "--"), strict=True):
                seeds, losses = len(losses), losses[np.isfinite(losses).all(axis=1)]
                if not len(losses):
                    continue
                epochs, mean, deviation = np.arange(losses.shape[1]), losses.mean(axis=0), losses.std(axis=0)
                label = (
                    f"{kind}, {part}" if len(losses) == seeds else f"{kind}, {part} ({len(losses)} of {seeds} seeds)"
                )
                axes.plot(epochs, mean, style, color=colour, linewidth=1.4, label=label)
                axes.fill_between(
                    epochs,
                    np.maximum(mean - deviation, mean / 10),
                    mean + deviation,
                    color=colour,
                    alpha=0.12,
                    linewidth=0,
                )
        axes.set(yscale="log", xlabel="epoch", ylabel="loss", title=pair)
        axes.legend(fontsize=7, frameon=False)
    return _png(figure)


def _axes(rows: int, columns: int, width: float, height: float):
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    figure = Figure(figsize=(width * columns + 0.6, height * rows + 0.3), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharey="row")
    for each in axes.flat:
        each.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _png(figure) -> bytes:
    for axes in figure.axes:
        axes.set_visible(axes.has_data())
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=130, format="png")
    return buffer.getvalue()
