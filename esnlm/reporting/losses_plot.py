"""The losses of several runs in one picture: by words read, and by minutes of training."""

import textwrap
from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from esnlm.errors import InputError, require
from esnlm.io.json_file import parse_json
from esnlm.reporting import plots
from esnlm.reporting.loss_plot import averaged, points
from esnlm.reporting.plots import COLOURS, FAINT, INK
from esnlm.reporting.run_groups import group_by_seed, identify, name_group, tell_apart
from esnlm.reporting.run_notes import devices_of, of_different_tokenizers, on_different_sentences
from esnlm.runs.directory import RunDirectory

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

DASHES = ("-", (0, (4, 2)), (0, (1, 1.5)))  # of the first runs, and of those that share a colour with an earlier one
# [ours] nats: the picture is not made as high as a last loss that is higher than this, so that the others can be told apart.
FAR = 30.0
ABOVE = 1.5  # nats above the worst last loss up to which the picture goes: the first updates are far higher
LETTER = 0.085  # inches: what a letter of the legend takes, rather too much than too little
AXES = {"words": "million words read", "tokens": "million tokens read", "minutes": "minutes of training"}


class Curves(NamedTuple):
    """The losses of a run: in each array a row a point, with its place on the axis and its NLL in nats per token."""

    training: dict[str, np.ndarray]  # by axis: (n, 2), the means over the updates between two points
    validation: dict[str, np.ndarray]  # by axis: (m, 2)

    @property
    def last(self) -> list[float]:
        """The last training loss and, where there is one, the last validation loss."""
        return [float(losses["tokens"][-1, 1]) for losses in self if len(losses["tokens"])]


def plot_losses(runs: Sequence[Path], out: Path, seeds: bool = False, overwrite: bool = False) -> str:
    """Draws the training and the validation losses of runs, by words read and by minutes of training.

    Minutes are those of training with its compilation and its checkpoints: validation and pauses are left out. They compare models
    only where the runs had the same machine, and the same share of it. There are none where times are of different devices.

    Args:
        runs: run directories; one that is still training is drawn as far as it is.
        out: the picture, a PNG file.
        seeds: whether runs that differ in nothing but their seed have one colour and one name.
        overwrite: whether to replace `out`.

    Returns:
        Lines that say what was written and what is not in it, or why there is no picture.

    Raises:
        InputError: a directory is not that of a run, its metrics.jsonl is missing or damaged, it has no loss yet, two runs
            are of one seed where `seeds` is set, or `out` cannot be written.
    """
    require(out.suffix.lower() == ".png", f"{out}: the plot's name must end in .png")
    require(overwrite or not out.exists(), f"{out}: exists: name another file, or replace it with --overwrite")
    for i, run in enumerate(runs):
        require(run.resolve() not in [other.resolve() for other in runs[:i]], f"{run}: named twice; name each run once")
    rows = [identify(run) for run in runs]
    tell_apart(rows, runs)
    curves = {found["run"]: read_curves(run) for found, run in zip(rows, runs, strict=True)}
    groups = group_by_seed(rows, runs) if seeds else [[found] for found in rows]
    read = "words" if all("words" in each.training for each in curves.values()) else "tokens"
    devices = devices_of(found for found in rows if found["summary"] is not None)
    shown = [read] if len(devices) > 1 else [read, "minutes"]
    width, (lowest, highest) = 1.5 + 4.75 * len(shown), _limits(curves.values())
    made = plots.figure(width, 4.6, columns=len(shown), sharey=True)
    if made is None:
        return f"no plot: {plots.NO_MATPLOTLIB}"
    figure, [axes] = made
    of_groups = [[curves[found["run"]] for found in group] for group in groups]
    for panel, axis in zip(axes, shown, strict=True):
        handles = [_plot_group(panel, axis, number, of_group) for number, of_group in enumerate(of_groups)]
        panel.set(xlabel=AXES[axis])
        _scale(panel, highest)
        panel.grid(color=FAINT, linewidth=0.5, alpha=0.6)
    axes[0].set(ylabel="NLL, nats per token", ylim=(lowest, highest))
    # They are given one by one, since Matplotlib leaves out of a legend what has a name that begins with _.
    labels = [_label(group, of_group, highest) for group, of_group in zip(groups, of_groups, strict=True)]
    columns = max(1, int(width / (0.6 + LETTER * max(map(len, labels)))))
    style: dict[str, Any] = {"ncols": min(3, columns), "frameon": False, "fontsize": 9, "labelcolor": INK}
    figure.legend(handles, labels, loc="outside lower center", **style)
    notes = [
        *of_different_tokenizers(rows),
        *on_different_sentences(found for found in rows if found["summary"] is not None),
    ]
    # A picture is passed on without our lines.
    title = [
        line for note in ["lines: training. dots: validation", *notes] for line in textwrap.wrap(note, int(13 * width))
    ]
    figure.suptitle("\n".join(title), x=0.01, ha="left", fontsize=10, color=INK)
    plots.save_png(figure, out)
    if len(devices) > 1:
        notes += [f"no minutes: times are of different devices, {' and '.join(devices)}"]
    elif len(rows) > 1 and any(found["summary"] is None for found in rows):
        notes += [
            "minutes: the device of a run is known when it is finished; compare them only where all runs have the same device"
        ]
    return "\n".join([*notes, f"written: {out}"])


def read_curves(run: Path) -> Curves:
    """Reads the losses of a run.

    Returns:
        The curves over "tokens" (in millions), "words" (in millions, where the run counted them) and "minutes".

    Raises:
        InputError: metrics.jsonl is missing or damaged, or no loss in it is finite.
    """
    directory = RunDirectory(run)
    file = directory.metrics
    goes_on = directory.read_summary() is None
    require(file.exists() or not goes_on, f"{file}: not there yet: this run has only begun; leave it out")
    try:
        text = file.read_bytes()
        if goes_on:  # It may have written half of its last line.
            text = text[: text.rfind(b"\n") + 1]
        lines = [parse_json(line) for line in text.splitlines()]
        # A readout that is solved for has its one loss in a line without words: those of the line before are as true.
        logged = list(accumulate((line for line in lines if "tokens" in line), lambda before, line: before | line))
        places = {"tokens": {line["step"]: line["tokens"] / 1e6 for line in logged}}
        places["minutes"] = {line["step"]: line["tokens"] / line["tokens_per_second"] / 60 for line in logged}
        if all("words" in line for line in logged):
            places["words"] = {line["step"]: line["words"] / 1e6 for line in logged}
        training = {axis: points(lines, "train_nll", place) for axis, place in places.items()}
        validation = {axis: points(lines, "val_nll", place) for axis, place in places.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError):
        raise InputError(f"{file}: missing or damaged; restore it from a copy of the run") from None
    require(len(training["tokens"]) > 0, f"{file}: no training loss in it is finite, or none yet: leave this run out")
    return Curves({axis: averaged(found) for axis, found in training.items()}, validation)


def _label(group: Sequence[dict], curves: Sequence[Curves], highest: float) -> str:
    """Returns the name of a run, or of runs of several seeds, in the legend, and what does not show in the picture."""
    label = name_group(group)
    if any(found["summary"] is None for found in group):
        label += ", not finished"
    above = [max(each.last) for each in curves if max(each.last) > highest]
    return label + (f", above the picture ({', '.join(f'{last:.3g}' for last in above)})" if above else "")


def _scale(axes: "Axes", highest: float) -> None:
    """Makes the x axis logarithmic where what is drawn spans more than a factor of three. Few of its marks have numbers.

    It begins where the first line comes down to `highest`, the upper end of the picture.
    """
    from matplotlib.ticker import LogLocator, NullFormatter

    lines = [np.asarray(line.get_xydata(), np.float64) for line in axes.get_lines()]
    places = np.concatenate([line[line[:, 1] <= highest, 0] for line in lines])
    if places.max() > 3 * places.min():
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlim(left=places.min() / 1.1)
    axes.xaxis.set_major_formatter("{x:g}")


def _plot_group(axes: "Axes", axis: str, number: int, curves: Sequence[Curves]) -> "Line2D":
    """Plots runs of one colour, and returns a line of theirs for the legend."""
    style: dict[str, Any] = {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": DASHES[number // len(COLOURS) % len(DASHES)],
        "linewidth": 1.4,
    }
    lines = []
    for each in curves:
        line = each.training[axis]
        marker = "_" if len(line) == 1 else ""  # A run that logged once has no line to draw.
        lines += axes.plot(*line.T, marker=marker, **style)
        axes.plot(*each.validation[axis].T, "o", color=style["color"], markersize=5, zorder=3)
    return lines[0]


def _limits(curves: Iterable[Curves]) -> tuple[float, float]:
    """Returns the lowest and the highest loss of the picture, in nats per token.

    Losses of the first updates lie above it, and runs that end above FAR, unless all do.
    """
    found = list(curves)
    every = np.concatenate([nll for each in found for nll in (each.training["tokens"], each.validation["tokens"])])
    of_training = [each.last[0] for each in found]
    near = [end for each in found if each.last[0] <= FAR for end in each.last if end <= FAR]
    last = max(near or of_training)
    return float(every[:, 1].min()) - 0.1, float(min(last + ABOVE, every[:, 1].max() + 0.1))
