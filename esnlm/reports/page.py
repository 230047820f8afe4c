"""Writes the page of `esnlm report --html`: one file about runs and studies that opens offline.

Sections are blocks of plain data, which the template `page.html` shows; Jinja escapes all text.
page_run.py has the sections of a run; the sections here compare runs or show a study.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from esnlm.base.console import info
from esnlm.base.errors import InputError
from esnlm.base.files import write_file
from esnlm.evaluation import statistics
from esnlm.reports import blimp_report, plots, run_table
from esnlm.reports.blimp_report import difference_table, readable
from esnlm.reports.page_run import SECTIONS, Block, RunFiles, Section, block, draw_all, note, table

MOST_LOADED = 4  # maximum number of runs whose models the page loads, for samples


def write_page(
    paths: Sequence[Path],
    out: Path,
    by_seed: bool = False,
    scoring: str = "paper",
    made_by: str | None = None,
) -> str:
    """Writes the page about run directories and the runs of studies. Returns a line to print.

    Args:
        by_seed: whether runs that differ only in their seed share one row of the tables.
        scoring: the convention of the minimal-pair report to show in full,
            evaluation/blimp-SCORING.json.
        made_by: the command, which the page shows.
    """
    try:
        import jinja2
    except ImportError:
        raise InputError("--html: needs Jinja (pip install 'esnlm[plots]')") from None
    studies = {path: study for path in paths if (study := read_study(path)) is not None}
    folders = run_table.distinct_runs(
        run for path in paths for run in (studies[path].runs if path in studies else [path])
    )
    if not folders:
        raise InputError(
            f"{paths[0]}: a study without a finished run: continue it with its command first"
        )
    runs = [RunFiles(folder, scoring, may_load=len(folders) <= MOST_LOADED) for folder in folders]
    records = run_table.with_distinct_names([run.record for run in runs], folders)
    for run, record in zip(runs, records, strict=True):
        run.record = record
    title, lead = runs[0].name, runs[0].record.model
    sections = [(f"Study {study.name}", study.blocks) for study in studies.values()]
    if len(runs) > 1:
        title, lead = f"{len(runs)} runs", ", ".join(run.name for run in runs)
        # a study may have several seeds per cell
        sections += compare_runs(runs, by_seed or bool(studies))
    if studies:
        title = ", ".join(study.name for study in studies.values())
        lead = f"A study of {len(runs)} finished runs"
    parts = [(run.name, run.record.model, _sections_of(run)) for run in runs]
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("esnlm.reports", ""),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    text = environment.get_template("page.html").render(
        title=title,
        lead=lead,
        sections=sections or parts[0][2],
        folded=parts if sections else [],
        made_by=made_by,
    )
    page = text.encode(errors="replace")  # a path need not be Unicode
    write_file(out, page)
    return f"written: {out} ({len(page) / 1e3:,.0f} kB)"


def _sections_of(run: RunFiles) -> list[Section]:
    info(f"{run.name}: reading")
    sections = [(title, render(run)) for title, render in SECTIONS.items()]
    return [(title, blocks) for title, blocks in sections if blocks]


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
        blocks = [table(tree["table"]["header"], tree["table"]["rows"], align="llr")]
        blocks += [note(line) for line in (tree["note"], tree["legend"], *tree["notes"]) if line]
        blocks.append(block("command", what="Made by", line=tree["command"]))
    except (OSError, KeyError, TypeError, ValueError):
        raise InputError(f"{file}: damaged or edited; the study's command makes it again") from None
    runs = [run for run in (folder / "runs" / name for name in names) if run.exists()]
    return Study(tree["study"], runs, blocks)


def compare_runs(runs: Sequence[RunFiles], by_seed: bool) -> list[Section]:
    """Returns the sections about two or more runs; `by_seed`: one row for the seeds of a run."""
    groups = run_table.make_groups([run.record for run in runs], by_seed)
    tables = (run_table.loss_table(groups), run_table.score_table(groups))
    blocks = [table(*rows, align="llr", rows_are="runs") for rows in tables if rows[1]]
    sections = {
        "Side by side": blocks + [note(f"{line}.") for line in run_table.table_notes(groups)],
        # more groups have not enough distinct colours
        "Losses": draw_all(runs, groups) if len(groups) <= len(plots.COLOURS) else [],
        "By phenomenon": _phenomena(runs, groups),
        "Paired differences": differences(runs),
    }
    return [(title, blocks) for title, blocks in sections.items() if blocks]


def _phenomena(runs: Sequence[RunFiles], groups: Sequence[run_table.Group]) -> list[Block]:
    """Returns accuracies by phenomenon, one column per run with the same report as the first."""
    name = next(iter(runs[0].reports), "")
    scored = [group for group in groups if all(name in run.minimal_pairs for run in group)]
    if len(scored) < 2:
        return []
    header, rows = run_table.accuracy_table(scored, "phenomenon", name)
    rows = [[readable(row[0]), *row[1:]] for row in rows]
    return [table(header, rows, rows_are="phenomena"), note(f"Accuracy in percent, {name}.")]


def differences(runs: Sequence[RunFiles]) -> list[Block]:
    """Returns the paired differences between each run and the first.

    A run without a comparable report gets a note.
    """
    first = runs[0]
    name, report = next(iter(first.reports.items()), ("", None))
    if report is None:
        return []
    scoring, data = report["scoring"]["name"], report["data"]
    right, notes = {}, []  # right: which pairs are right, by run, (n,) bool
    for run in runs:
        file = run.directory.evaluation / f"{name}.json"
        try:
            right[run.name] = blimp_report.read_to_compare(
                file, scoring, data["sha256"], data["pairs"]
            ).right
        except InputError as error:
            notes.append(note(f"{error}."))
    reference = right.pop(first.name, None)
    if reference is None or not right:
        return notes
    uids = np.array([line["UID"] for line in first.pairs(name)])  # (n,) the same in all
    phenomenon_of = {uid: entry["phenomenon"] for uid, entry in report["paradigms"].items()}
    indices = {str(uid): np.flatnonzero(uids == uid) for uid in dict.fromkeys(uids)}
    comparisons = {
        other: statistics.compare(values, reference, indices, phenomenon_of)
        for other, values in right.items()
    }
    overall = {other: comparison["overall"] for other, comparison in comparisons.items()}
    statistics.correct_p_values(overall.values())
    text = (
        f"Accuracy minus that of {first.name}, in points, paired over the same pairs ({name},"
        f" {scoring} scoring). Intervals are bootstrapped over pairs; p-values are from McNemar’s"
        " exact test with the pairs pooled, and Holm’s correction is over the rows of each table."
    )
    blocks = [note(text), table(*difference_table(overall), rows_are="comparisons")]
    for other, comparison in comparisons.items():
        entries = {readable(name): entry for name, entry in comparison["phenomena"].items()}
        inner = table(*difference_table(entries), rows_are="phenomena")
        title = f"{other} against {first.name}, by phenomenon"
        blocks.append(block("details", title=title, blocks=[inner]))
    return blocks + notes
