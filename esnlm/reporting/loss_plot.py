"""A plot of the loss of a run over the tokens it has seen, beside what it should be compared with."""

import json
from typing import Any

import numpy as np

from esnlm.reporting import plots
from esnlm.runs.directory import RunDirectory

POINTS = 120  # of the training curve, evenly spaced on its logarithmic axis; the losses between two are averaged


def plot_loss(directory: RunDirectory, references: dict[str, float]) -> str:
    """Plots the loss of a run, as metrics.jsonl has it, in plots/loss.png.

    Args:
        references: NLL in nats per token, by name, for horizontal lines.

    Returns:
        The path of the plot, or the reason why there is none.
    """
    lines = [json.loads(line) for line in directory.metrics.read_text().splitlines()]
    tokens_at = {line["step"]: line["tokens"] for line in lines if "tokens" in line}
    training, validation = (points(lines, name, tokens_at) for name in ("train_nll", "val_nll"))
    if not len(training):
        return "none, as no loss was finite"
    scale, unit = (1e6, "million tokens") if training[-1, 0] > 2e6 else (1e3, "thousand tokens")

    made = plots.figure(7.5, 4.5)
    if made is None:
        return f"none, as {plots.NO_MATPLOTLIB}"
    figure, axes = made[0], made[1][0, 0]
    curve = averaged(training)
    marker = "_" if len(curve) == 1 else ""  # A readout that was solved for has one training loss.
    axes.plot(curve[:, 0] / scale, curve[:, 1], color="C0", linewidth=1.6, marker=marker, label="training")
    if len(validation):
        axes.plot(validation[:, 0] / scale, validation[:, 1], "o", color="C1", label="validation", zorder=3)
    for nll in references.values():
        axes.axhline(nll, color="0.55", linewidth=0.8, linestyle="--")
    for name, nll in _without_overlaps(references, axes.get_ylim()).items():
        axes.annotate(
            name,
            (0.01, nll),
            xycoords=("axes fraction", "data"),
            xytext=(0, 3),
            textcoords="offset points",
            fontsize=8,
            color="0.35",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},  # the first updates may cross it
            zorder=4,
        )
    axes.set(xlabel=f"{unit} seen", ylabel="NLL, nats per token", title=directory.path.resolve().name, xscale="log")
    if training[:, 1].max() > 1000:  # a run that diverged
        axes.set_yscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.legend(frameon=False, loc="best")
    file = directory.plots / "loss.png"
    plots.save_png(figure, file)
    return str(file)


def points(lines: list[dict[str, Any]], name: str, tokens_at: dict[int, int]) -> np.ndarray:
    """Returns (tokens, NLL) of the lines that have a finite NLL of this name, (n, 2)."""
    found = [
        (tokens_at[line["step"]], float(line[name])) for line in lines if name in line and line["step"] in tokens_at
    ]
    return np.array([point for point in found if np.isfinite(point[1])]).reshape(-1, 2)


def averaged(training: np.ndarray) -> np.ndarray:
    """Returns the curve (tokens, NLL), averaged between POINTS points, (at most POINTS, 2)."""
    bounds = np.geomspace(training[0, 0], training[-1, 0], POINTS)
    group = np.searchsorted(bounds, training[:, 0])
    return np.array([training[group == g].mean(axis=0) for g in np.unique(group)])


def _without_overlaps(references: dict[str, float], limits: tuple[float, float]) -> dict[str, float]:
    """Returns one label for lines that are too close to tell apart: the last of them, which says most."""
    tolerance = 0.03 * (limits[1] - limits[0])
    return {
        name: nll
        for i, (name, nll) in enumerate(references.items())
        if all(abs(nll - other) > tolerance for other in list(references.values())[i + 1 :])
    }
