"""Plots the losses of runs by words read and by minutes of training."""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from esnlm.base.errors import InputError
from esnlm.reports import plots
from esnlm.reports.plots import COLOURS, FAINT, INK
from esnlm.reports.run_groups import devices_of, group_by_seed, identify, name_group, tell_apart
from esnlm.reports.run_table import on_comparing
from esnlm.runs.directory import RunDirectory

# of the training curve, evenly spaced on its logarithmic axis; losses between two points are
# averaged
POINTS = 120
# [ours] nats: runs that end above this are named but not drawn, so that the others stay distinct
FAR = 30.0
# nats from the worst last loss to the top of the plot: the first updates are far higher
ABOVE = 1.5
AXES = {
    "words": "million words read",
    "tokens": "million tokens read",
    "minutes": "minutes of training",
}


class Curves(NamedTuple):
    """The losses of a run: for each axis of AXES, an array of (position, NLL in nats per token)."""

    training: dict[str, np.ndarray]  # (n, 2), means over the updates between two points
    validation: dict[str, np.ndarray]  # (m, 2)


def read_curves(run: Path) -> Curves:
    """Reads the finite losses of a run.

    The axes are words (if the run counted them), tokens (both in millions) and minutes. Minutes
    include compilation and checkpoints, but not validation and pauses.
    """
    directory = RunDirectory(run)
    file = directory.metrics
    try:
        text = file.read_bytes()
        # A run in progress may have written only half of its last line.
        if directory.read_summary(warn=lambda line: None) is None:
            text = text[: text.rfind(b"\n") + 1]
        lines = [json.loads(line) for line in text.splitlines()]
        # A readout that is solved for logs its one loss without words; the words of the line before
        # are right too.
        counted = (line for line in lines if "tokens" in line)
        logged = list(itertools.accumulate(counted, lambda before, line: before | line))
        places = {"tokens": {line["step"]: line["tokens"] / 1e6 for line in logged}}
        places["minutes"] = {
            line["step"]: line["tokens"] / line["tokens_per_second"] / 60 for line in logged
        }
        if all("words" in line for line in logged):
            places["words"] = {line["step"]: line["words"] / 1e6 for line in logged}
        training = {
            axis: averaged(points(lines, "train_nll", place)) for axis, place in places.items()
        }
        validation = {axis: points(lines, "val_nll", place) for axis, place in places.items()}
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError):
        raise InputError(f"{file}: missing or damaged; restore it from a copy of the run") from None
    return Curves(training, validation)


def points(lines: Sequence[dict[str, Any]], name: str, place_of: dict[int, float]) -> np.ndarray:
    """Returns (position, NLL), (n, 2), of the lines with a finite NLL of this name, given the
    position of each step."""
    found = [
        (place_of[line["step"]], float(line[name]))
        for line in lines
        if name in line and line["step"] in place_of
    ]
    return np.array([point for point in found if np.isfinite(point[1])]).reshape(-1, 2)


def averaged(training: np.ndarray) -> np.ndarray:
    """Returns the curve (position, NLL), averaged between POINTS points, (at most POINTS, 2)."""
    if not len(training):
        return training
    bounds = np.geomspace(training[0, 0], training[-1, 0], POINTS)
    group = np.searchsorted(bounds, training[:, 0])
    return np.array([training[group == g].mean(axis=0) for g in np.unique(group)])


def plot_losses(
    runs: Sequence[Path], out: Path, seeds: bool = False, ended: dict[str, Any] | None = None
) -> str:
    """Draws the losses of runs by words read and, if they had the same device, by minutes of
    training, to a file.

    Runs that are still training are drawn up to their last line.

    Args:
        seeds: whether runs that differ only in their seed share one colour and one name.
        ended: the summary of one run, which may not be written yet; its references become
            horizontal lines.

    Returns:
        Lines to print: the written file and the runs left out, or the reason why there is no plot.
    """
    rows = [identify(run, ended) for run in runs]
    tell_apart(rows, runs)
    curves = {row["run"]: read_curves(run) for row, run in zip(rows, runs, strict=True)}
    if empty := [name for name, each in curves.items() if not each.training["tokens"].size]:
        return f"no plot: {empty[0]} has no finite training loss yet"
    groups = group_by_seed(rows) if seeds else [[row] for row in rows]
    devices = devices_of([row for row in rows if row["summary"] is not None])
    read = "words" if all("words" in each.training for each in curves.values()) else "tokens"
    shown = [read] if len(devices) > 1 else [read, "minutes"]
    levels = {
        name: nll for name, nll in (ended or {}).get("references", {}).items() if np.isfinite(nll)
    }
    # The first updates, and runs that end above FAR, lie above the plot.
    every = np.concatenate(
        [*(nll["tokens"][:, 1] for each in curves.values() for nll in each), list(levels.values())]
    )
    tokens = {
        name: [its["tokens"] for its in each if its["tokens"].size] for name, each in curves.items()
    }
    ends = {name: max(float(its[-1, 1]) for its in each) for name, each in tokens.items()}
    last = [*ends.values(), *levels.values()]
    lowest, most = every.min() - 0.1, every.max() + 0.1
    highest = min(max([end for end in last if end <= FAR] or last) + ABOVE, most)
    width = 1.5 + 4.75 * len(shown)
    made = plots.figure(width, 4.6, columns=len(shown), sharey=True)
    if made is None:
        return f"no plot: {plots.NO_MATPLOTLIB}"
    from matplotlib.ticker import LogLocator

    figure, [axes] = made
    for panel, axis in zip(axes, shown, strict=True):
        for group, colour in zip(groups, itertools.cycle(COLOURS)):
            going = ", not finished" if any(row["summary"] is None for row in group) else ""
            above = ", above the plot" if any(ends[row["run"]] > highest for row in group) else ""
            name: str | None = f"{name_group(group)}{going}{above}"
            for each in (curves[row["run"]] for row in group):
                line = each.training[axis]
                # a solved readout has only one training loss
                marker = "_" if len(line) == 1 else ""
                panel.plot(*line.T, color=colour, linewidth=1.4, marker=marker, label=name)
                panel.plot(*each.validation[axis].T, "o", color=colour, markersize=5, zorder=3)
                name = None  # once in the legend
        for nll in levels.values():
            panel.axhline(nll, color="0.55", linewidth=0.8, linestyle="--")
        for reference in plots.apart(levels, 0.03 * (highest - lowest)):
            place = {
                "xycoords": ("axes fraction", "data"),
                "xytext": (0, 3),
                "textcoords": "offset points",
            }
            panel.annotate(reference, (0.01, levels[reference]), fontsize=8, color="0.35", **place)
        panel.set(xlabel=AXES[axis], xscale="log")
        panel.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        panel.xaxis.set_major_formatter("{x:g}")
        panel.minorticks_off()
        panel.grid(color=FAINT, linewidth=0.5, alpha=0.6)
    axes[0].set(ylabel="NLL, nats per token", ylim=(lowest, highest))
    figure.legend(
        *axes[0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=2,
        frameon=False,
        fontsize=9,
    )
    notes = list(on_comparing(rows))  # also in the title, which stays with the picture
    title = "\n".join(["lines: training. dots: validation", *notes])
    figure.suptitle(title, x=0.01, ha="left", fontsize=10, color=INK, wrap=True)
    plots.save(figure, out)
    if len(devices) > 1:
        notes.append(f"no minutes: times are from different devices, {' and '.join(devices)}")
    return "\n".join([*notes, f"written: {out}"])
