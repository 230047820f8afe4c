"""The table of several runs: what they are, their losses and their scores.

Runs that differ in nothing but their seed can be one row: the mean over seeds and the spread between them.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import t as student_t

from esnlm.errors import InputError
from esnlm.evaluation.statistics import LEVEL
from esnlm.io.atomic import write_files
from esnlm.io.json_file import json_text
from esnlm.reporting import blimp_report
from esnlm.reporting.run_groups import group_by_seed, identify, name_group, tell_apart
from esnlm.reporting.run_notes import notes_on, reports_of_all, scored_differently
from esnlm.reporting.tables import csv_table, latex_table, markdown_table
from esnlm.runs.directory import RunDirectory

LEVELS = {"phenomenon": "phenomena", "paradigm": "paradigms"}
SUFFIXES = (".md", ".tex", ".csv")


class Column(NamedTuple):
    """A figure of each run."""

    title: str
    digits: int
    of: Callable[[dict], float | None]  # a row of `row`


def report(
    runs: Sequence[Path], out: Path | None = None, seeds: bool = False, by: str = "run", scoring: str = "paper"
) -> str:
    """Returns Markdown tables of finished runs, from their summaries and the reports in their evaluation/ folders.

    Args:
        runs: run directories.
        out: a file to write the tables to, .md, .tex or .csv, with all figures as JSON beside it.
        seeds: whether runs that differ in nothing but their seed are one row, their mean and standard deviation.
        by: "run": a row a run; "phenomenon" or "paradigm": a row for each of these, and a column a run.
        scoring: for the latter two: the report of this convention, evaluation/blimp-SCORING.json.
    """
    rows = [row(Path(run)) for run in runs]
    tell_apart(rows, runs)
    groups = group_by_seed(rows, runs) if seeds else [[row] for row in rows]
    if by == "run":
        scores = score_table(groups)
        tables, align = [loss_table(groups), *([scores] if scores[1] else [])], "llr"
    else:
        tables, align = [accuracy_table(groups, by, f"blimp-{scoring}")], "lr"
    notes = notes_on(groups, losses=by == "run")
    text = "\n\n".join("\n".join(markdown_table(*table, align)) for table in tables)
    text += "".join(f"\n\n{note}" for note in notes) + "\n"
    if out is not None:
        written = text
        if out.suffix.lower() == ".tex":
            latex = "\n\n".join("\n".join(latex_table(*table, align)) for table in tables)
            written = "".join(f"% {note}\n" for note in notes) + latex + "\n"
        elif out.suffix.lower() == ".csv":
            written = _csv(groups, by, f"blimp-{scoring}")
        write_files({out: written, out.with_suffix(".json"): json_text(rows)})
    return text


def row(run: Path) -> dict:
    """Reads a finished run: what `identify` returns, with `minimal_pairs`, the reports in evaluation/ by their names."""
    directory = RunDirectory(run)
    found = identify(run)
    if found["summary"] is None:
        raise InputError(
            f"{run}: not a finished run; train it to its end, or draw its losses: esnlm report RUN --plot FILE.png"
        )
    scores = {}
    for name, read in blimp_report.read_all(directory.evaluation).items():
        figures = {
            key: read["baselines"].get(key, {}).get("overall", {}).get("accuracy") for key in ("length", "unigram")
        }
        figures |= {"step": read["step"], "status": read["status"], "data_sha256": read["data"]["sha256"]}
        figures |= {"scoring": read["scoring"]["name"], "config_sha256": read["config_sha256"]}
        for level in LEVELS.values():
            figures[level] = {entry: its["accuracy"] for entry, its in read[level].items()}
        scores[name] = read["overall"] | figures
    found["minimal_pairs"] = scores
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
    return None if "regression" in row["summary"] else row["summary"].get("train_nll")


COLUMNS = (
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
)


def loss_table(groups: Sequence[list[dict]]) -> tuple[list[str], list[list[str]]]:
    """Returns header and cells of the table of what the runs are and lose."""
    cells = [
        [name_group(group), group[0]["model"], *(_figure(map(column.of, group), column.digits) for column in COLUMNS)]
        for group in groups
    ]
    return ["run", "model", *(column.title for column in COLUMNS)], cells


def score_table(groups: Sequence[list[dict]]) -> tuple[list[str], list[list[str]]]:
    """Returns header and cells of the table of what the runs score on minimal pairs."""
    cells = []
    for group in groups:
        for name in reports_of_all(group):
            scores = [row["minimal_pairs"][name] for row in group]
            accuracy, *baselines = (
                _figure((score[key] for score in scores), 2) for key in ("accuracy", "length", "unigram")
            )
            steps = " ".join(f"{step:,}" for step in dict.fromkeys(score["step"] for score in scores))
            interval = _interval([score["accuracy"] for score in scores], scores[0]["interval"])
            shown = "" if interval is None else " - ".join(f"{bound:.2f}" for bound in interval)
            cells.append([name_group(group), name, steps, accuracy or _why_none(scores), shown, *baselines])
    return ["run", "minimal pairs", "step", "accuracy, %", "95 %", "length only", "unigram"], cells


def _why_none(scores: Sequence[dict]) -> str:
    """Returns why there is no accuracy, such as "collapsed", or no mean of several, such as "1 of 3 collapsed"."""
    counts = Counter(score["status"] for score in scores if score["status"] != "ok")
    several = len(scores) > 1
    return ", ".join(f"{count} of {len(scores)} {status}" if several else status for status, count in counts.items())


def accuracy_table(groups: Sequence[list[dict]], by: str, name: str) -> tuple[list[str], list[list[str]]]:
    """Returns header and cells of the table of accuracies in percent: a row a phenomenon or paradigm, a column a run."""
    rows = [
        [column.title, *(_figure(map(column.of, group), column.digits) for group in groups)]
        for column in _accuracies(groups, by, name)
    ]
    return [by, *map(name_group, groups)], rows


def _accuracies(groups: Sequence[list[dict]], by: str, name: str) -> list[Column]:
    """Returns a figure for each phenomenon or paradigm in the reports of a name, and last the overall accuracy."""
    for group in groups:
        for run in group:
            if name not in run["minimal_pairs"]:
                raise InputError(f"{run['run']}: no report evaluation/{name}.json; make it with eval_blimp.py --run")
        if name in scored_differently(group):
            raise InputError(
                f"{name_group(group)}: its reports evaluation/{name}.json were scored by different conventions, which have"
                " no mean; score all alike, or leave --seeds out"
            )
    entries = dict.fromkeys(key for group in groups for row in group for key in row["minimal_pairs"][name][LEVELS[by]])

    def of_entry(entry: str) -> Column:
        return Column(entry, 1, lambda row: row["minimal_pairs"][name][LEVELS[by]].get(entry))

    return [*map(of_entry, entries), Column("overall", 1, lambda row: row["minimal_pairs"][name]["accuracy"])]


def _csv(groups: Sequence[list[dict]], by: str, name: str) -> str:
    """Returns the table with all digits, and beside each figure its deviation over seeds.

    By run, a row is a run or a group of runs, and the accuracies of its reports are columns.
    """
    if by == "run":
        reports = dict.fromkeys(each for group in groups for each in reports_of_all(group))
        columns = [*COLUMNS, *map(_accuracy, reports)]
    else:
        columns = _accuracies(groups, by, name)
    names, titles = [name_group(group) for group in groups], [column.title for column in columns]
    table = []  # a row a group, a pair of figures a column
    for group in groups:
        mixed = scored_differently(group)
        known = ([None if column.title in mixed else column.of(row) for row in group] for column in columns)
        table.append(list(map(_mean_and_deviation, known)))
    if by == "run":
        header = ["run", "model", "runs"]
        heads: list[list[object]] = [[name_group(group), group[0]["model"], len(group)] for group in groups]
    else:
        header, heads = [by], [[title] for title in titles]
        titles, table = names, [list(line) for line in zip(*table, strict=True)]
    header += chain.from_iterable((title, f"{title}, sd") for title in titles)
    return csv_table(header, [[*head, *chain.from_iterable(line)] for head, line in zip(heads, table, strict=True)])


def _accuracy(report: str) -> Column:
    """Returns the column of the overall accuracy in a report on minimal pairs, in percent."""
    return Column(report, 2, lambda row: row["minimal_pairs"].get(report, {}).get("accuracy"))


def _mean_and_deviation(values: Iterable[float | None]) -> tuple[float | None, float | None]:
    """Returns mean and standard deviation (n - 1); None if a value is unknown, or one is too few for a deviation."""
    values = list(values)
    known = [float(value) for value in values if value is not None]
    if len(known) < len(values) or not known:
        return None, None
    with np.errstate(invalid="ignore"):  # a diverged run may have any number
        return float(np.mean(known)), float(np.std(known, ddof=1)) if len(known) > 1 else None


def _interval(accuracies: Sequence[float | None], interval: list[float] | None) -> list[float] | None:
    """Returns the 95 % interval: of one run its own, of several that of their mean over seeds, by Student's t."""
    if len(accuracies) == 1:
        return interval
    mean, deviation = _mean_and_deviation(accuracies)
    if mean is None or deviation is None:
        return None
    half = float(student_t.ppf(0.5 + LEVEL / 2, len(accuracies) - 1)) * deviation / len(accuracies) ** 0.5
    return [mean - half, mean + half]


def _figure(values: Iterable[float | None], digits: int) -> str:
    """Returns a number, or mean and deviation of several; nothing if one is unknown."""
    mean, deviation = _mean_and_deviation(values)
    if mean is None:
        return ""
    exact = digits == 0 and deviation == 0  # most counts are the same in every run
    return f"{mean:,.{digits}f}" + ("" if deviation is None or exact else f" ± {deviation:,.{digits}f}")
