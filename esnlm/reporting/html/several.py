"""Several runs beside each other: a table, their losses in one picture, and paired comparisons on the same minimal pairs."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from esnlm.errors import InputError
from esnlm.evaluation import statistics
from esnlm.io.console import say
from esnlm.reporting import blimp_report, run_table
from esnlm.reporting.blimp_text import readable
from esnlm.reporting.html.charts import COLOURS, Series, line_chart
from esnlm.reporting.html.markup import Cell, Child, Html, Section, join, note, table, tag
from esnlm.reporting.html.material import Material
from esnlm.reporting.html.sections.curves import AXES, DIVERGED, losses
from esnlm.reporting.loss_plot import averaged
from esnlm.reporting.run_groups import group_by_seed, name_group
from esnlm.reporting.run_notes import notes_on


def render(runs: Sequence[Material], by_seed: bool) -> list[Section]:
    """Returns sections.

    Args:
        runs: at least two.
        by_seed: whether runs that differ in nothing but their seed are one row of the table. A run whose seed a row has
            already, and one that may not be grouped, has a row of its own.
    """
    of_seeds = _group(runs)
    groups = of_seeds if by_seed else [[run.row] for run in runs]
    sections: list[tuple[str, Html | None]] = [
        ("Side by side", _table(groups)),
        ("Losses", _curves(runs, of_seeds)),
        ("By phenomenon", _phenomena(runs, groups)),
        ("Paired differences", _differences(runs)),
    ]
    return [Section(title, content) for title, content in sections if content is not None]


def _group(runs: Sequence[Material]) -> list[list[dict]]:
    """Returns the rows of runs in groups that differ in nothing but their seed."""
    may = [run for run in runs if run.may_group]
    groups = group_by_seed([run.row for run in may], [run.directory.path for run in may], twins=True)
    return groups + [[run.row] for run in runs if not run.may_group]


class Comparison(NamedTuple):
    """One run against another one on the same pairs."""

    run: str
    other: str
    report: str  # the name of the other's report, and how it was scored
    found: dict[str, Any]  # of statistics.compare


def compare_all(runs: Sequence[Material]) -> tuple[list[Comparison], list[str]]:
    """Compares each run with the first one, on their reports of one scoring and of their last steps.

    Returns:
        The comparisons, and lines for what cannot be compared.
    """
    first = runs[0]
    if first.report is None:
        return [], []
    of_end = _of_end(first)
    if not of_end:
        steps = ", ".join(f"{name} is of update {its['step']:,}" for name, its in first.reports.items())
        ended = first.summary.get("step", 0)
        return [], [f"No report of {first.name} is of its last update, {ended:,}, and of its configuration: {steps}."]
    chosen = of_end[0]
    report = first.reports[chosen]
    if report["status"] != "ok":
        return [], []
    try:
        lines = blimp_report.read_pairs(first.directory.evaluation / f"{chosen}.json", report)
    except InputError as error:
        return [], [f"{error}."]
    phenomenon_of = {name: entry["phenomenon"] for name, entry in report["paradigms"].items()}
    right = np.array([line["right"] for line in lines], bool)  # (n,)
    uids = np.array([line["UID"] for line in lines])
    rows_of = {str(uid): np.flatnonzero(uids == uid) for uid in dict.fromkeys(uids)}
    comparisons, reasons = [], []
    others = [run for run in runs[1:] if run.report is None or not _report_on(report, run)]
    if others:
        names = ", ".join(run.name for run in others)
        reasons.append(
            f"Without a report of its last update on the same pairs as that of {first.name}, by the same scoring: {names}."
        )
    for run in runs[1:]:
        if run in others:
            continue
        say(f"{run.name}: comparing with {first.name}")
        file = run.directory.evaluation / f"{_report_on(report, run)}.json"
        try:
            _, its_right = blimp_report.read_to_compare(
                file, report["scoring"]["name"], report["data"]["sha256"], len(right)
            )
        except InputError as error:
            reasons.append(str(error))
            continue
        found = statistics.compare(its_right, right, rows_of, phenomenon_of)
        told = f"{chosen}, {report['scoring']['name']} scoring"
        comparisons.append(Comparison(run.name, first.name, told, found))
    return comparisons, reasons


def _report_on(report: dict, run: Material) -> str | None:
    """Returns the name of a run's report of its last update on the same pairs by the same convention."""
    return next((name for name in _of_end(run) if _are_alike(run.reports[name], report)), None)


def _are_alike(report: dict, other: dict) -> bool:
    """Tells whether two reports are on the same pairs, by the same convention."""
    return bool(report["data"]["sha256"] == other["data"]["sha256"] and report["scoring"] == other["scoring"])


def _of_end(run: Material) -> list[str]:
    """Returns the names of the reports of a run's last update. Those of the scoring that was asked for are first."""
    names = [
        name
        for name, its in run.reports.items()
        if its["step"] == run.summary.get("step", its["step"]) and its["config_sha256"] == run.row["config_sha256"]
    ]
    return sorted(names, key=lambda name: run.reports[name]["scoring"]["name"] != run.scoring)


def _table(groups: list[list[dict]]) -> Html:
    """Returns the table of `esnlm report`, without the columns that are empty."""
    tables = []
    for header, rows in (run_table.loss_table(groups), run_table.score_table(groups)):
        kept = [i for i in range(len(header)) if any(row[i] for row in rows)]
        if rows:
            cells = [[_sortable(row[i]) for i in kept] for row in rows]
            tables.append(table([header[i] for i in kept], cells, align="llr", tools="runs"))
    return join(tables, [note(f"{line}.") for line in notes_on(groups)])


def _sortable(text: str) -> Child | Cell:
    """Returns a cell that is sorted by the number it begins with. A text such as "1 of 3 collapsed" is no number, and stays a text."""
    number, _, rest = text.partition(" ")
    try:
        return text if rest.startswith("of ") else Cell(text, float(number.replace(",", "")))
    except ValueError:
        return text


def _curves(runs: Sequence[Material], groups: list[list[dict]]) -> Html | None:
    """Returns the losses in one picture: the runs of a group have one colour."""
    if len(groups) > COLOURS:
        return note(f"The losses of more than {COLOURS} runs or groups are not drawn: nobody could tell them apart.")
    series: list[Series] = []
    for run in runs:
        colour, group = next((i, group) for i, group in enumerate(groups) if run.row in group)
        training, validation = losses(run)
        first_of_colour = all(each.colour != colour for each in series)
        name = name_group(group) if first_of_colour else ""
        series += [Series(name, averaged(training), colour, dots=len(training) == 1)] if len(training) else []
        series += [Series("", validation, colour, dots=True)] if len(validation) else []
    if not series:
        return None
    says = f"Training and validation losses of {len(runs)} runs over tokens read"
    high = max(each.points[:, 1].max() for each in series)
    x, y = AXES
    return join(
        line_chart(series, x, y._replace(log=bool(high > DIVERGED)), says), note("Lines: training. Dots: validation.")
    )


def _phenomena(runs: Sequence[Material], groups: list[list[dict]]) -> Html | None:
    """Returns accuracies, a row a phenomenon and a column a run, of the runs that have a report like the first one's."""
    name = next(iter(_of_end(runs[0])), None)
    if name is None:
        return None
    first = runs[0].reports[name]
    alike = {run.name for run in runs if name in _of_end(run) and _are_alike(run.reports[name], first)}
    shown = [group for group in groups if all(row["run"] in alike for row in group)]
    if len(shown) < 2:
        return None
    header, rows = run_table.accuracy_table(shown, "phenomenon", name)
    cells = [[readable(row[0]), *map(_sortable, row[1:])] for row in rows]
    others = ", ".join(run.name for run in runs if run.name not in alike)
    left_out = f" Without a report of its end on the same pairs, by the same scoring: {others}." if others else ""
    return join(table(header, cells, align="lr", tools="phenomena"), note(f"Accuracy in percent, {name}.{left_out}"))


def _differences(runs: Sequence[Material]) -> Html | None:
    comparisons, reasons = compare_all(runs)
    if not comparisons:
        return join([note(reason) for reason in reasons]) if reasons else None
    header = ["run", "difference", "95 %", "only it right", "only the other", "McNemar’s p", "p after Holm"]
    overall = [each.found["overall"] for each in comparisons]
    corrected = statistics.holm([entry["p_value"] for entry in overall])
    rows = [
        [each.run, *_cells(entry, float(p))] for each, entry, p in zip(comparisons, overall, corrected, strict=True)
    ]
    explained = (
        f"Accuracy minus that of {comparisons[0].other}, in points, paired over the same pairs ({comparisons[0].report}). The interval is"
        " a bootstrap over pairs; p-values are of McNemar’s exact test with the pairs pooled, and Holm’s correction is for the rows"
        " of each table."
    )
    parts = [note(explained), table(header, rows, align="lr", tools="comparisons")]
    for each in comparisons:
        inner = [
            [readable(name), *_cells(entry, entry["p_value_holm"])]
            for level in ("phenomena", "paradigms")
            for name, entry in each.found[level].items()
            if level == "phenomena" or len(each.found["phenomena"]) == 1
        ]
        title = tag("summary", f"{each.run} against {each.other}, by phenomenon")
        parts.append(tag("details", title, table(["phenomenon", *header[1:]], inner, align="lr", tools="phenomena")))
    return join(parts, [note(reason) for reason in reasons])


def _cells(entry: dict, corrected: float) -> list[Cell]:
    low, high = entry["interval"]
    return [
        Cell(signed(entry["difference"]), entry["difference"]),
        Cell(f"{signed(low)} to {signed(high)}", low),
        *(Cell(f"{entry[count]:,}", entry[count]) for count in ("only_this", "only_other")),
        *(Cell("< 0.0001" if p < 1e-4 else f"{p:.2g}", p) for p in (entry["p_value"], corrected)),
    ]


def signed(value: float) -> str:
    """Returns a difference with its sign."""
    return f"{value:+.1f}".replace("-", "−")
