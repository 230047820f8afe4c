"""The table of several runs: what they are, their losses and their scores.

Runs that differ in nothing but their seed can be one row: the mean over seeds and the spread between them.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import t as student_t

from esnlm.errors import InputError, require
from esnlm.evaluation.statistics import LEVEL
from esnlm.io.atomic import write_files
from esnlm.io.json_file import json_text, parse_json
from esnlm.reporting import blimp_report
from esnlm.reporting.run_groups import group_by_seed, identify, name_group, tell_apart
from esnlm.reporting.run_notes import notes_on, reports_of_all, scored_differently
from esnlm.reporting.tables import csv_table, latex_table, markdown_table
from esnlm.runs.directory import RunDirectory

# Of a table the suffixes, each of which says how it is written, and how such a file begins.
SUFFIXES = {
    ".md": r"\| (run \| model|phenomenon|paradigm) \| ",
    ".tex": r"(%.*\n)*\\begin\{tabular\}.*\n\\toprule\n(run & model|phenomenon|paradigm) & ",
    ".csv": r"(run,model|phenomenon|paradigm),",
}
LEVELS = {"phenomenon": "phenomena", "paradigm": "paradigms"}


class Column(NamedTuple):
    """A figure that the table tells of each run."""

    title: str
    digits: int
    of: Callable[[dict], float | None]  # a row of `row`


def report(
    runs: list[Path], out: Path | None = None, seeds: bool = False, by: str = "run", scoring: str = "paper"
) -> str:
    """Returns Markdown tables of finished runs, from their summaries and the reports in their evaluation/ folders.

    Only bits per byte and nats per word compare runs of different vocabularies, where they were validated on the same sentences. A note
    below the table says where they were not, and where the vocabularies differ.

    Args:
        runs: run directories.
        out: a file to write the tables to, with all figures as JSON beside it: LaTeX where it ends in .tex, CSV where it
            ends in .csv, Markdown where it ends in .md. A table of runs that is there is replaced.
        seeds: whether runs that differ in nothing but their seed are one row, their mean and standard deviation.
        by: "run": a row a run; "phenomenon" or "paradigm": a row for each of these, and a column a run.
        scoring: for the latter two: the report of this convention, evaluation/blimp-SCORING.json.

    Raises:
        InputError: a directory is not that of a finished run, two runs are of one seed where `seeds` is set, a run has no
            such report, those of a row's seeds were scored by different conventions, or `out` cannot be written.
    """
    if out is not None:
        _require_place(out)
    rows = [row(Path(run)) for run in runs]
    tell_apart(rows, runs)
    groups = group_by_seed(rows, runs) if seeds else [[row] for row in rows]
    whole = by == "run"
    align = "llr" if whole else "lr"
    if whole:
        scores = score_table(groups)
        tables = [loss_table(groups), *([scores] if scores[1] else [])]
    else:
        tables = [accuracy_table(groups, by, f"blimp-{scoring}")]
    notes = notes_on(groups, losses=whole)
    text = "\n".join(_joined(markdown_table(*table, align) for table in tables))
    text += "".join(f"\n\n{note}" for note in notes) + "\n"
    if out is not None:
        written = text
        if out.suffix.lower() == ".tex":
            lines = _joined(latex_table(*table, align) for table in tables)
            written = "\n".join([*(f"% {note}" for note in notes), *lines]) + "\n"
        elif out.suffix.lower() == ".csv":
            written = _csv(groups) if whole else _accuracies_csv(groups, by, f"blimp-{scoring}")
        write_files({out: written, out.with_suffix(".json"): json_text(rows)})
    return text


def _require_place(out: Path) -> None:
    """Raises InputError unless a table can be written there, and nothing but an earlier one would be lost."""
    require(
        out.suffix.lower() in SUFFIXES and not out.is_dir(),
        f"{out}: no name for a table; give one such as table.md, table.tex or table.csv, and table.json will stand beside it",
    )
    beside = out.with_suffix(".json")
    for file in (out, beside):
        # The figures may be those of a table of another suffix, so that they do not say what `out` is.
        if file.exists() and not (_is_of_runs(beside) and (file == beside or _is_table(out))):
            raise InputError(f"{file}: exists and is no table of runs; name another file with --out")


def _is_table(file: Path) -> bool:
    """Tells whether a file begins as a table of `report` does."""
    try:
        return re.match(SUFFIXES[file.suffix.lower()], file.read_text("utf-8")) is not None
    except (OSError, ValueError):
        return False


def _is_of_runs(file: Path) -> bool:
    """Tells whether a file holds the figures that `report` writes beside a table."""
    try:
        rows = parse_json(file.read_bytes())
    except (OSError, ValueError):
        return False
    if not isinstance(rows, list) or not rows:
        return False
    return all(isinstance(row, dict) and {"run", "minimal_pairs"} <= row.keys() for row in rows)


def row(run: Path) -> dict:
    """Reads a finished run.

    Returns:
        What `identify` returns, with `summary` and with `minimal_pairs`, the reports in evaluation/ by their names.

    Raises:
        InputError: the directory is not that of a finished run.
    """
    directory = RunDirectory(run)
    found = identify(run)
    require(
        found["summary"] is not None,
        f"{directory.path}: not a finished run; train it to its end with train.py, or draw its losses so far:"
        " esnlm report RUN --plot FILE.png",
    )
    scores = {}
    for name, read in blimp_report.read_all(directory.evaluation).items():
        baselines = read["baselines"]
        figures = {
            baseline: baselines[baseline]["overall"]["accuracy"] if baseline in baselines else None
            for baseline in ("length", "unigram")
        }
        figures |= {"step": read["step"], "status": read["status"], "data_sha256": read["data"]["sha256"]}
        figures |= {"scoring": read["scoring"]["name"], "config_sha256": read["config_sha256"]}
        for level in LEVELS.values():
            figures[level] = {entry: its["accuracy"] for entry, its in read[level].items()}
        scores[name] = read["overall"] | figures
    found["minimal_pairs"] = scores
    try:
        loss_table([[found]]), score_table([[found]])
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InputError(
            f"{directory.summary}: damaged, not as train.py wrote it; restore it from a copy of the run"
        ) from None
    return found


def _train_nll(row: dict) -> float | None:
    """Returns the mean NLL over updates. That of a regression is of a sample under the finished readout: None."""
    return None if "regression" in row["summary"] else row["summary"].get("train_nll")


def _column(title: str, key: str, digits: int, per: float = 1) -> Column:
    """Returns the column of a number in the summary, divided by `per`."""

    def of(row: dict) -> float | None:
        number = row["summary"].get(key)
        return None if number is None else float(number) / per  # float also reads "inf" and "nan", texts in JSON

    return Column(title, digits, of)


def _reference(title: str, name: str) -> Column:
    """Returns the column of the validation text's NLL under a reference of the corpus, in nats per token."""
    return Column(title, 3, lambda row: row["summary"].get("references", {}).get(name))


def _accuracy(report: str) -> Column:
    """Returns the column of the overall accuracy in a report on minimal pairs, in percent."""
    return Column(report, 2, lambda row: row["minimal_pairs"].get(report, {}).get("accuracy"))


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


def loss_table(groups: list[list[dict]]) -> tuple[list[str], list[list[str]]]:
    """Returns header and cells of the table of what the runs are and lose."""
    header = ["run", "model", *(column.title for column in COLUMNS)]
    cells = [
        [name_group(group), group[0]["model"], *(_figure(map(column.of, group), column.digits) for column in COLUMNS)]
        for group in groups
    ]
    return header, cells


def score_table(groups: list[list[dict]]) -> tuple[list[str], list[list[str]]]:
    """Returns header and cells of the table of what the runs score on minimal pairs."""
    cells = []
    for group in groups:
        for name in reports_of_all(group):
            scores = [row["minimal_pairs"][name] for row in group]
            accuracy, length, unigram = (
                _figure((score[key] for score in scores), 2) for key in ("accuracy", "length", "unigram")
            )
            steps = " ".join(f"{step:,}" for step in dict.fromkeys(score["step"] for score in scores))
            interval = _interval([score["accuracy"] for score in scores], scores[0]["interval"])
            shown = "" if interval is None else " - ".join(f"{bound:.2f}" for bound in interval)
            cells.append([name_group(group), name, steps, accuracy or _why_none(scores), shown, length, unigram])
    return ["run", "minimal pairs", "step", "accuracy, %", "95 %", "length only", "unigram"], cells


def _why_none(scores: Sequence[dict]) -> str:
    """Returns why there is no accuracy, such as "collapsed", or no mean of several, such as "1 of 3 collapsed"."""
    counts = Counter(score["status"] for score in scores if score["status"] != "ok")
    if len(scores) == 1:
        return "".join(counts)
    return ", ".join(f"{count} of {len(scores)} {status}" for status, count in counts.items())


def accuracy_table(groups: list[list[dict]], by: str, name: str) -> tuple[list[str], list[list[str]]]:
    """Returns header and cells of the table of accuracies in percent: a row a phenomenon or paradigm, a column a run."""
    rows = [
        [column.title, *(_figure(map(column.of, group), column.digits) for group in groups)]
        for column in _accuracies(groups, by, name)
    ]
    return [by, *map(name_group, groups)], rows


def _accuracies(groups: list[list[dict]], by: str, name: str) -> list[Column]:
    """Returns a figure for each phenomenon or paradigm in the reports of a name, and last the overall accuracy."""
    for run in (row for group in groups for row in group):
        require(
            name in run["minimal_pairs"],
            f"{run['run']}: it has no report evaluation/{name}.json; make it with eval_blimp.py --run",
        )
    for group in groups:
        require(
            name not in scored_differently(group),
            f"{name_group(group)}: its runs' reports evaluation/{name}.json were scored by different conventions, which have no mean;"
            " score all of them alike with eval_blimp.py --run, or leave --seeds out",
        )
    entries = dict.fromkeys(key for group in groups for row in group for key in row["minimal_pairs"][name][LEVELS[by]])

    def of_entry(entry: str) -> Column:
        return Column(entry, 1, lambda row: row["minimal_pairs"][name][LEVELS[by]].get(entry))

    return [*map(of_entry, entries), Column("overall", 1, lambda row: row["minimal_pairs"][name]["accuracy"])]


def _accuracies_csv(groups: list[list[dict]], by: str, name: str) -> str:
    """Returns the table of accuracies with all digits, and beside each run, or group of runs, its deviation."""
    header = [by]
    for group in groups:
        header += [name_group(group), f"{name_group(group)}, sd"]
    lines: list[list[object]] = []
    for column in _accuracies(groups, by, name):
        line: list[object] = [column.title]
        for group in groups:
            line += _mean_and_deviation([column.of(row) for row in group])
        lines.append(line)
    return csv_table(header, lines)


def _csv(groups: list[list[dict]]) -> str:
    """Returns a row a run, or a group of runs, with all digits, and with the accuracies of its reports as columns."""
    reports = dict.fromkeys(name for group in groups for name in reports_of_all(group))
    scores = [_accuracy(name) for name in reports]
    columns = (*COLUMNS, *scores)
    header = ["run", "model", "runs"]
    for column in columns:
        header += [column.title, f"{column.title}, sd"]
    lines = []
    for group in groups:
        line, without_mean = [name_group(group), group[0]["model"], len(group)], scored_differently(group)
        for column in columns:
            line += (
                [None, None] if column.title in without_mean else _mean_and_deviation([column.of(row) for row in group])
            )
        lines.append(line)
    return csv_table(header, lines)


def _mean_and_deviation(values: Sequence[float | None]) -> tuple[float | None, float | None]:
    """Returns mean and standard deviation (n - 1); None where a value is unknown, or one is too few for a deviation."""
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


def _joined(tables: Iterable[list[str]]) -> list[str]:
    """Returns the lines of several tables with an empty line between them."""
    lines: list[str] = []
    for table in tables:
        lines += ["", *table] if lines else table
    return lines


def _figure(values: Iterable[float | None], digits: int) -> str:
    """Returns a number, or mean and deviation of several; nothing where one is unknown."""
    mean, deviation = _mean_and_deviation(list(values))
    if mean is None:
        return ""
    exact = digits == 0 and deviation == 0  # most counts are the same in every run
    return f"{mean:,.{digits}f}" + ("" if deviation is None or exact else f" ± {deviation:,.{digits}f}")
