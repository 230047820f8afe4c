"""The losses of one run over its tokens, and of several runs by words read and by minutes of training."""

import textwrap
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from esnlm.errors import InputError
from esnlm.io.json_file import parse_json
from esnlm.reporting import plots
from esnlm.reporting.plots import COLOURS, FAINT, INK
from esnlm.reporting.run_groups import devices_of, group_by_seed, identify, name_group, tell_apart
from esnlm.reporting.run_notes import on_comparing
from esnlm.runs.directory import RunDirectory

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POINTS = 120  # of the training curve, evenly spaced on its logarithmic axis; the losses between two are averaged
DASHES = ("-", (0, (4, 2)), (0, (1, 1.5)))  # of the first runs, and of those that share a colour with an earlier one
FAR = 30.0  # [ours] nats: runs that end above are named, not drawn, so that the others can be told apart
ABOVE = 1.5  # nats above the worst last loss up to which the picture goes: the first updates are far higher
LETTER = 0.085  # inches: what a letter of the legend takes, rather too much than too little
AXES = {"words": "million words read", "tokens": "million tokens read", "minutes": "minutes of training"}


class Curves(NamedTuple):
    """The losses of a run: by axis of AXES an array of (place, NLL in nats per token)."""

    training: dict[str, np.ndarray]  # (n, 2), means over the updates between two points
    validation: dict[str, np.ndarray]  # (m, 2)

    @property
    def last(self) -> list[float]:
        """The last training loss and, if there is one, the last validation loss."""
        return [float(losses["tokens"][-1, 1]) for losses in self if len(losses["tokens"])]


def plot_loss(directory: RunDirectory, references: dict[str, float]) -> str:
    """Plots the loss of a run, as metrics.jsonl has it, in plots/loss.png.

    Args:
        references: NLL in nats per token, by name, for horizontal lines.

    Returns:
        The path of the plot, or the reason why there is none.
    """
    lines = [parse_json(line) for line in directory.metrics.read_bytes().splitlines()]
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
    bottom, top = axes.get_ylim()
    for name in plots.apart(references, 0.03 * (top - bottom)):
        place = {"xycoords": ("axes fraction", "data"), "xytext": (0, 3), "textcoords": "offset points", "zorder": 4}
        box = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}  # the first updates may cross it
        axes.annotate(name, (0.01, references[name]), fontsize=8, color="0.35", bbox=box, **place)
    axes.set(xlabel=f"{unit} seen", ylabel="NLL, nats per token", title=directory.path.resolve().name, xscale="log")
    if training[:, 1].max() > 1000:  # a run that diverged
        axes.set_yscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.legend(frameon=False, loc="best")
    plots.save_png(figure, directory.plots / "loss.png")
    return str(directory.plots / "loss.png")


def points(lines: Sequence[dict[str, Any]], name: str, place_of: dict[int, float]) -> np.ndarray:
    """Returns (place, NLL) of the lines that have a finite NLL of this name, (n, 2), given the place of each step."""
    found = [(place_of[line["step"]], float(line[name])) for line in lines if name in line and line["step"] in place_of]
    return np.array([point for point in found if np.isfinite(point[1])]).reshape(-1, 2)


def averaged(training: np.ndarray) -> np.ndarray:
    """Returns the curve (place, NLL), averaged between POINTS points, (at most POINTS, 2)."""
    bounds = np.geomspace(training[0, 0], training[-1, 0], POINTS)
    group = np.searchsorted(bounds, training[:, 0])
    return np.array([training[group == g].mean(axis=0) for g in np.unique(group)])


def plot_losses(runs: Sequence[Path], out: Path, seeds: bool = False) -> str:
    """Draws the training and the validation losses of runs, by words read and by minutes of training.

    Minutes are those of training with its compilation and its checkpoints, without validation and pauses. They are left
    out if the runs had different devices.

    Args:
        runs: run directories; one that is still training is drawn as far as it is.
        out: the picture, a PNG file.
        seeds: whether runs that differ in nothing but their seed have one colour and one name.

    Returns:
        Lines that say what was written and what is not in it, or why there is no picture.
    """
    rows = [identify(run) for run in runs]
    tell_apart(rows, runs)
    curves = {row["run"]: read_curves(run) for row, run in zip(rows, runs, strict=True)}
    if len(curves) < len(runs):
        raise InputError("a run is named twice; name each run once")
    groups = group_by_seed(rows, runs) if seeds else [[row] for row in rows]
    of_groups = [[curves[row["run"]] for row in group] for group in groups]
    read = "words" if all("words" in each.training for each in curves.values()) else "tokens"
    finished = [row for row in rows if row["summary"] is not None]
    devices = devices_of(finished)
    shown = [read] if len(devices) > 1 else [read, "minutes"]
    width, (lowest, highest) = 1.5 + 4.75 * len(shown), _limits(list(curves.values()))
    made = plots.figure(width, 4.6, columns=len(shown), sharey=True)
    if made is None:
        return f"no plot: {plots.NO_MATPLOTLIB}"
    figure, [axes] = made
    for panel, axis in zip(axes, shown, strict=True):
        handles = [_plot_group(panel, axis, number, of_group) for number, of_group in enumerate(of_groups)]
        panel.set(xlabel=AXES[axis])
        _scale(panel, highest)
        panel.grid(color=FAINT, linewidth=0.5, alpha=0.6)
    axes[0].set(ylabel="NLL, nats per token", ylim=(lowest, highest))
    # They are given one by one, since Matplotlib leaves out of a legend what has a name that begins with _.
    labels = [_label(group, of_group, highest) for group, of_group in zip(groups, of_groups, strict=True)]
    columns = min(3, max(1, int(width / (0.6 + LETTER * max(map(len, labels))))))
    style: dict[str, Any] = {"ncols": columns, "frameon": False, "fontsize": 9, "labelcolor": INK}
    figure.legend(handles, labels, loc="outside lower center", **style)
    notes = list(on_comparing(rows))  # in the title, too: a picture is passed on without our lines
    title = [
        line for note in ["lines: training. dots: validation", *notes] for line in textwrap.wrap(note, int(13 * width))
    ]
    figure.suptitle("\n".join(title), x=0.01, ha="left", fontsize=10, color=INK)
    plots.save_png(figure, out)
    if len(devices) > 1:
        notes.append(f"no minutes: times are of different devices, {' and '.join(devices)}")
    elif 1 < len(rows) != len(finished):
        notes.append("minutes: an unfinished run does not name its device; compare them only on the same device")
    return "\n".join([*notes, f"written: {out}"])


def read_curves(run: Path) -> Curves:
    """Reads the losses of a run over "tokens", "words" (both in millions, words if it counted them) and "minutes"."""
    directory = RunDirectory(run)
    file = directory.metrics
    try:
        text = file.read_bytes()
        if directory.read_summary() is None:  # A run that goes on may have written half of its last line.
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
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError):
        raise InputError(f"{file}: missing or damaged; restore it from a copy of the run") from None
    if not len(training["tokens"]):
        raise InputError(f"{file}: no training loss in it is finite, or none yet: leave this run out")
    return Curves({axis: averaged(found) for axis, found in training.items()}, validation)


def _label(group: Sequence[dict], curves: Sequence[Curves], highest: float) -> str:
    """Returns the name of a run, or of runs of several seeds, in the legend, and what does not show in the picture."""
    label = name_group(group)
    if any(row["summary"] is None for row in group):
        label += ", not finished"
    above = [max(each.last) for each in curves if max(each.last) > highest]
    return label + (f", above the picture ({', '.join(f'{last:.3g}' for last in above)})" if above else "")


def _scale(axes: "Axes", highest: float) -> None:
    """Makes the x axis logarithmic if what is drawn spans more than a factor of three, from the first point in sight."""
    from matplotlib.ticker import LogLocator, NullFormatter

    lines = [np.asarray(line.get_xydata(), np.float64) for line in axes.get_lines()]
    places = np.concatenate([line[line[:, 1] <= highest, 0] for line in lines])
    if places.max() > 3 * places.min():
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlim(left=places.min() / 1.1)
    axes.xaxis.set_major_formatter("{x:g}")


def _plot_group(axes: "Axes", axis: str, number: int, curves: Sequence[Curves]) -> Any:
    """Plots runs in one colour, and returns a line of theirs for the legend."""
    colour, dashes = COLOURS[number % len(COLOURS)], DASHES[number // len(COLOURS) % len(DASHES)]
    style: dict[str, Any] = {"color": colour, "linestyle": dashes, "linewidth": 1.4}
    for each in curves:
        line = each.training[axis]
        marker = "_" if len(line) == 1 else ""  # A run that logged once has no line to draw.
        [drawn] = axes.plot(*line.T, marker=marker, **style)
        axes.plot(*each.validation[axis].T, "o", color=colour, markersize=5, zorder=3)
    return drawn


def _limits(curves: Sequence[Curves]) -> tuple[float, float]:
    """Returns the lowest and the highest loss of the picture. The first updates, and runs that end above FAR, lie above."""
    every = np.concatenate(
        [nll[:, 1] for each in curves for nll in (each.training["tokens"], each.validation["tokens"])]
    )
    near = [end for each in curves if each.last[0] <= FAR for end in each.last if end <= FAR]
    last = max(near or [each.last[0] for each in curves])
    return float(every.min()) - 0.1, float(min(last + ABOVE, every.max() + 0.1))
