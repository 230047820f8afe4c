"""Plots the losses of runs by words read and by minutes of training."""

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from esnlm.base.errors import InputError
from esnlm.base.files import write_file, writing
from esnlm.reports import plots
from esnlm.reports.figures import NATS
from esnlm.reports.run_table import (
    Group,
    comparability_notes,
    devices_of,
    identify,
    make_groups,
    name_group,
    with_distinct_names,
)
from esnlm.runs.directory import RunDirectory

# Number of points of the training curve, evenly spaced on its logarithmic axis; losses between two
# points are averaged.
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
    file = RunDirectory(run).metrics
    try:
        # A run in progress may have written only half of its last line.
        whole_lines, _, _ = file.read_bytes().rpartition(b"\n")
        lines = [json.loads(line) for line in whole_lines.splitlines()]
        # A readout that is solved for logs its one loss without words; the words of the line before
        # are right too.
        counted = (line for line in lines if "tokens" in line)
        logged = list(itertools.accumulate(counted, lambda before, line: before | line))
        positions = {
            "tokens": {line["step"]: line["tokens"] / 1e6 for line in logged},
            "minutes": {
                line["step"]: line["tokens"] / line["tokens_per_second"] / 60 for line in logged
            },
        }
        if all("words" in line for line in logged):
            positions["words"] = {line["step"]: line["words"] / 1e6 for line in logged}
        return Curves(
            {axis: _average(_points(lines, "train_nll", of)) for axis, of in positions.items()},
            {axis: _points(lines, "val_nll", of) for axis, of in positions.items()},
        )
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError):
        raise InputError(f"{file}: missing or damaged; restore it from a copy of the run") from None


def _points(
    lines: Sequence[dict[str, Any]], name: str, position_of: Mapping[int, float]
) -> np.ndarray:
    """Returns (position, NLL), (n, 2), of the lines with a finite NLL of this name."""
    points = [
        (position_of[line["step"]], float(line[name]))
        for line in lines
        if name in line and line["step"] in position_of
    ]
    return np.array([point for point in points if np.isfinite(point[1])]).reshape(-1, 2)


def _average(training: np.ndarray) -> np.ndarray:
    """Returns the curve (position, NLL), averaged between POINTS points, (at most POINTS, 2)."""
    # Updates of a document may read no whole word, and the logarithmic axis begins above 0.
    training = training[training[:, 0] > 0]
    if not len(training):
        return training
    bounds = np.geomspace(training[0, 0], training[-1, 0], POINTS)
    group = np.searchsorted(bounds, training[:, 0])
    return np.array([training[group == g].mean(axis=0) for g in np.unique(group)])


def plot_losses(
    runs: Sequence[Path], out: Path, seeds: bool = False, ended: dict[str, Any] | None = None
) -> str:
    """Draws the losses of runs to a file.

    The axes are words read and, if the runs had the same device, minutes of training. Runs that are
    still training are drawn up to their last line.

    Args:
        seeds: whether runs that differ only in their seed share one colour and one name.
        ended: the summary of one run, which may not be written yet; its references become
            horizontal lines.

    Returns:
        Lines to print: the written file and the runs left out, or the reason why there is no plot.
    """
    records = with_distinct_names([identify(run, ended) for run in runs], runs)
    curves = {record.run: read_curves(run) for record, run in zip(records, runs, strict=True)}
    if empty := [name for name, curve in curves.items() if not curve.training["tokens"].size]:
        return f"no plot: {empty[0]} has no finite training loss yet"
    groups = make_groups(records, seeds)
    picture, reason = plots.render(lambda: draw_losses(groups, curves, ended), out.suffix)
    if picture is None:
        return reason or ""
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    write_file(out, picture)
    notes = list(comparability_notes(records))
    devices = devices_of(records)
    if len(devices) > 1:
        notes.append(f"no minutes: times are from different devices, {' and '.join(devices)}")
    return "\n".join([*notes, f"written: {out}"])


def draw_losses(
    groups: Sequence[Group], curves: Mapping[str, Curves], summary: dict[str, Any] | None = None
) -> "plots.Figure":
    """Draws the losses of groups of records, one colour per group.

    Args:
        curves: by the names of the runs.
        summary: of a single run; its references become horizontal lines.
    """
    records = [record for group in groups for record in group]
    references = {name: float(nll) for name, nll in (summary or {}).get("references", {}).items()}
    levels = {name: nll for name, nll in references.items() if np.isfinite(nll)}
    has_words = all("words" in curves[record.run].training for record in records)
    names = ["words" if has_words else "tokens"] + ["minutes"] * (len(devices_of(records)) < 2)
    losses = {
        record.run: [part["tokens"][:, 1] for part in curves[record.run]] for record in records
    }
    lasts = {run: max(part[-1] for part in parts if part.size) for run, parts in losses.items()}
    # The first updates, and runs that end above FAR, lie above the plot.
    ends = [*lasts.values(), *levels.values()]
    top = max([end for end in ends if end <= FAR] or ends) + ABOVE
    every = np.concatenate(
        [*(part for parts in losses.values() for part in parts), [*levels.values()]]
    )
    lowest, highest = every.min() - 0.1, min(top, every.max() + 0.1)
    figure, [axes] = plots.figure(1.5 + 4.75 * len(names), 4.6, columns=len(names), sharey=True)
    for panel, axis in zip(axes, names, strict=True):
        for group, colour in zip(groups, itertools.cycle(plots.COLOURS)):
            label = name_group(group)
            if not all(record.summary for record in group):
                label += ", not finished"
            if any(lasts[record.run] > highest for record in group):
                label += ", above the plot"
            for record in group:
                training, validation = (part[axis] for part in curves[record.run])
                # A solved readout has only one training loss.
                marker = "_" if len(training) == 1 else ""
                panel.plot(*training.T, color=colour, linewidth=1.4, marker=marker, label=label)
                panel.plot(*validation.T, "o", color=colour, markersize=5, zorder=3)
                label = "_"  # once in the legend
        for nll in levels.values():
            panel.axhline(nll, color=plots.SOFT, linewidth=0.8, linestyle="--")
        for name in plots.thin_out(levels, 0.03 * (highest - lowest)):
            panel.annotate(
                name,
                (0.01, levels[name]),
                xycoords=("axes fraction", "data"),
                xytext=(0, 3),
                textcoords="offset points",
                fontsize=8,
                color=plots.SOFT,
            )
        panel.set(xlabel=AXES[axis])
        plots.use_log_axis(panel, (1.0, 2.0, 5.0))
    axes[0].set(ylabel=f"NLL, {NATS}", ylim=(lowest, highest))
    plots.add_legend(figure, axes[0])
    # The notes stay with the picture.
    plots.add_title(
        figure, "\n".join(["lines: training. dots: validation", *comparability_notes(records)])
    )
    return figure
