"""The picture of a search: the objective by trial, and over each searched setting."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from esnlm.io.console import counted
from esnlm.reporting import plots
from esnlm.reporting.plots import COLOURS, FAINT, INK
from esnlm.studies.grid import MEASURES
from esnlm.studies.search import Choices, Search
from esnlm.studies.search_trials import Trial

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = 3  # of panels
DONE, BEST = COLOURS[1], COLOURS[0]


def plot_search(search: Search, trials: Sequence[Trial]) -> bytes | None:
    """Returns a PNG, or None where no trial has a result, or matplotlib is missing.

    A trial whose result is not finite is not shown. One that was given up is a cross in the first panel.
    """
    shown = [trial for trial in trials if trial.state == "complete" and _is_finite(trial.objective)]
    panels = 1 + len(search.space)
    columns = 2 if panels in (2, 4) else COLUMNS
    rows = math.ceil(panels / columns)
    made = plots.figure(4.4 * columns, 3.6 * rows, rows=rows, columns=columns) if shown else None
    if made is None:
        return None
    figure, grid = made
    pick = min if search.direction == "minimize" else max
    best = pick(shown, key=_height)
    all_axes = list(grid.flat)
    _plot_history(all_axes[0], search, trials, shown, best)
    for axes, (key, place) in zip(all_axes[1:], search.space.items(), strict=False):
        values = [trial.values[key] for trial in shown]
        if isinstance(place, Choices):
            names = [str(value) for value in place.values]
            x: list[Any] = [names.index(str(value)) for value in values]
            axes.set_xticks(range(len(names)), names)
            axes.set_xlim(-0.5, len(names) - 0.5)
            at: Any = names.index(str(best.values[key]))
        else:
            x, at = values, best.values[key]
            if place.log:
                axes.set_xscale("log")
        axes.scatter(x, [_height(trial) for trial in shown], s=22, color=DONE, alpha=0.75, linewidths=0)
        axes.scatter([at], [_height(best)], s=70, facecolors="none", edgecolors=BEST, linewidths=1.8, zorder=4)
        axes.set(xlabel=search.names[key].replace("_", " "), ylabel=MEASURES[search.objective][0])
    for axes in all_axes[panels:]:
        axes.set_visible(False)
    heights = [_height(trial) for trial in shown]
    if min(heights) > 0 and max(heights) / min(heights) > 100:  # runs that diverged
        for axes in all_axes[:panels]:
            axes.set_yscale("log")
    title = f"{search.title}: {counted(len(shown), 'finished trial')}, the best is {search.directory(best.number).name}"
    figure.suptitle(title, x=0.02, ha="left", color=INK)
    return plots.png(figure)


def _plot_history(axes: "Axes", search: Search, trials: Sequence[Trial], shown: Sequence[Trial], best: Trial) -> None:
    """Plots the objective by trial, and the best so far."""
    from matplotlib.ticker import MaxNLocator

    pick = min if search.direction == "minimize" else max
    so_far, level = [], shown[0].objective or 0.0
    for trial in shown:
        level = pick(level, _height(trial))
        so_far.append(level)
    numbers = [trial.number for trial in shown]
    axes.step(
        [*numbers, trials[-1].number], [*so_far, level], where="post", color=FAINT, linewidth=2, label="best so far"
    )
    axes.scatter(numbers, [_height(trial) for trial in shown], s=22, color=DONE, linewidths=0, zorder=3, label="trial")
    _mark_given_up(axes, search, trials)
    ring: dict[str, Any] = {"s": 70, "facecolors": "none", "edgecolors": BEST, "linewidths": 1.8, "zorder": 4}
    axes.scatter([best.number], [_height(best)], label="best", **ring)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="trial", ylabel=MEASURES[search.objective][0])
    axes.legend(frameon=False, fontsize=8, labelcolor=INK)


def _mark_given_up(axes: "Axes", search: Search, trials: Sequence[Trial]) -> None:
    """Puts a cross for each trial that was given up: at its last value, or at the upper edge where that is of another kind."""
    given_up = [trial for trial in trials if trial.state == "pruned"]
    style: dict[str, Any] = {"marker": "x", "s": 26, "color": INK, "linewidths": 1, "zorder": 3, "label": "given up"}
    if given_up and search.prune_by == search.objective:
        known = [trial for trial in given_up if _is_finite(trial.objective)]
        axes.scatter([trial.number for trial in known], [_height(trial) for trial in known], **style)
    elif given_up:
        numbers = [trial.number for trial in given_up]
        axes.scatter(numbers, [0.98] * len(numbers), transform=axes.get_xaxis_transform(), **style)


def _is_finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _height(trial: Trial) -> float:
    assert trial.objective is not None
    return trial.objective
