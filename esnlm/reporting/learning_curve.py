"""A learning curve as a page, a picture and a table on the terminal."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from esnlm.io.screen import Screen
from esnlm.reporting import plots
from esnlm.reporting.blimp_text import entry_of, readable
from esnlm.reporting.plots import FAINT, INK
from esnlm.reporting.tables import markdown_table

RUN = plots.COLOURS[0]
BASELINES = ("#9aa5b1", "#e0a100", "#1f6fb2", "#8c6d31")  # in the order of the n-gram models, then length alone
COLUMNS = 4  # of small pictures, one a phenomenon
FAR = 1.0  # nats above the run's highest NLL up to which the picture goes, so that its curves can be told apart
Table = tuple[list[str], list[list[str]]]  # header and rows


class Measure(NamedTuple):
    """A figure at each point of the curve: NLL, or the accuracy on some pairs, NaN if it is not defined."""

    title: str
    own: list[float]
    others: dict[str, list[float]]  # of the baselines
    ahead: dict[str, list[bool]]  # whether the run is better than each baseline
    intervals: Sequence[Sequence[float]] = ()  # of the run's accuracies


def measures(result: dict) -> list[Measure]:
    """Returns NLL, NLL without EOS, and the accuracies on all minimal pairs and by phenomenon, if there are any."""
    points, found = result["points"], []
    ngrams = [name for name in points[0]["nll"] if name != "model"]
    for title, key in (("NLL", "nll"), ("NLL without EOS", "nll_without_eos")):
        own = [point[key]["model"] for point in points]
        others = {name: [point[key][name] for point in points] for name in ngrams}
        ahead = {name: [a < b for a, b in zip(own, its, strict=True)] for name, its in others.items()}
        found.append(Measure(title, own, others, ahead))
    if not result["pairs"]:
        return found
    titles = {name: name for name in ngrams} | {"length": "length only"}
    for place in ["overall", *sorted(points[0]["pairs"]["model"]["phenomena"])]:
        title = "all minimal pairs" if place == "overall" else readable(place)
        own, *_ = at = [[entry_of(p["pairs"][n], "phenomena", place) for p in points] for n in ("model", *titles)]
        others = dict(zip(titles.values(), (list(map(_accuracy, entries)) for entries in at[1:]), strict=True))
        ahead = dict(zip(titles.values(), (list(map(_is_below, entries)) for entries in at[1:]), strict=True))
        intervals = [entry["interval"] or (math.nan, math.nan) for entry in own]
        found.append(Measure(title, list(map(_accuracy, own)), others, ahead, intervals))
    return found


def _accuracy(entry: dict) -> float:
    return math.nan if entry["accuracy"] is None else entry["accuracy"]


def _is_below(entry: dict) -> bool:
    """Tells whether a baseline is below the run: the interval of the paired difference lies above zero."""
    return "run_above" in entry and entry["run_above"]["interval"][0] > 0


def show(result: dict) -> None:
    """Prints the curve and from where on the run is ahead."""
    screen = Screen()
    screen.line(f"{result['run']}: NLL in nats per predicted token; accuracies of minimal pairs in percent")
    screen.table(*_curve(result), align="r")
    for line in _notes(result):
        screen.line(line)
    if len(result["points"]) > 1:
        screen.line()
        screen.line("ahead of each from so many words on, at every later checkpoint:")
        screen.table(*_ahead(result), align="lr")


def markdown(result: dict) -> str:
    """Returns the page."""
    validation, pairs = result["validation"], result["pairs"]
    scored = f"; {pairs['pairs']:,} minimal pairs, convention {pairs['scoring']}" if pairs else ""
    length = " Length only takes the sentence of fewer tokens, and has no NLL." if pairs else ""
    lines = [
        f"# Learning curve of {result['run']}",
        "",
        f"NLL in nats per predicted token of {validation['path']} ({validation['words']:,} words, {validation['tokens']:,}"
        f" predicted tokens){scored}. The n-gram models (Witten-Bell; the unigram model adds one) are counted on the very"
        f" sentences that the run had read by then.{length}",
        "",
        *markdown_table(*_curve(result), align="r"),
        *(part for note in _notes(result) for part in ("", note)),
        "",
        "## From how many words on the run is ahead",
        "",
        "Ahead at this checkpoint and at every later one. In NLL: the lower figure, of one run on one text. In accuracy: the 95 %"
        " interval of the paired difference, over the choice of pairs, lies above zero. No interval here is over seeds.",
        "",
        *markdown_table(*_ahead(result), align="lr"),
    ]
    if pairs:
        lines += ["", "## Accuracy by phenomenon", "", *markdown_table(*_phenomena(result), align="lr")]
    return "\n".join(lines) + "\n"


def first_ahead(words: Sequence[int], ahead: Sequence[bool]) -> int | None:
    """Returns from how many words on all of `ahead` is true; None if the last one is not."""
    return next((count for i, count in enumerate(words) if all(ahead[i:])), None)


def _notes(result: dict) -> list[str]:
    notes = []
    if result.get("parent"):
        before = "words are those since then, and the n-gram models know nothing of what was read before"
        notes.append(f"The run goes on from {result['parent']}: {before}.")
    if len(result["points"]) == 1:
        notes.append("There is one point: train with training.checkpoint_words for a curve.")
    return notes


def _curve(result: dict) -> Table:
    """Returns the table with a row a point."""
    nll, without_eos, *accuracies = measures(result)
    header = ["words", "NLL", *nll.others, "without EOS"]
    header += ["accuracy", "95 %", *accuracies[0].others] if accuracies else []
    rows = []
    for i, point in enumerate(result["points"]):
        losses = [nll.own[i], *(its[i] for its in nll.others.values()), without_eos.own[i]]
        row = [f"{point['words']:,}", *(f"{loss:.3f}" for loss in losses)]
        for each in accuracies[:1]:
            low, high = each.intervals[i]
            row += [f"{each.own[i]:.1f}", f"{low:.1f} - {high:.1f}", *(f"{its[i]:.1f}" for its in each.others.values())]
        rows.append(row)
    return header, rows


def _ahead(result: dict) -> Table:
    """Returns the table that says from how many words on the run is ahead."""
    words, found = [point["words"] for point in result["points"]], measures(result)
    baselines = list(found[-1].others)

    def cell(ahead: list[bool] | None) -> str:
        if ahead is None:
            return "-"
        first = first_ahead(words, ahead)
        return f"not by {words[-1]:,}" if first is None else f"{first:,}"

    return ["", *baselines], [[each.title, *(cell(each.ahead.get(name)) for name in baselines)] for each in found]


def _phenomena(result: dict) -> Table:
    """Returns the table of accuracies by phenomenon."""
    accuracies = measures(result)[2:]
    header = [
        "",
        *(f"{p['words']:,}" for p in result["points"]),
        *(f"{name}, last" for name in accuracies[0].others),
    ]
    figures = {each.title: [*each.own, *(its[-1] for its in each.others.values())] for each in accuracies}
    return header, [[title, *(f"{figure:.1f}" for figure in its)] for title, its in figures.items()]


def plot(result: dict) -> tuple[bytes | None, str | None]:
    """Plots NLL and accuracy by words read, and the accuracy of each phenomenon in a small picture of its own.

    Returns:
        A PNG, or None, and then why there is no plot.
    """
    nll, _, *accuracies = measures(result)
    panels, words = [nll, *accuracies], [point["words"] / 1e6 for point in result["points"]]
    rows = -(-len(panels) // COLUMNS)
    size = (11.0, 0.8 + 2.4 * rows) if accuracies else (8.0, 4.0)
    made = plots.figure(*size, rows, min(COLUMNS, len(panels)), sharex=True)
    if made is None:
        return None, f"no plot: {plots.NO_MATPLOTLIB}"
    figure, axes = made
    numbers = [f"{x:.3g}" for x in words]
    apart = plots.apart(
        {text: math.log(x) for text, x in zip(numbers, words, strict=True)}, 0.14 * math.log(words[-1] / words[0])
    )
    for axis, each in zip(axes.flat, panels, strict=False):
        for (name, its), colour in zip(each.others.items(), BASELINES, strict=False):
            axis.plot(words, its, color=colour, marker=".", linewidth=1, label=name)
        axis.plot(words, each.own, color=RUN, marker="o", markersize=4, label="this run")
        if each.intervals:
            axis.fill_between(words, *zip(*each.intervals, strict=True), color=RUN, alpha=0.18, linewidth=0)
            axis.axhline(result["points"][-1]["pairs"]["chance"], color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
        axis.set_title(f"{each.title}, {'%' if each.intervals else 'nats per token'}", fontsize=9, color=INK)
        axis.set_xscale("log")
        axis.set_xticks(words, [text if text in apart else "" for text in numbers])
        axis.minorticks_off()
        axis.tick_params(labelsize=8, labelbottom=True)
        axis.grid(color=FAINT, linewidth=0.5, alpha=0.6)
    if math.isfinite(highest := max(nll.own)):
        axes.flat[0].set_ylim(top=min(axes.flat[0].get_ylim()[1], highest + FAR))
    for axis in list(axes.flat)[len(panels) :]:
        axis.set_visible(False)
    handles, labels = axes.flat[len(panels) - 1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=9)
    dashes = "; dashes: chance" if accuracies else ""
    figure.suptitle(f"{result['run']}, by million words read{dashes}", x=0.01, ha="left", fontsize=11, color=INK)
    return plots.png(figure), None
