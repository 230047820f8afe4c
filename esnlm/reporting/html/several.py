"""Several runs beside each other: tables, their losses in one picture, and paired comparisons on the same minimal pairs."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from esnlm.errors import InputError
from esnlm.evaluation import statistics
from esnlm.reporting import blimp_report, run_table
from esnlm.reporting.blimp_text import readable
from esnlm.reporting.html.blocks import Block, Cell, Section, block, note, sortable, table
from esnlm.reporting.html.charts import COLOURS, Series
from esnlm.reporting.html.files import RunFiles
from esnlm.reporting.html.sections import loss_chart, loss_series
from esnlm.reporting.run_groups import group_by_seed, name_group


def sections(runs: Sequence[RunFiles], by_seed: bool) -> list[Section]:
    """Returns the sections about at least two runs. `by_seed` makes one row of runs that differ in nothing but their seed."""
    rows = [run.row for run in runs]
    groups = group_by_seed(rows, [run.directory.path for run in runs]) if by_seed else [[row] for row in rows]
    found = {
        "Side by side": _tables(groups),
        "Losses": _losses(runs, groups),
        "By phenomenon": _phenomena(runs, groups),
        "Paired differences": differences(runs),
    }
    return [Section(title, blocks) for title, blocks in found.items() if blocks]


def _tables(groups: list[list[dict]]) -> list[Block]:
    """Returns the tables of `esnlm report`, without the columns that are empty."""
    shown = []
    for header, rows in (run_table.loss_table(groups), run_table.score_table(groups)):
        kept = [i for i in range(len(header)) if any(row[i] for row in rows)]
        if rows:
            cells = [[sortable(row[i]) for i in kept] for row in rows]
            shown.append(table([header[i] for i in kept], cells, align="llr", tools="runs"))
    return shown + [note(f"{line}.") for line in run_table.notes_on(groups)]


def _losses(runs: Sequence[RunFiles], groups: list[list[dict]]) -> list[Block]:
    """Returns the losses in one picture: the runs of a group have one colour."""
    if len(groups) > COLOURS:
        return [note(f"The losses of more than {COLOURS} runs or groups are not drawn: nobody could tell them apart.")]
    series: list[Series] = []
    for colour, group in enumerate(groups):
        name = name_group(group)
        for run in runs:
            if run.row in group:
                series += loss_series(run, (name, ""), (colour, colour))
                name = ""  # once in the legend
    chart = loss_chart(series, f"Training and validation losses of {len(runs)} runs over tokens read")
    return [*chart, note("Lines: training. Dots: validation.")] if chart else []


def _alike(runs: Sequence[RunFiles]) -> tuple[str, list[RunFiles], list[Block]]:
    """Returns the name of the first run's report, the runs that have one like it, and a note about the others.

    Alike are reports of this name on the same pairs, by the same scoring, of the run's last update and configuration.
    """
    name = next(iter(runs[0].reports), "")

    def made_from(run: RunFiles) -> tuple[str, str] | None:
        score = run.row["minimal_pairs"].get(name)
        if score is None or score["config_sha256"] != run.row["config_sha256"]:
            return None
        is_of_end = score["step"] == run.summary.get("step", score["step"])
        return (score["data_sha256"], score["scoring"]) if is_of_end else None

    alike = [run for run in runs if made_from(run) is not None and made_from(run) == made_from(runs[0])]
    others = ", ".join(run.name for run in runs if run not in alike)
    text = f"Without a report {name} of its end on the same pairs, by the same scoring: {others}."
    return name, alike, [note(text)] if others and name else []


def _phenomena(runs: Sequence[RunFiles], groups: list[list[dict]]) -> list[Block]:
    """Returns accuracies, a row a phenomenon and a column a run, of the runs that have a report like the first one's."""
    name, alike, left_out = _alike(runs)
    names = {run.name for run in alike}
    shown = [group for group in groups if all(row["run"] in names for row in group)]
    if len(shown) < 2:
        return []
    header, rows = run_table.accuracy_table(shown, "phenomenon", name)
    cells = [[readable(row[0]), *map(sortable, row[1:])] for row in rows]
    return [table(header, cells, tools="phenomena"), note(f"Accuracy in percent, {name}."), *left_out]


def compare_all(runs: Sequence[RunFiles]) -> tuple[dict[str, dict[str, Any]], list[Block]]:
    """Compares runs with the first one, on their reports of one name.

    Returns:
        By run, what `statistics.compare` finds; and notes about what cannot be compared.
    """
    name, alike, notes = _alike(runs)
    if not alike:
        return {}, notes
    report = runs[0].reports[name]
    pairs = report["scoring"]["name"], report["data"]["sha256"], report["data"]["pairs"]
    right: dict[str, np.ndarray] = {}  # by run (n,) bool
    for run in alike:
        try:
            _, right[run.name] = blimp_report.read_to_compare(run.directory.evaluation / f"{name}.json", *pairs)
        except InputError as error:
            notes.append(note(f"{error}."))
    first = right.pop(runs[0].name, None)
    if first is None:
        return {}, notes
    uids = np.array([line["UID"] for line in runs[0].pairs(name)])  # (n,) the same in all
    phenomenon_of = {uid: entry["phenomenon"] for uid, entry in report["paradigms"].items()}
    rows_of = {str(uid): np.flatnonzero(uids == uid) for uid in dict.fromkeys(uids)}
    return {run: statistics.compare(its, first, rows_of, phenomenon_of) for run, its in right.items()}, notes


def differences(runs: Sequence[RunFiles]) -> list[Block]:
    """Returns the paired differences of each run and the first one."""
    found, notes = compare_all(runs)
    if not found:
        return notes
    first, (name, report) = runs[0].name, next(iter(runs[0].reports.items()))
    header = ["run", "difference", "95 %", "only it right", "only the other", "McNemar’s p", "p after Holm"]
    overall = {run: its["overall"] for run, its in found.items()}
    corrected = statistics.holm([entry["p_value"] for entry in overall.values()])
    rows = [[run, *_cells(entry, float(p))] for (run, entry), p in zip(overall.items(), corrected, strict=True)]
    text = f"Accuracy minus that of {first}, in points, paired over the same pairs ({name}, {report['scoring']['name']} scoring)."
    text += " The interval is a bootstrap over pairs; p-values are of McNemar’s exact test with the pairs pooled, and Holm’s"
    text += " correction is for the rows of each table."
    shown = [note(text), table(header, rows, tools="comparisons")]
    for run, its in found.items():
        entries = its["phenomena"] | (its["paradigms"] if len(its["phenomena"]) == 1 else {})
        inner = [[readable(name), *_cells(entry, entry["p_value_holm"])] for name, entry in entries.items()]
        by_phenomenon = [table(["phenomenon", *header[1:]], inner, tools="phenomena")]
        title = f"{run} against {first}, by phenomenon"
        shown.append(block("details", title=title, code=None, blocks=by_phenomenon))
    return shown + notes


def _cells(entry: dict, corrected: float) -> list[Cell]:
    low, high = entry["interval"]
    return [
        Cell(_signed(entry["difference"]), entry["difference"]),
        Cell(f"{_signed(low)} to {_signed(high)}", low),
        *(Cell(f"{entry[count]:,}", entry[count]) for count in ("only_this", "only_other")),
        *(Cell("< 0.0001" if p < 1e-4 else f"{p:.2g}", p) for p in (entry["p_value"], corrected)),
    ]


def _signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")
