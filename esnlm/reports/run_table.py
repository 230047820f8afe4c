"""The tables of several runs: their properties, losses and scores, with notes on how to read them.

Runs that differ only in their seed can share one row: the mean over seeds and the spread between
them.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from esnlm.base.errors import InputError
from esnlm.base.files import json_text, write_files
from esnlm.evaluation.statistics import LEVEL, seed_interval
from esnlm.reports import blimp_report, blimp_text
from esnlm.reports.blimp_text import entry_of
from esnlm.reports.run_groups import devices_of, group_by_seed, identify, name_group, tell_apart
from esnlm.reports.tables import Table, csv_table, markdown_table
from esnlm.runs.directory import RunDirectory

LEVELS = {name: level for level, name in blimp_text.LEVELS.items()}
SUFFIXES = (".md", ".csv")
SEEDS_NOTE = (
    "a ± b: mean and standard deviation (n - 1) over runs that differ only in their seed, diverged"
    f" ones included; {LEVEL:.0%}: for one run, over other sentences of the same kind; for several,"
    " over other seeds (Student's t)"
)
DIVERGED = "an NLL is not finite or above 10 ln V, or training.on_nonfinite stopped it"
FIGURES = {  # title and decimals of the numbers in a summary and its references
    "trainable_params": ("trained", 0),
    "total_params": ("all parameters", 0),
    "total_entries": ("all entries", 0),  # including the zeros of sparse matrices
    "words": ("words", 0),
    "train_nll": ("train NLL", 3),
    "val_nll": ("val NLL", 3),
    "val_nll_without_eos": ("val NLL without EOS", 3),  # papers seldom say which NLL they report
    "unigram model": ("unigram", 3),
    "bigram model": ("bigram", 3),
    "the grammar's entropy": ("true entropy", 3),
    "val_bits_per_byte": ("bits/byte", 3),
    "val_nats_per_word": ("nats/word", 3),
    "perplexity": ("perplexity", 2),
    "seconds": ("seconds", 0),
    "tokens_per_second": ("tokens/s", 0),
}
Group = list[dict]  # runs that share one row of the table


def report(
    runs: Sequence[Path],
    out: Path | None = None,
    seeds: bool = False,
    by: str = "run",
    scoring: str = "paper",
) -> str:
    """Returns Markdown tables of finished runs, from their summaries and the reports in their
    evaluation/ folders.

    Args:
        runs: run directories.
        out: a file for the tables, .md or .csv (one row per run, all digits), with all figures as
            JSON beside it.
        seeds: whether runs that differ only in their seed share one row, with mean and standard
            deviation.
        by: "run": one row per run; "phenomenon" or "paradigm": one row for each of these, one
            column per run.
        scoring: for "phenomenon" and "paradigm": the convention of the report,
            evaluation/blimp-SCORING.json.
    """
    rows = [row(Path(run)) for run in runs]
    tell_apart(rows, runs)
    groups = group_by_seed(rows) if seeds else [[row] for row in rows]
    name, align = f"blimp-{scoring}", "llr" if by == "run" else "lr"
    tables = (
        [loss_table(groups), score_table(groups)]
        if by == "run"
        else [accuracy_table(groups, by, name)]
    )
    tables = [table for table in tables if table[1]]
    notes = notes_on(groups, losses=by == "run")
    text = (
        "\n\n".join([*("\n".join(markdown_table(*table, align)) for table in tables), *notes])
        + "\n"
    )
    if out is not None:
        written = text
        if out.suffix.lower() == ".csv":
            records = [_record(row, by, name) for row in rows]
            header = list(dict.fromkeys(title for record in records for title in record))
            written = csv_table(
                header, [[record.get(title) for title in header] for record in records]
            )
        write_files({out: written, out.with_suffix(".json"): json_text(rows)})
    return text


def row(run: Path) -> dict:
    """Reads a finished run: the result of `identify`, with `minimal_pairs`, the reports in
    evaluation/ by name."""
    found = identify(run)
    if found["summary"] is None:
        raise InputError(
            f"{run}: not finished; finish its training, or draw its losses: esnlm report RUN --plot"
            " FILE.png"
        )
    return found | {"minimal_pairs": blimp_report.read_all(RunDirectory(run).evaluation)}


def figures(summary: dict) -> dict[str, float | None]:
    """Returns the numbers of FIGURES, None if unknown. Those of a diverged run may be inf or nan.

    Leaves out the train NLL of regressions, which is not a mean over updates but that of a sample
    after the fit.
    """
    known = summary | summary.get("references", {})
    if "regression" in known:
        known["train_nll"] = None
    return {key: None if known.get(key) is None else float(known[key]) for key in FIGURES}


def accuracies(row: dict, by: str, name: str) -> dict[str, float | None]:
    """Returns the accuracies in a run's report by phenomenon or paradigm, and "overall"."""
    if name not in row["minimal_pairs"]:
        raise InputError(
            f"{row['run']}: no report evaluation/{name}.json; make it with esnlm blimp --run"
        )
    read, level = row["minimal_pairs"][name], LEVELS[by]
    return {entry: entry_of(read, level, entry)["accuracy"] for entry in (*read[level], "overall")}


def loss_table(groups: Sequence[Group]) -> Table:
    """Returns the table of the runs' properties and losses."""
    rows = []
    for group in groups:
        known = [figures(row["summary"]) for row in group]
        shown = [
            spell_mean([its[key] for its in known], digits) for key, (_, digits) in FIGURES.items()
        ]
        rows.append([name_group(group), group[0]["model"], *shown])
    return ["run", "model", *(title for title, _ in FIGURES.values())], rows


def score_table(groups: Sequence[Group]) -> Table:
    """Returns the table of accuracies on minimal pairs, from the reports that all runs of a group
    have."""
    rows = []
    for group in groups:
        for name in group[0]["minimal_pairs"]:
            reports = [row["minimal_pairs"][name] for row in group if name in row["minimal_pairs"]]
            if len(reports) < len(group):
                continue
            values = [read["overall"]["accuracy"] for read in reports]
            interval = reports[0]["overall"]["interval"]
            if len(group) > 1:
                interval = None if None in values else seed_interval(values)
            status = ", ".join(
                dict.fromkeys(read["status"] for read in reports if read["status"] != "ok")
            )
            steps = " ".join(
                f"{step:,}" for step in dict.fromkeys(read["step"] for read in reports)
            )
            line = [name_group(group), name, steps, spell_mean(values, 2) or status]
            line.append(" - ".join(f"{bound:.2f}" for bound in interval or ()))
            for baseline in ("length", "unigram"):
                found = [
                    read["baselines"].get(baseline, {}).get("overall", {}).get("accuracy")
                    for read in reports
                ]
                line.append(spell_mean(found, 2))
            rows.append(line)
    return ["run", "minimal pairs", "step", "accuracy, %", "95 %", "length only", "unigram"], rows


def accuracy_table(groups: Sequence[Group], by: str, name: str) -> Table:
    """Returns the table of accuracies in percent: one row per phenomenon or paradigm, one column
    per run."""
    found = [[accuracies(row, by, name) for row in group] for group in groups]
    entries = dict.fromkeys(
        entry for its in found for each in its for entry in each if entry != "overall"
    )
    rows = [
        [entry, *(spell_mean([each.get(entry) for each in its], 1) for its in found)]
        for entry in (*entries, "overall")
    ]
    return [by, *map(name_group, groups)], rows


def spell_mean(values: Sequence[float | None], digits: int) -> str:
    """Formats a number, or the mean and standard deviation (n - 1) of several; empty if one is
    unknown."""
    if None in values:
        return ""
    with np.errstate(invalid="ignore"):  # numbers of a diverged run may be infinite
        known = np.array(values, np.float64)
        mean, deviation = known.mean(), known.std(ddof=1) if len(known) > 1 else None
    if deviation is None or (digits == 0 and deviation == 0):  # most counts are equal in all runs
        return f"{mean:,.{digits}f}"
    return f"{mean:,.{digits}f} ± {deviation:,.{digits}f}"


def _record(row: dict, by: str, name: str) -> dict[str, object]:
    """Returns a run as a row of a CSV file, with all digits."""
    record = {key: row[key] for key in ("run", "model", "seed")}
    if by != "run":
        return record | accuracies(row, by, name)
    record |= {FIGURES[key][0]: figure for key, figure in figures(row["summary"]).items()}
    return record | {
        name: read["overall"]["accuracy"] for name, read in row["minimal_pairs"].items()
    }


def notes_on(groups: Sequence[Group], losses: bool = True) -> list[str]:
    """Returns the notes below a table of runs, whose rows are `groups`."""
    rows = [row for group in groups for row in group]
    notes = [SEEDS_NOTE] if len(rows) > len(groups) else []
    for name in dict.fromkeys(name for row in rows for name in row["minimal_pairs"]):
        if (
            len(
                {
                    row["minimal_pairs"][name]["data"]["sha256"]
                    for row in rows
                    if name in row["minimal_pairs"]
                }
            )
            > 1
        ):
            notes.append(f"{name}: not all runs were scored on the same pairs")
    for row in rows:
        if row["summary"]["status"] == "diverged":
            notes.append(f"{row['run']} diverged: {DIVERGED}")
        for name, score in row["minimal_pairs"].items():
            ended = row["summary"].get("step", score["step"])
            if score["step"] not in (ended, 0):  # 0: scored untrained on purpose
                notes.append(
                    f"{row['run']}: {name} is from update {score['step']:,}, but the run ended at"
                    f" {ended:,}"
                )
    if not losses:
        return notes
    notes += on_comparing(rows)
    if len(devices := devices_of(rows)) > 1:
        notes.append(
            f"times are from different devices ({' and '.join(devices)}) and do not compare the"
            " models"
        )
    for row in rows:
        summary = row["summary"]
        if row["parent"]:
            notes.append(
                f"{row['run']} continues {row['parent']}: its words are counted since then"
            )
        if summary.get("changes"):
            notes.append(
                f"{row['run']}: its settings changed during training:"
                f" {', then '.join(summary['changes'])}"
            )
        if "train_nll_of" in summary:
            notes.append(f"{row['run']}: train NLL is the mean over {summary['train_nll_of']}")
    return notes


def on_comparing(rows: Sequence[dict]) -> Iterator[str]:
    """Yields a note if the losses per token or the validation texts of runs (from `identify`) are
    not comparable.

    Bits per byte and nats per word express the same loss, so their ratio gives the bytes per word,
    which differs between texts. Text generated for each seed is exempt.
    """
    if len({row["data_sha256"].get("tokenizer") for row in rows} - {None}) > 1:
        yield (
            "the runs have different tokenizers: compare their losses by bits per byte or nats per"
            " word only"
        )
    lengths = set()
    for row in rows:
        summary = row["summary"] or {}
        bits, nats = (
            float(summary.get(f"val_{key}") or 0) for key in ("bits_per_byte", "nats_per_word")
        )
        if row["settings"]["data"]["kind"] == "store" and 0 < bits < np.inf and 0 < nats < np.inf:
            lengths.add(round(nats / bits, 6))
    if len(lengths) > 1:
        yield (
            "not all runs were validated on the same sentences: compare them on one text (esnlm"
            " likelihood --text)"
        )
