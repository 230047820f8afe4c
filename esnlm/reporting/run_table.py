"""The table of several runs: what they are, their losses and their scores.

Runs that differ in nothing but their seed can be one row: the mean over seeds and the spread between them.
"""

import contextlib
import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import t as student_t

from esnlm import config_io
from esnlm.config import as_dict
from esnlm.errors import InputError, require
from esnlm.evaluation.statistics import LEVEL
from esnlm.reporting import blimp_report
from esnlm.reporting.tables import csv_table, latex_table, markdown_table
from esnlm.runs.atomic import write_files
from esnlm.runs.console import counted
from esnlm.runs.directory import RunDirectory
from esnlm.runs.json_file import json_text, parse_json
from esnlm.runs.small_file import read_small
from esnlm.training.settings import hash_settings

# Of a table the suffixes, each of which says how it is written, and how such a file begins.
SUFFIXES = {
    ".md": r"\| (run \| model|phenomenon|paradigm) \| ",
    ".tex": r"(%.*\n)*\\begin\{tabular\}.*\n\\toprule\n(run & model|phenomenon|paradigm) & ",
    ".csv": r"(run,model|phenomenon|paradigm),",
}
LEVELS = {"phenomenon": "phenomena", "paradigm": "paradigms"}
SEEDS_NOTE = "a ± b: the mean over runs that differ in their seed, and their standard deviation (n - 1)"
INTERVAL_NOTE = f"{LEVEL:.0%}: of one run, other sentences of the same kind; of several runs, other seeds (Student's t)"


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
    scores = score_table(groups)
    if whole:
        tables = [loss_table(groups), *([scores] if scores[1] else [])]
    else:
        tables = [accuracy_table(groups, by, f"blimp-{scoring}")]
    notes = [SEEDS_NOTE] if any(len(group) > 1 for group in groups) else []
    notes += [INTERVAL_NOTE] if notes and whole and scores[1] else []
    notes += [*diverged(groups), *on_different_pairs(rows), *by_different_conventions(groups), *of_other_steps(rows)]
    notes += of_other_configurations(rows)
    notes += [*of_different_tokenizers(rows), *on_different_sentences(rows)] if whole else []
    notes += [*continued(rows), *of_unfinished_epochs(rows)] if whole else []
    notes += of_missing_reports(groups) if whole else []
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


def identify(run: Path) -> dict:
    """Reads what a run is, finished or not.

    Returns:
        {run, model, seed, settings, settings_sha256, config_sha256, tokenizer_sha256, parent, summary}: `settings` has the sections of
        the configuration that decide the result, `settings_sha256` is their `hash_settings` (training/settings.py), `config_sha256` is
        that of config.yaml, `tokenizer_sha256` is None where it is not known, `parent` is the run that it goes on from, and `summary` is
        None where the run has not come to its end.

    Raises:
        InputError: the directory is not that of a run.
    """
    directory = RunDirectory(run)
    require(directory.path.is_dir(), f"{directory.path}: no run directory; name one that train.py made")
    if not directory.config.exists():
        if _is_study(directory.path):
            raise InputError(
                f"{directory.path}: the folder of a study; name its runs, or give --html for a page of the study"
            )
        raise InputError(f"{directory.path}: no run in this directory; name one that train.py made")
    experiment = config_io.read_begun(directory.config)
    return {
        "run": directory.path.name,
        "model": experiment.model.title,
        "seed": experiment.seed,
        "settings": {section: as_dict(experiment)[section] for section in ("data", "model", "training")},
        "settings_sha256": hash_settings(experiment),
        "config_sha256": hashlib.sha256(directory.config.read_bytes()).hexdigest(),
        "tokenizer_sha256": _tokenizer_sha256(directory),
        "parent": experiment.parent.run,
        "summary": directory.read_summary(),
    }


def _tokenizer_sha256(directory: RunDirectory) -> str | None:
    """Returns the sha256 of the tokenizer that a run was begun with; None where it is not known, as that of an imported model."""
    try:
        found = parse_json(read_small(directory.data))["tokenizer"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, str) else None


def all_but_seed(run: Path) -> list[Any]:
    """Returns what runs have in common that differ in nothing but their seed: settings, precision, text and parent.

    How a run was logged and saved does not count, and neither does where its text lies. A parent is known by the same of its own
    as long as it is there, and else by its path.

    Raises:
        InputError: the configuration of the run cannot be read.
    """
    directory = RunDirectory(run)
    experiment = config_io.read_begun(directory.config)
    parent, text = experiment.parent, None
    of_parent: list[Any] | None = None
    own = hash_settings(dataclasses.replace(experiment, parent=dataclasses.replace(parent, run=None)))
    if not experiment.data.depends_on_seed:
        with contextlib.suppress(OSError, ValueError):
            text = parse_json(read_small(directory.data))
    if parent.run is not None:
        of_parent = [parent.run, parent.step]
        with contextlib.suppress(InputError, OSError):
            summary = RunDirectory(Path(parent.run)).read_summary() or {}
            if summary.get("config_sha256") == parent.config_sha256:  # else another run lies there now
                ended = summary.get("step") == parent.step
                of_parent = [all_but_seed(Path(parent.run)), "its end" if ended else parent.step]
    return [own, text, of_parent]


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
        for name in _reports_of_all(group):
            scores = [row["minimal_pairs"][name] for row in group]
            accuracy, length, unigram = (
                _figure((score[key] for score in scores), 2) for key in ("accuracy", "length", "unigram")
            )
            steps = " ".join(f"{step:,}" for step in dict.fromkeys(score["step"] for score in scores))
            interval = _interval([score["accuracy"] for score in scores], scores[0]["interval"])
            shown = "" if interval is None else " - ".join(f"{bound:.2f}" for bound in interval)
            cells.append([name_group(group), name, steps, accuracy, shown, length, unigram])
    return ["run", "minimal pairs", "step", "accuracy, %", "95 %", "length only", "unigram"], cells


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
            name not in _mixed(group),
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
    reports = dict.fromkeys(name for group in groups for name in _reports_of_all(group))
    scores = [_accuracy(name) for name in reports]
    columns = (*COLUMNS, *scores)
    header = ["run", "model", "runs"]
    for column in columns:
        header += [column.title, f"{column.title}, sd"]
    lines = []
    for group in groups:
        line = [name_group(group), group[0]["model"], len(group)]
        for column in columns:
            line += _mean_and_deviation([column.of(row) for row in group])
        lines.append(line)
    return csv_table(header, lines)


def _is_study(folder: Path) -> bool:
    """Returns whether a folder has the table of a study."""
    try:
        return bool(parse_json((folder / "table.json").read_bytes())["format"] == "esnlm study")
    except (OSError, ValueError, KeyError, TypeError):
        return False


def tell_apart(rows: Sequence[dict], runs: Sequence[Path]) -> None:
    """Calls runs by their paths where two folders have one name.

    Args:
        rows: from `identify` or `row`; their "run" is replaced.
        runs: their directories.
    """
    folders = {(row["run"], run.resolve()) for row, run in zip(rows, runs, strict=True)}
    names = [name for name, _ in folders]  # one folder that is given twice is one run
    for row, run in zip(rows, runs, strict=True):
        if names.count(row["run"]) > 1:
            row["run"] = str(run)


def name_group(group: Sequence[dict]) -> str:
    """Returns the name of a run, or of runs of different seeds and how many these are.

    Where all names end with their seed, as a study ends them, it is what stands before. Elsewhere it is the first name, since what
    names have in common may be in common with other runs, too: run10 and run11 of one model, run12 and run13 of another.

    Example:
        >>> name_group([{"run": "esn-seed0"}, {"run": "esn-seed1"}])
        'esn (2 seeds)'
    """
    names = [row["run"] for row in group]
    without_seed = {re.sub(r"[-_.]?seed\d+$", "", name) for name in names}
    if len(names) == 1:
        return names[0]
    if len(without_seed) == 1 and without_seed != {""}:
        return f"{without_seed.pop()} ({len(names)} seeds)"
    return f"{names[0]} and {counted(len(names) - 1, 'more seed')}"


def group_by_seed(rows: Sequence[dict], runs: Sequence[Path], twins: bool = False) -> list[list[dict]]:
    """Returns the rows of runs in groups that differ in nothing but their seed, in the order of each group's first run.

    See `all_but_seed` for what they have in common.

    Args:
        rows: from `identify` or `row`.
        runs: their directories.
        twins: whether a run whose seed its group has already is a group of its own. A mean would count the seed twice.

    Raises:
        InputError: two runs of a group have one seed, and `twins` is not set.
    """
    groups: list[list[dict]] = []
    group_of: dict[str, list[dict]] = {}
    for row, run in zip(rows, runs, strict=True):
        key = json.dumps(all_but_seed(run))
        group = group_of.get(key, [])
        twin = next((other for other in group if other["seed"] == row["seed"]), None)
        if twin is not None:
            require(
                twins,
                f"{twin['run']} and {row['run']}: the same settings and the same seed, {row['seed']}; name one of them",
            )
            groups.append([row])
            continue
        if not group:
            group_of[key] = group
            groups.append(group)
        group.append(row)
    return groups


def machine(device: Mapping[str, Any]) -> str:
    """Returns the device of a summary as a text.

    Example:
        >>> machine({"platform": "cpu", "kind": "cpu", "count": 1, "cores": 2})
        'cpu x 1, 2 cores'
    """
    return f"{device['kind']} x {device['count']}, {counted(device['cores'], 'core')}"


def diverged(groups: Iterable[list[dict]]) -> list[str]:
    """Returns a line for each run that diverged, which says whether a mean over seeds counts it."""
    return [
        f"{row['run']} diverged: a train or validation NLL is not finite or above 10 ln V"
        + ("; the mean over seeds counts it all the same" if len(group) > 1 else "")
        for group in groups
        for row in group
        if row["summary"].get("status") == "diverged"
    ]


def continued(rows: Iterable[dict]) -> list[str]:
    """Returns a line for each run that goes on from another one: its words are not all that its arrays have seen."""
    return [
        f"{row['run']} goes on from {row['parent']}: its words are those since then" for row in rows if row["parent"]
    ]


def of_unfinished_epochs(rows: Iterable[dict]) -> list[str]:
    """Returns a line for each run that ended within an epoch: its train NLL is of fewer updates than that of others."""
    return [
        f"{row['run']}: train NLL is the mean over {row['summary']['train_nll_of']}"
        for row in rows
        if "train_nll_of" in row["summary"]
    ]


def _reports_of_all(group: list[dict]) -> list[str]:
    """Returns the names of the reports that every run of a group has, by one convention, so that they have a mean."""
    mixed = _mixed(group)
    names = [name for name in group[0]["minimal_pairs"] if all(name in row["minimal_pairs"] for row in group)]
    return [name for name in names if name not in mixed]


def _mixed(rows: Iterable[dict]) -> list[str]:
    """Returns the names of the reports that not all runs were scored for by the same convention."""
    scorings: dict[str, set[str]] = {}
    for run in rows:
        for name, score in run["minimal_pairs"].items():
            scorings.setdefault(name, set()).add(score["scoring"])
    return [name for name, found in scorings.items() if len(found) > 1]


def of_missing_reports(groups: Iterable[list[dict]]) -> list[str]:
    """Returns a line for each report that some runs of a group lack, so that the table has no row of it."""
    lines = []
    for group in groups:
        for name in dict.fromkeys(name for row in group for name in row["minimal_pairs"]):
            missing = sum(name not in row["minimal_pairs"] for row in group)
            if missing:
                verb = "has" if missing == 1 else "have"
                lines.append(f"{name}: {missing} of {len(group)} runs of {name_group(group)} {verb} no such report")
    return lines


def of_other_steps(rows: Iterable[dict]) -> list[str]:
    """Returns a line for each report that is not of a run's last update."""
    return [
        f"{row['run']}: {name} is of update {score['step']:,}, and the run ended at {row['summary']['step']:,}"
        for row in rows
        for name, score in row["minimal_pairs"].items()
        if score["step"] != row["summary"].get("step", score["step"])
    ]


def of_other_configurations(rows: Iterable[dict]) -> list[str]:
    """Returns a line for each report of a run that had another configuration, such as one that lay in this folder before."""
    return [
        f"{row['run']}: {name} is of a run of another configuration: score this one again with eval_blimp.py --overwrite"
        for row in rows
        for name, score in row["minimal_pairs"].items()
        if score["config_sha256"] != row["config_sha256"]
    ]


def of_different_tokenizers(rows: Iterable[dict]) -> list[str]:
    """Returns a line where not all runs have one tokenizer: their losses per token are of different tokens.

    Args:
        rows: from `identify` or `row`. A run whose tokenizer is not known is left out.
    """
    if len({row["tokenizer_sha256"] for row in rows} - {None}) < 2:
        return []
    return ["the runs are of different tokenizers: only bits per byte and nats per word compare their losses"]


def on_different_sentences(rows: Iterable[dict]) -> list[str]:
    """Returns a line where not all runs were validated on the same sentences of a text, by how long their words are.

    That is so where their texts differ, and also where their tokenizers do: a sentence may be too short for one of them only. Bits per
    byte and nats per word are of one loss, so that their ratio tells the bytes of a word. Made-up text differs with the seed, and is
    left out.
    """
    lengths: dict[str, float] = {}
    for row in rows:
        by_byte, by_word = (row["summary"].get(name) for name in ("val_bits_per_byte", "val_nats_per_word"))
        if row["settings"]["data"]["kind"] == "store" and all(_is_positive(each) for each in (by_byte, by_word)):
            lengths[row["run"]] = round(by_word / (by_byte * np.log(2)), 6)
    if len(set(lengths.values())) < 2:
        return []
    first, last = min(lengths, key=lengths.__getitem__), max(lengths, key=lengths.__getitem__)
    return [
        f"not all runs were validated on the same sentences: their words have {lengths[first]:.4f} bytes in {first} and"
        f" {lengths[last]:.4f} in {last}. To compare their losses or bits per byte, score both on one text (esnlm likelihood --text)"
    ]


def _is_positive(figure: object) -> bool:
    return isinstance(figure, int | float) and 0 < figure < np.inf


def on_different_pairs(rows: Iterable[dict]) -> list[str]:
    """Returns a line for each name of reports that are not all of the same pairs."""
    pairs: dict[str, set[str]] = {}
    for run in rows:
        for name, score in run["minimal_pairs"].items():
            pairs.setdefault(name, set()).add(score["data_sha256"])
    return [
        f"{name}: not all runs were scored on the same pairs" for name, digests in pairs.items() if len(digests) > 1
    ]


def by_different_conventions(groups: Sequence[list[dict]]) -> list[str]:
    """Returns a line for each name of reports that not all runs were scored for by the same convention (`--scoring`)."""
    lines = []
    for name in _mixed(row for group in groups for row in group):
        without = [name_group(group) for group in groups if name in _mixed(group)]
        lines.append(
            f"{name}: not all runs were scored by the same convention"
            + (f"; there is no mean of it over {' and over '.join(without)}" if without else "")
        )
    return lines


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
