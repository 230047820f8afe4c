"""Formats a learning curve as a page and a plot."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from esnlm.reports import plots
from esnlm.reports.blimp_text import entry_of, readable
from esnlm.reports.plots import FAINT, INK
from esnlm.reports.tables import Table, markdown_table

RUN = plots.COLOURS[0]
COLUMNS = 4  # of small plots, one per phenomenon


class Measure(NamedTuple):
    """A figure at each point of the curve: NLL, or the accuracy on some pairs, NaN if undefined."""

    title: str
    own: list[float]
    others: dict[str, list[float]]  # of the baselines
    ahead: dict[str, list[bool]]  # whether the run is better than each baseline
    intervals: Sequence[Sequence[float]] = ()  # for accuracies of the run


def measures(result: dict) -> list[Measure]:
    """Returns NLL, NLL without EOS, and any accuracies on minimal pairs, overall and by
    phenomenon."""
    points, found = result["points"], []
    ngrams = [name for name in points[0]["nll"] if name != "model"]
    for title, key in (("NLL", "nll"), ("NLL without EOS", "nll_without_eos")):
        own = [point[key]["model"] for point in points]
        others = {name: [point[key][name] for point in points] for name in ngrams}
        ahead = {
            name: [a < b for a, b in zip(own, its, strict=True)] for name, its in others.items()
        }
        found.append(Measure(title, own, others, ahead))
    if not result["pairs"]:
        return found
    titles = {name: name for name in ngrams} | {"length": "length only"}
    for place in ["overall", *sorted(points[0]["pairs"]["model"]["phenomena"])]:
        title, others, ahead = (
            "all minimal pairs" if place == "overall" else readable(place),
            {},
            {},
        )
        own, *rest = (
            [entry_of(point["pairs"][name], "phenomena", place) for point in points]
            for name in ("model", *titles)
        )
        for name, entries in zip(titles.values(), rest, strict=True):
            others[name] = list(map(_accuracy, entries))
            # The run is ahead if the interval of the paired difference lies above zero.
            ahead[name] = [
                "run_above" in entry and entry["run_above"]["interval"][0] > 0 for entry in entries
            ]
        intervals = [entry["interval"] or (math.nan, math.nan) for entry in own]
        found.append(Measure(title, list(map(_accuracy, own)), others, ahead, intervals))
    return found


def _accuracy(entry: dict) -> float:
    return math.nan if entry["accuracy"] is None else entry["accuracy"]


def markdown(result: dict) -> str:
    """Returns the page as Markdown."""
    validation, pairs = result["validation"], result["pairs"]
    scored = f"; {pairs['pairs']:,} minimal pairs, convention {pairs['scoring']}" if pairs else ""
    length = (
        " The baseline `length` prefers the sentence with fewer tokens, and has no NLL."
        if pairs
        else ""
    )
    since = (
        f" The run continues {result['parent']}: words are counted since then."
        if result.get("parent")
        else ""
    )
    lines = [
        f"# Learning curve of {result['run']}",
        "",
        (
            f"NLL in nats per predicted token of {validation['path']} ({validation['words']:,}"
            f" words, {validation['tokens']:,} predicted tokens){scored}. The n-gram models"
            " (Witten-Bell; the unigram model adds one) are counted on the sentences that the run"
            f" had read at each checkpoint.{length}{since}"
        ),
        "",
        *markdown_table(*_curve(result), align="r"),
        "",
        "## Words after which the run stays ahead",
        "",
        (
            "Ahead at this checkpoint and at every later one. In NLL: a lower value, of one run on"
            " one text. In accuracy: the 95 % interval of the paired difference, over the choice of"
            " pairs, lies above zero. No interval here is over seeds."
        ),
        "",
        *markdown_table(*_ahead(result), align="lr"),
    ]
    return "\n".join(lines) + "\n"


def first_ahead(words: Sequence[int], ahead: Sequence[bool]) -> int | None:
    """Returns the number of words from which all of `ahead` is true; None if its last value is
    false."""
    return next((count for i, count in enumerate(words) if all(ahead[i:])), None)


def _curve(result: dict) -> Table:
    """Returns the table with one row per point."""
    nll, without_eos, *accuracies = measures(result)
    header = ["words", "NLL", *nll.others, "without EOS"]
    header += ["accuracy", "95 %", *accuracies[0].others] if accuracies else []
    rows = []
    for i, point in enumerate(result["points"]):
        losses = [nll.own[i], *(its[i] for its in nll.others.values()), without_eos.own[i]]
        row = [f"{point['words']:,}", *(f"{loss:.3f}" for loss in losses)]
        for each in accuracies[:1]:
            low, high = each.intervals[i]
            row += [
                f"{each.own[i]:.1f}",
                f"{low:.1f} - {high:.1f}",
                *(f"{its[i]:.1f}" for its in each.others.values()),
            ]
        rows.append(row)
    return header, rows


def _ahead(result: dict) -> Table:
    """Returns the table of the number of words from which the run stays ahead."""
    words, found = [point["words"] for point in result["points"]], measures(result)

    def cell(ahead: list[bool] | None) -> str:
        if ahead is None:  # the baseline `length` has no NLL
            return "-"
        first = first_ahead(words, ahead)
        return f"not by {words[-1]:,}" if first is None else f"{first:,}"

    baselines = list(found[-1].others)
    return ["", *baselines], [
        [each.title, *(cell(each.ahead.get(name)) for name in baselines)] for each in found
    ]


def plot(result: dict) -> tuple[bytes | None, str | None]:
    """Plots NLL and accuracy by words read, and the accuracy of each phenomenon in its own small
    plot.

    Returns:
        A PNG and None, or None and the reason why there is no plot.
    """
    nll, _, *accuracies = measures(result)
    panels, words = [nll, *accuracies], [point["words"] / 1e6 for point in result["points"]]
    rows = -(-len(panels) // COLUMNS)
    size = (11.0, 0.8 + 2.4 * rows) if accuracies else (8.0, 4.0)
    made = plots.figure(*size, rows, min(COLUMNS, len(panels)), sharex=True)
    if made is None:
        return None, f"no plot: {plots.NO_MATPLOTLIB}"
    from matplotlib.ticker import LogLocator

    figure, axes = made
    for axis, each in zip(axes.flat, panels, strict=False):
        for (name, its), colour in zip(each.others.items(), plots.COLOURS[1:], strict=False):
            axis.plot(words, its, color=colour, marker=".", linewidth=1, label=name)
        axis.plot(words, each.own, color=RUN, marker="o", markersize=4, label="this run")
        if each.intervals:
            axis.fill_between(
                words, *zip(*each.intervals, strict=True), color=RUN, alpha=0.18, linewidth=0
            )
            axis.axhline(
                result["points"][-1]["pairs"]["chance"],
                color=INK,
                linewidth=0.8,
                linestyle=(0, (4, 3)),
            )
        axis.set_title(
            f"{each.title}, {'%' if each.intervals else 'nats per token'}", fontsize=9, color=INK
        )
        axis.set_xscale("log")
        axis.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
        axis.xaxis.set_major_formatter("{x:g}")
        axis.minorticks_off()
        axis.tick_params(labelsize=8, labelbottom=True)
        axis.grid(color=FAINT, linewidth=0.5, alpha=0.6)
    for axis in list(axes.flat)[len(panels) :]:
        axis.set_visible(False)
    handles, labels = axes.flat[len(panels) - 1].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=9
    )
    dashes = "; dashes: chance" if accuracies else ""
    figure.suptitle(
        f"{result['run']}, by million words read{dashes}", x=0.01, ha="left", fontsize=11, color=INK
    )
    return plots.picture(figure), None
