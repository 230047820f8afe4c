"""Tables of runs: their properties, losses and scores, with notes on how to read them.

Runs that differ only in their seed form a group, which is one row of a table and one line of a
plot.
"""

import contextlib
import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from esnlm.base.console import counted
from esnlm.base.errors import InputError
from esnlm.evaluation.statistics import LEVEL, mean_over_seeds
from esnlm.reports import blimp_report
from esnlm.reports.figures import FIGURES, format_interval, format_mean, titles
from esnlm.reports.report import Report, Table, csv_table, markdown_table
from esnlm.runs.directory import RunDirectory
from esnlm.training import config_io
from esnlm.training.config import as_dict, hash_settings

SUFFIXES = (".md", ".csv")
SEEDS_NOTE = (
    "a ± b: mean and standard deviation (n - 1) over runs that differ only in their seed, diverged"
    f" ones included; {LEVEL:.0%}: for one run, over other sentences of the same kind; for several,"
    " over other seeds (Student's t)"
)
DIVERGED = "an NLL is not finite or above 10 ln V, or training.on_nonfinite stopped it"
COLUMNS = [
    *("trainable_params", "total_params", "total_entries", "words", "train_nll", "val_nll"),
    *("val_nll_without_eos", "unigram model", "bigram model", "the grammar's entropy"),
    *("val_bits_per_byte", "val_nats_per_word", "perplexity", "seconds", "tokens_per_second"),
]


@dataclasses.dataclass(frozen=True)
class RunRecord:
    """The identity and the results of a run."""

    run: str  # its name, or its path if another run has the same name
    model: str  # the title of its family
    seed: int
    settings: dict[str, Any]  # the sections of the configuration that determine the result
    settings_sha256: str
    data_sha256: dict[str, str]  # of texts and tokenizer; empty for an imported model
    own_text: bool  # whether each seed has its own text
    parent: str | None  # the run that it continues
    parent_step: int | None
    summary: dict[str, Any]  # summary.json; empty until the run is finished
    minimal_pairs: dict[str, dict] = dataclasses.field(default_factory=dict)  # reports by name


Group = list[RunRecord]


def make_tables(
    runs: Sequence[Path],
    out: Path | None = None,
    seeds: bool = False,
    by: str = "run",
    scoring: str = "paper",
) -> str:
    """Returns Markdown tables of finished runs, from their summaries and minimal-pair reports.

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
    records = with_distinct_names([read_record(Path(run)) for run in runs], runs)
    groups = make_groups(records, seeds)
    report_name = f"blimp-{scoring}"
    if by == "run":
        tables, align = [loss_table(groups), score_table(groups)], "llr"
    else:
        tables, align = [accuracy_table(groups, by, report_name)], "lr"
    parts = ["\n".join(markdown_table(*table, align)) for table in tables if table[1]]
    text = "\n\n".join([*parts, *table_notes(groups, losses=by == "run")]) + "\n"
    if out is not None:
        content = text if out.suffix.lower() == ".md" else _csv(records, by, report_name)
        result = {"runs": [vars(record) for record in records]}
        Report(out.with_suffix(".json"), measured=False).write(result, others={out: content})
    return text


def identify(run: Path, summary: dict[str, Any] | None = None) -> RunRecord:
    """Reads the identity of a run, finished or not. `summary` is its summary if not written yet."""
    directory = RunDirectory(run)
    if not directory.config.exists():
        advice = "no run here: name a folder that train.py made"
        if (directory.path / "table.json").exists():
            advice = "a study: name its runs, or give --html"
        raise InputError(f"{run}: {advice}")
    experiment, data_sha256 = config_io.read_begun(directory.config), {}
    with contextlib.suppress(OSError, ValueError):
        data_sha256 = json.loads(directory.data.read_bytes())
    settings = as_dict(experiment)
    return RunRecord(
        run=directory.path.resolve().name,
        model=experiment.model.title,
        seed=experiment.seed,
        settings={section: settings[section] for section in ("data", "model", "training")},
        settings_sha256=hash_settings(experiment),
        data_sha256=data_sha256,
        own_text=experiment.data.depends_on_seed,
        parent=experiment.parent.run,
        parent_step=experiment.parent.step,
        summary=summary or directory.read_summary() or {},
    )


def read_record(run: Path) -> RunRecord:
    """Reads a finished run with its reports on minimal pairs."""
    record = identify(run)
    if not record.summary:
        raise InputError(
            f"{run}: not finished; finish its training, or draw its losses: esnlm report RUN --plot"
            " FILE.png"
        )
    reports = blimp_report.read_all(RunDirectory(run).evaluation)
    return dataclasses.replace(record, minimal_pairs=reports)


def distinct_runs(runs: Iterable[Path]) -> list[Path]:
    """Returns each run once, however often and by whichever paths it is named."""
    return list({run.resolve(): run for run in runs}.values())


def with_distinct_names(records: Sequence[RunRecord], runs: Sequence[Path]) -> list[RunRecord]:
    """Returns the records with the paths of runs as names if two runs share a name."""
    names = [record.run for record in records]
    return [
        dataclasses.replace(record, run=str(run)) if names.count(record.run) > 1 else record
        for record, run in zip(records, runs, strict=True)
    ]


def make_groups(records: Sequence[RunRecord], by_seed: bool) -> list[Group]:
    """Returns a group for each record or, `by_seed`, for records that differ only in their seed.

    A second run with the same seed forms its own group, since a mean would count the seed twice.
    """
    groups: list[Group] = []
    group_of: dict[str, Group] = {}
    for record in records:
        text = None if record.own_text else record.data_sha256
        key = json.dumps([record.settings_sha256, record.parent_step, text])
        seeds = [other.seed for other in group_of.get(key, [])]
        if by_seed and seeds and record.seed not in seeds:
            group_of[key].append(record)
        else:
            groups.append([record])
            group_of.setdefault(key, groups[-1])
    return groups


def name_group(group: Sequence[RunRecord]) -> str:
    """Returns the name of a run, or "esn (2 seeds)" for esn-seed0 and esn-seed1."""
    first = group[0].run
    without_seed = re.sub(r"[-_.]?seed\d+$", "", first) or first
    return first if len(group) == 1 else f"{without_seed} ({len(group)} seeds)"


def devices_of(records: Sequence[RunRecord]) -> list[str]:
    """Returns the distinct devices of finished runs; a resumed run may have several."""
    devices = [
        device
        for record in records
        for device in [*record.summary.get("earlier_devices", []), record.summary.get("device")]
        if device
    ]
    return list(dict.fromkeys(map(describe_machine, devices)))


def describe_machine(device: Mapping[str, Any]) -> str:
    """Formats the device of a summary, such as "cpu x 1, 2 cores"."""
    return f"{device['kind']} x {device['count']}, {counted(device['cores'], 'core')}"


def loss_figures(summary: dict) -> dict[str, float | None]:
    """Returns the numbers of COLUMNS, None if unknown. Those of a diverged run may be inf or nan.

    Leaves out the train NLL of regressions, which is not a mean over updates but that of a sample
    after the fit.
    """
    known = summary | summary.get("references", {})
    if "regression" in known:
        known["train_nll"] = None
    return {name: None if known.get(name) is None else float(known[name]) for name in COLUMNS}


def report_accuracies(record: RunRecord, by: str, report_name: str) -> dict[str, float | None]:
    """Returns the accuracies in a run's report by phenomenon or paradigm, and "overall"."""
    if report_name not in record.minimal_pairs:
        raise InputError(
            f"{record.run}: no report evaluation/{report_name}.json; make it with esnlm blimp --run"
        )
    result = record.minimal_pairs[report_name]
    entries = result["phenomena" if by == "phenomenon" else "paradigms"]
    accuracies = {name: entry["accuracy"] for name, entry in entries.items()}
    return accuracies | {"overall": result["overall"]["accuracy"]}


def loss_table(groups: Sequence[Group]) -> Table:
    """Returns the table of the runs' properties and losses."""
    rows = []
    for group in groups:
        runs = [loss_figures(record.summary) for record in group]
        cells = [_format_seeds(name, [run[name] for run in runs]) for name in COLUMNS]
        rows.append([name_group(group), group[0].model, *cells])
    return ["run", "model", *titles(COLUMNS)], rows


def score_table(groups: Sequence[Group]) -> Table:
    """Returns the table of scores on minimal pairs: a row per report that all of a group have."""
    rows = []
    for group in groups:
        for name in group[0].minimal_pairs:
            reports = [record.minimal_pairs.get(name) for record in group]
            if None not in reports:
                rows.append([name_group(group), name, *_score_cells(reports)])
    return ["run", "minimal pairs", "step", "accuracy, %", "95 %", "length only", "unigram"], rows


def _score_cells(reports: Sequence[Any]) -> list[str]:
    """Returns the cells of a row of the table of scores, from the reports of a group."""
    values = [report["overall"]["accuracy"] for report in reports]
    interval = reports[0]["overall"]["interval"]
    if len(reports) > 1:
        interval = None if None in values else mean_over_seeds(values)["interval"]
    status = dict.fromkeys(report["status"] for report in reports if report["status"] != "ok")
    steps = dict.fromkeys(f"{report['step']:,}" for report in reports)
    baselines = [
        [blimp_report.baseline_accuracy(report, name) for report in reports]
        for name in ("length", "unigram")
    ]
    return [
        " ".join(steps),
        _format_seeds("blimp", values) or ", ".join(status),
        format_interval(interval or (), FIGURES["blimp"].digits),
        *(_format_seeds("blimp", accuracies) for accuracies in baselines),
    ]


def accuracy_table(groups: Sequence[Group], by: str, report_name: str) -> Table:
    """Returns the table of accuracies: one row per phenomenon or paradigm, one column per group."""
    columns = [[report_accuracies(run, by, report_name) for run in group] for group in groups]
    names = dict.fromkeys(name for column in columns for run in column for name in run)
    del names["overall"]
    rows = [
        [name, *(_format_seeds("accuracy", [run.get(name) for run in runs]) for runs in columns)]
        for name in [*names, "overall"]
    ]
    return [by, *map(name_group, groups)], rows


def _format_seeds(name: str, values: Sequence[float | None]) -> str:
    """Formats the figure of a run, or the mean of a group; empty if one is unknown."""
    return "" if None in values else format_mean(name, mean_over_seeds(values))


def _csv(records: Sequence[RunRecord], by: str, report_name: str) -> str:
    """Returns the runs as a CSV file: one row per run, all digits."""
    rows: list[dict[str, object]] = []
    for record in records:
        values: dict[str, object] = {"run": record.run, "model": record.model, "seed": record.seed}
        if by == "run":
            values |= loss_figures(record.summary)
            for name, result in record.minimal_pairs.items():
                values[name] = result["overall"]["accuracy"]
        else:
            values |= report_accuracies(record, by, report_name)
        rows.append(values)
    header = list(dict.fromkeys(title for row in rows for title in row))
    return csv_table(header, [[row.get(title) for title in header] for row in rows])


def table_notes(groups: Sequence[Group], losses: bool = True) -> list[str]:
    """Returns the notes below a table of runs, whose rows are `groups`."""
    records = [record for group in groups for record in group]
    notes = [SEEDS_NOTE] if len(records) > len(groups) else []
    pairs: dict[str, set[str]] = {}
    stale = []
    for record in records:
        for name, result in record.minimal_pairs.items():
            pairs.setdefault(name, set()).add(result["data"]["sha256"])
            last = record.summary.get("step", result["step"])
            if result["step"] not in (last, 0):  # 0: scored untrained on purpose
                stale.append(
                    f"{record.run}: {name} is from update {result['step']:,}, but the run ended at"
                    f" {last:,}"
                )
    notes += [
        f"{name}: not all runs were scored on the same pairs"
        for name, digests in pairs.items()
        if len(digests) > 1
    ]
    notes += [
        f"{record.run} diverged: {DIVERGED}"
        for record in records
        if record.summary["status"] == "diverged"
    ]
    notes += stale
    return [*notes, *_loss_notes(records)] if losses else notes


def _loss_notes(records: Sequence[RunRecord]) -> Iterator[str]:
    yield from comparability_notes(records)
    if len(devices := devices_of(records)) > 1:
        yield (
            f"times are from different devices ({' and '.join(devices)}) and do not compare the"
            " models"
        )
    for record in records:
        run, summary = record.run, record.summary
        if record.parent:
            yield f"{run} continues {record.parent}: its words are counted since then"
        if summary.get("changes"):
            changes = ", then ".join(summary["changes"])
            yield f"{run}: its settings changed during training: {changes}"
        if "train_nll_of" in summary:
            yield f"{run}: train NLL is the mean over {summary['train_nll_of']}"


def comparability_notes(records: Sequence[RunRecord]) -> Iterator[str]:
    """Yields a note if the losses per token or the validation texts of runs are not comparable.

    Compares bytes per word, the ratio of nats per word to bits per byte, since runs do not record
    the hash of their validation text. Checks runs on stores only.
    """
    yield from tokenizer_notes(record.data_sha256 for record in records)
    bytes_per_word = set()
    for record in records:
        bits, nats = (
            float(record.summary.get(f"val_{name}") or 0)
            for name in ("bits_per_byte", "nats_per_word")
        )
        is_known = 0 < bits < np.inf and 0 < nats < np.inf
        if record.settings["data"]["kind"] == "store" and is_known:
            bytes_per_word.add(round(nats / bits, 6))
    if len(bytes_per_word) > 1:
        yield (
            "not all runs were validated on the same sentences: compare them on one text (esnlm"
            " likelihood --text)"
        )


def tokenizer_notes(data_sha256: Iterable[Mapping[str, str]]) -> Iterator[str]:
    """Yields a note if runs, by the hashes of their data, have different tokenizers."""
    if len({hashes.get("tokenizer") for hashes in data_sha256} - {None}) > 1:
        yield (
            "the runs have different tokenizers: compare their losses by bits per byte or nats per"
            " word only"
        )
