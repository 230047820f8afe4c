"""The table of several runs: what they are, their losses and their scores, and what a reader must know of these.

Runs that differ in nothing but their seed can be one row: the mean over seeds and the spread between them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import t as student_t

from esnlm.errors import InputError
from esnlm.evaluation.statistics import LEVEL
from esnlm.io.atomic import write_files
from esnlm.io.json_file import json_text
from esnlm.reporting import blimp_report
from esnlm.reporting.run_groups import devices_of, group_by_seed, identify, name_group, tell_apart
from esnlm.reporting.tables import csv_table, latex_table, markdown_table
from esnlm.runs.directory import RunDirectory

LEVELS = {"phenomenon": "phenomena", "paradigm": "paradigms"}
SUFFIXES = (".md", ".tex", ".csv")
SEEDS_NOTE = (
    "a ± b: the mean over runs that differ in their seed, diverged ones too, and their standard deviation (n - 1);"
    f" {LEVEL:.0%}: of one run, other sentences of the same kind; of several runs, other seeds (Student's t)"
)
Table = tuple[list[str], list[list[str]]]  # header and rows
Group = list[dict]  # the rows of runs that are one row of the table


class Column(NamedTuple):
    """A figure of each run."""

    title: str
    digits: int
    of: Callable[[dict], float | None]  # a row of `row`

    def shown(self, group: Group) -> str:
        """Returns the figure, or mean and deviation of several; nothing if one is unknown."""
        mean, deviation = mean_and_deviation(map(self.of, group))
        if mean is None:
            return ""
        exact = self.digits == 0 and deviation == 0  # most counts are the same in every run
        spread = "" if deviation is None or exact else f" ± {deviation:,.{self.digits}f}"
        return f"{mean:,.{self.digits}f}{spread}"


def report(
    runs: Sequence[Path], out: Path | None = None, seeds: bool = False, by: str = "run", scoring: str = "paper"
) -> str:
    """Returns Markdown tables of finished runs, from their summaries and the reports in their evaluation/ folders.

    Args:
        runs: run directories.
        out: a file to write the tables to, .md, .tex or .csv (a row a run, all digits), with all figures as JSON beside it.
        seeds: whether runs that differ in nothing but their seed are one row, their mean and standard deviation.
        by: "run": a row a run; "phenomenon" or "paradigm": a row for each of these, and a column a run.
        scoring: for the latter two: the report of this convention, evaluation/blimp-SCORING.json.
    """
    rows = [row(Path(run)) for run in runs]
    tell_apart(rows, runs)
    groups = group_by_seed(rows, runs) if seeds else [[row] for row in rows]
    if by == "run":
        tables, align = [table for table in (loss_table(groups), score_table(groups)) if table[1]], "llr"
    else:
        tables, align = [accuracy_table(groups, by, f"blimp-{scoring}")], "lr"
    notes = notes_on(groups, losses=by == "run")
    text = "\n\n".join([*("\n".join(markdown_table(*table, align)) for table in tables), *notes]) + "\n"
    if out is not None:
        written = text
        if out.suffix.lower() == ".tex":
            latex = "\n\n".join("\n".join(latex_table(*table, align)) for table in tables)
            written = "".join(f"% {note}\n" for note in notes) + latex + "\n"
        elif out.suffix.lower() == ".csv":
            columns = COLUMNS + _overall(rows) if by == "run" else _accuracies(groups, by, f"blimp-{scoring}")
            table = [[row["run"], row["model"], row["seed"], *(column.of(row) for column in columns)] for row in rows]
            written = csv_table(["run", "model", "seed", *(column.title for column in columns)], table)
        write_files({out: written, out.with_suffix(".json"): json_text(rows)})
    return text


def row(run: Path) -> dict:
    """Reads a finished run: what `identify` returns, with `minimal_pairs`, the reports in evaluation/ by their names."""
    found = identify(run)
    if found["summary"] is None:
        raise InputError(
            f"{run}: not a finished run; train it to its end, or draw its losses: esnlm report RUN --plot FILE.png"
        )
    found["minimal_pairs"] = {}
    for name, read in blimp_report.read_all(RunDirectory(run).evaluation).items():
        baselines = {key: read["baselines"].get(key, {}).get("overall", {}) for key in ("length", "unigram")}
        found["minimal_pairs"][name] = {
            **read["overall"],
            **{key: its.get("accuracy") for key, its in baselines.items()},
            **{"step": read["step"], "status": read["status"], "data_sha256": read["data"]["sha256"]},
            **{"scoring": read["scoring"]["name"], "config_sha256": read["config_sha256"]},
            **{level: {entry: its["accuracy"] for entry, its in read[level].items()} for level in LEVELS.values()},
        }
    return found


def _column(title: str, key: str, digits: int, per: int = 1) -> Column:
    """Returns the column of a number in the summary, divided by `per`. Those of a diverged run may be "inf" or "nan"."""

    def of(row: dict) -> float | None:
        number = row["summary"].get(key)
        return None if number is None else float(number) / per

    return Column(title, digits, of)


def _reference(title: str, name: str) -> Column:
    """Returns the column of the validation text's NLL under a reference of the corpus."""
    return Column(title, 3, lambda row: row["summary"].get("references", {}).get(name))


def _train_nll(row: dict) -> float | None:
    """Returns the mean NLL over updates; a regression has none, but that of a sample under the finished readout."""
    number = row["summary"].get("train_nll")
    return None if number is None or "regression" in row["summary"] else float(number)


COLUMNS = [
    _column("trained", "trainable_params", 0),
    _column("all parameters", "total_params", 0),
    _column("words", "words", 0),
    Column("train NLL", 3, _train_nll),
    _column("val NLL", "val_nll", 3),
    _column("without EOS", "val_nll_without_eos", 3),
    _reference("unigram", "unigram model"),
    _reference("bigram", "bigram model"),
    _reference("true entropy", "the grammar's entropy"),
    _column("bits/byte", "val_bits_per_byte", 3),
    _column("nats/word", "val_nats_per_word", 3),
    _column("minutes", "seconds", 1, per=60),
    _column("tokens/s", "tokens_per_second", 0),
]


def loss_table(groups: Sequence[Group]) -> Table:
    """Returns the table of what the runs are and lose."""
    rows = [[name_group(g), g[0]["model"], *(column.shown(g) for column in COLUMNS)] for g in groups]
    return ["run", "model", *(column.title for column in COLUMNS)], rows


def score_table(groups: Sequence[Group]) -> Table:
    """Returns the table of what the runs score on minimal pairs, of the reports that all runs of a group have."""
    columns = [Column(key, 2, itemgetter(key)) for key in ("accuracy", "length", "unigram")]
    rows = []
    for group in groups:
        mixed = differing(group, "scoring")
        for name in group[0]["minimal_pairs"]:
            scores = [row["minimal_pairs"][name] for row in group if name in row["minimal_pairs"]]
            if name in mixed or len(scores) < len(group):
                continue
            accuracy, *baselines = (column.shown(scores) for column in columns)
            status = ", ".join(dict.fromkeys(score["status"] for score in scores if score["status"] != "ok"))
            steps = " ".join(f"{step:,}" for step in dict.fromkeys(score["step"] for score in scores))
            interval = " - ".join(f"{bound:.2f}" for bound in _interval(scores))
            rows.append([name_group(group), name, steps, accuracy or status, interval, *baselines])
    return ["run", "minimal pairs", "step", "accuracy, %", "95 %", "length only", "unigram"], rows


def accuracy_table(groups: Sequence[Group], by: str, name: str) -> Table:
    """Returns the table of accuracies in percent: a row a phenomenon or paradigm, a column a run."""
    rows = [[column.title, *map(column.shown, groups)] for column in _accuracies(groups, by, name)]
    return [by, *map(name_group, groups)], rows


def _accuracies(groups: Sequence[Group], by: str, name: str) -> list[Column]:
    """Returns a figure for each phenomenon or paradigm in the reports of a name, and last the overall accuracy."""
    rows = [row for group in groups for row in group]
    for row in rows:
        if name not in row["minimal_pairs"]:
            raise InputError(f"{row['run']}: no report evaluation/{name}.json; make it with eval_blimp.py --run")
    if mixed := [name_group(group) for group in groups if name in differing(group, "scoring")]:
        raise InputError(f"{mixed[0]}: {name} was scored by different conventions, which have no mean")
    entries = dict.fromkeys(entry for row in rows for entry in row["minimal_pairs"][name][LEVELS[by]])

    def of_entry(entry: str) -> Column:
        return Column(entry, 1, lambda row: row["minimal_pairs"][name][LEVELS[by]].get(entry))

    return [*map(of_entry, entries), Column("overall", 1, lambda row: row["minimal_pairs"][name]["accuracy"])]


def _overall(rows: Sequence[dict]) -> list[Column]:
    """Returns the overall accuracies of all reports, in percent."""

    def of_report(name: str) -> Column:
        return Column(name, 2, lambda row: row["minimal_pairs"].get(name, {}).get("accuracy"))

    return list(map(of_report, dict.fromkeys(name for row in rows for name in row["minimal_pairs"])))


def mean_and_deviation(values: Iterable[float | None]) -> tuple[float | None, float | None]:
    """Returns mean and standard deviation (n - 1); None if a value is unknown, or one is too few for a deviation."""
    values = list(values)
    if None in values or not values:
        return None, None
    known = np.array(values, np.float64)
    with np.errstate(invalid="ignore"):  # a diverged run may have any number
        return float(known.mean()), float(known.std(ddof=1)) if len(known) > 1 else None


def _interval(scores: Sequence[dict]) -> list[float]:
    """Returns the 95 % interval: of one run its own, of several that of their mean over seeds; empty if there is none."""
    if len(scores) == 1:
        return scores[0]["interval"] or []
    mean, deviation = mean_and_deviation(score["accuracy"] for score in scores)
    if mean is None or deviation is None:
        return []
    half = float(student_t.ppf(0.5 + LEVEL / 2, len(scores) - 1)) * deviation / len(scores) ** 0.5
    return [mean - half, mean + half]


def differing(rows: Sequence[dict], key: str) -> list[str]:
    """Returns the names of the reports in which runs differ in `key`."""
    found: dict[str, set[str]] = {}
    for row in rows:
        for name, score in row["minimal_pairs"].items():
            found.setdefault(name, set()).add(score[key])
    return [name for name, values in found.items() if len(values) > 1]


def notes_on(groups: Sequence[Group], losses: bool = True) -> list[str]:
    """Returns the lines that belong below a table of runs, of which `groups` are the rows."""
    rows = [row for group in groups for row in group]
    notes = [SEEDS_NOTE] if len(rows) > len(groups) else []
    notes += [f"{name}: not all runs were scored on the same pairs" for name in differing(rows, "data_sha256")]
    notes += [f"{name}: not all runs were scored by the same convention" for name in differing(rows, "scoring")]
    for row in rows:
        if row["summary"]["status"] == "diverged":
            notes.append(f"{row['run']} diverged: {why_diverged(row)}")
        for name, score in row["minimal_pairs"].items():
            ended = row["summary"].get("step", score["step"])
            if score["step"] != ended:
                notes.append(f"{row['run']}: {name} is of update {score['step']:,}, and the run ended at {ended:,}")
            if score["config_sha256"] != row["config_sha256"]:
                notes.append(f"{row['run']}: {name} is of a run of another configuration: score this one again")
    if not losses:
        return notes
    notes += on_comparing(rows)
    if len(devices := devices_of(rows)) > 1:
        notes.append(f"times are of different devices, {' and '.join(devices)}: they do not compare the models")
    for row in rows:
        summary = row["summary"]
        if row["parent"]:
            notes.append(f"{row['run']} goes on from {row['parent']}: its words are those since then")
        if summary.get("changes"):
            notes.append(f"{row['run']}: its settings were changed under way, {', then '.join(summary['changes'])}")
        if "train_nll_of" in summary:
            notes.append(f"{row['run']}: train NLL is the mean over {summary['train_nll_of']}")
    return notes


def on_comparing(rows: Sequence[dict]) -> Iterator[str]:
    """Yields lines if losses per token, or validation texts, of runs (from `identify`) cannot be compared.

    Bits per byte and nats per word are of one loss, so their ratio tells the bytes of a word, which differ if the
    sentences do. Text that is made up for each seed is left out.
    """
    if len({row["tokenizer_sha256"] for row in rows} - {None}) > 1:
        yield "the runs are of different tokenizers: only bits per byte and nats per word compare their losses"
    lengths = set()
    for row in rows:
        bits, nats = (
            float((row["summary"] or {}).get(f"val_{key}") or 0) for key in ("bits_per_byte", "nats_per_word")
        )
        if row["settings"]["data"]["kind"] == "store" and 0 < bits < np.inf and 0 < nats < np.inf:
            lengths.add(round(nats / bits, 6))
    if len(lengths) > 1:
        yield "not all runs were validated on the same sentences: compare them on one text (esnlm likelihood --text)"


def why_diverged(row: dict) -> str:
    """Returns why a run's status is "diverged"."""
    if row["settings"]["training"].get("on_nonfinite") == "stop" and row["summary"].get("skipped_updates"):
        return "a loss or a gradient was not finite, and training.on_nonfinite stop ended it there"
    return "a train or validation NLL is not finite or above 10 ln V"
