"""The sections that compare runs: tables, losses in one chart, and paired comparisons on the same
minimal pairs."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from esnlm.base.errors import InputError
from esnlm.evaluation import statistics
from esnlm.reports import blimp_report, run_table
from esnlm.reports.blimp_text import difference_table, readable
from esnlm.reports.html.blocks import (
    COLOURS,
    Block,
    Section,
    Series,
    block,
    loss_chart,
    note,
    table,
)
from esnlm.reports.html.sections import RunFiles, loss_series
from esnlm.reports.run_groups import group_by_seed, name_group


class Study(NamedTuple):
    """A study and its runs."""

    name: str
    runs: list[Path]  # finished runs only
    blocks: list[Block]  # its table, notes and command


def read_study(folder: Path) -> Study | None:
    """Reads table.json of a study's folder; None if the folder holds no study."""
    file = folder / "table.json"
    if not file.is_file():
        return None
    try:
        tree = json.loads(file.read_bytes())
        if tree["format"] != "esnlm study":
            return None
        names = [run["run"] for cell in tree.get("cells", []) for run in cell["runs"]]
        names += [trial["run"] for trial in tree.get("trials", []) if trial["measures"]]
        shown = [
            table(tree["table"]["header"], tree["table"]["rows"], align="llr", rows_are="rows")
        ]
        shown += [note(line) for line in (tree["note"], tree["legend"], *tree["notes"]) if line]
        shown.append(block("command", what="Made by", line=tree["command"]))
    except (OSError, KeyError, TypeError, ValueError):
        raise InputError(f"{file}: damaged or edited; the study's command makes it again") from None
    runs = [run for run in (folder / "runs" / name for name in names) if run.exists()]
    return Study(tree["study"], runs, shown)


def sections(runs: Sequence[RunFiles], by_seed: bool) -> list[Section]:
    """Returns the sections about two or more runs. With `by_seed`, runs that differ only in their
    seed share a row."""
    rows = [run.row for run in runs]
    groups = group_by_seed(rows) if by_seed else [[row] for row in rows]
    tables = (run_table.loss_table(groups), run_table.score_table(groups))
    shown = [table(*its, align="llr", rows_are="runs") for its in tables if its[1]]
    found = {
        "Side by side": shown + [note(f"{line}.") for line in run_table.notes_on(groups)],
        "Losses": _losses(runs, groups),
        "By phenomenon": _phenomena(runs, groups),
        "Paired differences": differences(runs),
    }
    return [(title, blocks) for title, blocks in found.items() if blocks]


def _losses(runs: Sequence[RunFiles], groups: list[list[dict]]) -> list[Block]:
    """Returns the losses in one chart, with one colour per group."""
    if len(groups) > COLOURS:
        return []  # not enough distinct colours
    series: list[Series] = []
    for colour, group in enumerate(groups):
        name = name_group(group)
        for run in runs:
            if run.row in group:
                series += loss_series(run, (name, ""), (colour, colour))
                name = ""  # once in the legend
    chart = loss_chart(
        series, f"Training and validation losses of {len(runs)} runs over tokens read"
    )
    return [*chart, note("Lines: training. Dots: validation.")] if chart else []


def _phenomena(runs: Sequence[RunFiles], groups: list[list[dict]]) -> list[Block]:
    """Returns accuracies, one row per phenomenon and one column per run, of runs with the same
    report as the first."""
    name = next(iter(runs[0].reports), "")
    shown = [group for group in groups if all(name in row["minimal_pairs"] for row in group)]
    if len(shown) < 2:
        return []
    header, rows = run_table.accuracy_table(shown, "phenomenon", name)
    rows = [[readable(row[0]), *row[1:]] for row in rows]
    return [table(header, rows, rows_are="phenomena"), note(f"Accuracy in percent, {name}.")]


def differences(runs: Sequence[RunFiles]) -> list[Block]:
    """Returns the paired differences between each run and the first, and a note for each run
    without such a report."""
    name, report = next(iter(runs[0].reports.items()), ("", None))
    if report is None:
        return []
    scoring, data, right, notes = (
        report["scoring"]["name"],
        report["data"],
        {},
        [],
    )  # by run (n,) bool
    for run in runs:
        try:
            file = run.directory.evaluation / f"{name}.json"
            _, right[run.name] = blimp_report.read_to_compare(
                file, scoring, data["sha256"], data["pairs"]
            )
        except InputError as error:
            notes.append(note(f"{error}."))
    first = right.pop(runs[0].name, None)
    if first is None or not right:
        return notes
    uids = np.array([line["UID"] for line in runs[0].pairs(name)])  # (n,) the same in all
    phenomenon_of = {uid: entry["phenomenon"] for uid, entry in report["paradigms"].items()}
    rows_of = {str(uid): np.flatnonzero(uids == uid) for uid in dict.fromkeys(uids)}
    found = {
        run: statistics.compare(its, first, rows_of, phenomenon_of) for run, its in right.items()
    }
    overall = {run: its["overall"] for run, its in found.items()}
    corrected = statistics.holm([entry["p_value"] for entry in overall.values()])
    for entry, p_value in zip(overall.values(), corrected, strict=True):
        entry["p_value_holm"] = p_value
    text = (
        f"Accuracy minus that of {runs[0].name}, in points, paired over the same pairs ({name},"
        f" {scoring} scoring)."
    )
    text += (
        " Intervals are bootstrapped over pairs; p-values are from McNemar’s exact test with the"
        " pairs pooled, and"
    )
    text += " Holm’s correction is over the rows of each table."
    shown = [note(text), table(*difference_table(overall), rows_are="comparisons")]
    for other, its in found.items():
        inner = difference_table(
            {readable(name): entry for name, entry in its["phenomena"].items()}
        )
        title = f"{other} against {runs[0].name}, by phenomenon"
        shown.append(block("details", title=title, blocks=[table(*inner, rows_are="phenomena")]))
    return shown + notes
