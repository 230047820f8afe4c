"""Formats a learning curve as a page and a plot."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from esnlm.reports import plots
from esnlm.reports.blimp_report import entry_of, readable
from esnlm.reports.figures import FIGURES, format_figure, format_interval
from esnlm.reports.report import Table, markdown_table

MODEL = plots.COLOURS[0]
COLUMNS = 4  # of small plots, one per phenomenon


class Curve(NamedTuple):
    """A figure at each point: NLL, or the accuracy on some pairs, NaN if undefined."""

    title: str
    figure: str  # its name in FIGURES
    values: list[float]
    baselines: dict[str, list[float]]
    leads: dict[str, list[bool]]  # whether the run is better than each baseline
    intervals: Sequence[Sequence[float]] = ()  # for accuracies of the run


def make_curves(result: dict) -> list[Curve]:
    """Returns NLL, NLL without EOS, and any accuracies, overall and by phenomenon."""
    points, curves = result["points"], []
    ngrams = [name for name in points[0]["nll"] if name != "model"]
    for name in ("nll", "nll_without_eos"):
        values = [point[name]["model"] for point in points]
        baselines = {ngram: [point[name][ngram] for point in points] for ngram in ngrams}
        leads = {
            ngram: [value < other for value, other in zip(values, others, strict=True)]
            for ngram, others in baselines.items()
        }
        curves.append(Curve(FIGURES[name].title, name, values, baselines, leads))
    if not result["pairs"]:
        return curves
    titles = {name: name for name in ngrams} | {"length": "length only"}
    for group in ["overall", *sorted(points[0]["pairs"]["model"]["phenomena"])]:
        entries = {
            name: [entry_of(point["pairs"][name], "phenomena", group) for point in points]
            for name in ("model", *titles)
        }
        accuracies = {name: list(map(_accuracy, values)) for name, values in entries.items()}
        intervals = [entry["interval"] or (math.nan, math.nan) for entry in entries["model"]]
        curves.append(
            Curve(
                "all minimal pairs" if group == "overall" else readable(group),
                "accuracy",
                accuracies["model"],
                {title: accuracies[name] for name, title in titles.items()},
                {title: list(map(_leads, entries[name])) for name, title in titles.items()},
                intervals,
            )
        )
    return curves


def _accuracy(entry: dict) -> float:
    return math.nan if entry["accuracy"] is None else entry["accuracy"]


def _leads(entry: dict) -> bool:
    """Returns whether the interval of the paired difference to a baseline lies above zero."""
    return "run_above" in entry and entry["run_above"]["interval"][0] > 0


def markdown(result: dict) -> str:
    """Returns the page as Markdown."""
    validation, pairs = result["validation"], result["pairs"]
    scored, length, since = "", "", ""
    if pairs:
        scored = f"; {pairs['pairs']:,} minimal pairs, convention {pairs['scoring']}"
        length = " The baseline `length` prefers the sentence with fewer tokens, and has no NLL."
    if result.get("parent"):
        since = f" The run continues {result['parent']}: words are counted since then."
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


def first_ahead(words: Sequence[int], leads: Sequence[bool]) -> int | None:
    """Returns the number of words from which the run leads; None if it does not at the end."""
    return next((count for i, count in enumerate(words) if all(leads[i:])), None)


def _curve(result: dict) -> Table:
    """Returns the table with one row per point."""
    nll, without_eos, *accuracies = make_curves(result)
    header = ["words", nll.title, *nll.baselines, "without EOS"]
    header += ["accuracy", "95 %", *accuracies[0].baselines] if accuracies else []
    rows = []
    for i, point in enumerate(result["points"]):
        losses = [nll.values, *nll.baselines.values(), without_eos.values]
        row = [
            format_figure("words", point["words"]),
            *(format_figure("nll", values[i]) for values in losses),
        ]
        for curve in accuracies[:1]:
            values = [curve.values[i], *(values[i] for values in curve.baselines.values())]
            first, *others = (format_figure("accuracy", value) for value in values)
            row += [first, format_interval(curve.intervals[i]), *others]
        rows.append(row)
    return header, rows


def _ahead(result: dict) -> Table:
    """Returns the table of the number of words from which the run stays ahead."""
    words, curves = [point["words"] for point in result["points"]], make_curves(result)

    def cell(leads: list[bool] | None) -> str:
        if leads is None:  # the baseline `length` has no NLL
            return "-"
        first = first_ahead(words, leads)
        return f"not by {words[-1]:,}" if first is None else f"{first:,}"

    baselines = list(curves[-1].baselines)
    return ["", *baselines], [
        [curve.title, *(cell(curve.leads.get(name)) for name in baselines)] for curve in curves
    ]


def draw(result: dict) -> "plots.Figure":
    """Plots NLL and accuracy by words read, and the accuracy of each phenomenon in a small plot."""
    nll, _, *accuracies = make_curves(result)
    curves, words = [nll, *accuracies], [point["words"] / 1e6 for point in result["points"]]
    rows = -(-len(curves) // COLUMNS)
    size = (11.0, 0.8 + 2.4 * rows) if accuracies else (8.0, 4.0)
    figure, axes = plots.figure(*size, rows, min(COLUMNS, len(curves)), sharex=True)
    for panel, curve in zip(axes.flat, curves, strict=False):
        for (name, values), colour in zip(curve.baselines.items(), plots.COLOURS[1:], strict=False):
            panel.plot(words, values, color=colour, marker=".", linewidth=1, label=name)
        panel.plot(words, curve.values, color=MODEL, marker="o", markersize=4, label="this run")
        if curve.intervals:
            low, high = zip(*curve.intervals, strict=True)
            panel.fill_between(words, low, high, color=MODEL, alpha=0.18, linewidth=0)
            chance = result["points"][-1]["pairs"]["chance"]
            panel.axhline(chance, color=plots.INK, linewidth=0.8, linestyle=(0, (4, 3)))
        title = f"{curve.title}, {FIGURES[curve.figure].unit}"
        panel.set_title(title, fontsize=9, color=plots.INK)
        plots.use_log_axis(panel, (1.0, 3.0))
        panel.tick_params(labelsize=8, labelbottom=True)
    for panel in axes.flat[len(curves) :]:
        panel.set_visible(False)
    plots.add_legend(figure, axes.flat[len(curves) - 1], columns=6)
    dashes = "; dashes: chance" if accuracies else ""
    plots.add_title(figure, f"{result['run']}, by million words read{dashes}")
    return figure
