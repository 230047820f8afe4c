"""Tables of runs: their properties, losses and scores, with notes on how to read them.

A run is a record, from `identify` or `read_record`. Records of runs that differ only in their seed
form a group, which is one row of a table and one line of a plot.
"""

import contextlib
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
from esnlm.reports.figures import FIGURES, spell_interval, spell_mean, titles
from esnlm.reports.report import Report, Table, csv_table, markdown_table
from esnlm.runs.directory import RunDirectory
from esnlm.training import config_io
from esnlm.training.config import as_dict, hash_settings

LEVELS = {name: level for level, name in blimp_report.LEVELS.items()}
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
Group = list[dict]


def report(
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
    records = [read_record(Path(run)) for run in runs]
    disambiguate_names(records, runs)
    groups = make_groups(records, seeds)
    name = f"blimp-{scoring}"
    if by == "run":
        tables, align = [loss_table(groups), score_table(groups)], "llr"
    else:
        tables, align = [accuracy_table(groups, by, name)], "lr"
    parts = ["\n".join(markdown_table(*table, align)) for table in tables if table[1]]
    text = "\n\n".join([*parts, *notes_on(groups, losses=by == "run")]) + "\n"
    if out is not None:
        content = text if out.suffix.lower() == ".md" else _csv(records, by, name)
        Report(out.with_suffix(".json"), measured=False).write(records, others={out: content})
    return text


def identify(run: Path, summary: dict[str, Any] | None = None) -> dict:
    """Reads the identity of a run, finished or not. `summary` is its summary if not written yet.

    Returns:
        {run, model, seed, settings, settings_sha256, data_sha256, own_text, parent, parent_step,
        summary}: `settings` has the sections of the configuration that determine the result,
        `data_sha256` the hashes of texts and tokenizer (empty for an imported model), `own_text` is
        whether each seed has its own text, `parent` is the run that it continues, and `summary` is
        None if the run is not finished.
    """
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
    return {
        "run": directory.path.resolve().name,
        "model": experiment.model.title,
        "seed": experiment.seed,
        "settings": {section: settings[section] for section in ("data", "model", "training")},
        "settings_sha256": hash_settings(experiment),
        "data_sha256": data_sha256,
        "own_text": experiment.data.depends_on_seed,
        "parent": experiment.parent.run,
        "parent_step": experiment.parent.step,
        "summary": summary or directory.read_summary(),
    }


def read_record(run: Path) -> dict:
    """Reads a finished run: the result of `identify`, with its reports by name, `minimal_pairs`."""
    record = identify(run)
    if record["summary"] is None:
        raise InputError(
            f"{run}: not finished; finish its training, or draw its losses: esnlm report RUN --plot"
            " FILE.png"
        )
    return record | {"minimal_pairs": blimp_report.read_all(RunDirectory(run).evaluation)}


def distinct_runs(runs: Iterable[Path]) -> list[Path]:
    """Returns each run once, however often and by whichever paths it is named."""
    return list({run.resolve(): run for run in runs}.values())


def disambiguate_names(records: Sequence[dict], runs: Sequence[Path]) -> None:
    """Replaces the names of runs in records by their paths if two runs share a name."""
    names = [record["run"] for record in records]
    for record, name, run in zip(records, names, runs, strict=True):
        record["run"] = str(run) if names.count(name) > 1 else name


def make_groups(records: Sequence[dict], by_seed: bool) -> list[Group]:
    """Returns a group for each record or, `by_seed`, for records that differ only in their seed.

    A second run with the same seed forms its own group, since a mean would count the seed twice.
    """
    groups: list[Group] = []
    group_of: dict[str, Group] = {}
    for record in records:
        text = None if record["own_text"] else record["data_sha256"]
        key = json.dumps([record["settings_sha256"], record["parent_step"], text])
        seeds = [other["seed"] for other in group_of.get(key, [])]
        if by_seed and seeds and record["seed"] not in seeds:
            group_of[key].append(record)
        else:
            groups.append([record])
            group_of.setdefault(key, groups[-1])
    return groups


def name_group(group: Sequence[dict]) -> str:
    """Returns the name of a run, or "esn (2 seeds)" for esn-seed0 and esn-seed1."""
    first = group[0]["run"]
    without_seed = re.sub(r"[-_.]?seed\d+$", "", first) or first
    return first if len(group) == 1 else f"{without_seed} ({len(group)} seeds)"


def devices_of(records: Sequence[dict]) -> list[str]:
    """Returns the distinct devices of finished runs; a resumed run may have several."""
    devices = [
        device
        for summary in (record["summary"] for record in records)
        for device in [*summary.get("earlier_devices", []), summary.get("device")]
        if device
    ]
    return list(dict.fromkeys(map(describe_machine, devices)))


def describe_machine(device: Mapping[str, Any]) -> str:
    """Formats the device of a summary, such as "cpu x 1, 2 cores"."""
    return f"{device['kind']} x {device['count']}, {counted(device['cores'], 'core')}"


def figures(summary: dict) -> dict[str, float | None]:
    """Returns the numbers of COLUMNS, None if unknown. Those of a diverged run may be inf or nan.

    Leaves out the train NLL of regressions, which is not a mean over updates but that of a sample
    after the fit.
    """
    known = summary | summary.get("references", {})
    if "regression" in known:
        known["train_nll"] = None
    return {name: None if known.get(name) is None else float(known[name]) for name in COLUMNS}


def accuracies(record: dict, by: str, name: str) -> dict[str, float | None]:
    """Returns the accuracies in a run's report by phenomenon or paradigm, and "overall"."""
    if name not in record["minimal_pairs"]:
        raise InputError(
            f"{record['run']}: no report evaluation/{name}.json; make it with esnlm blimp --run"
        )
    result = record["minimal_pairs"][name]
    entries = result[LEVELS[by]] | {"overall": result["overall"]}
    return {entry: values["accuracy"] for entry, values in entries.items()}


def loss_table(groups: Sequence[Group]) -> Table:
    """Returns the table of the runs' properties and losses."""
    rows = []
    for group in groups:
        runs = [figures(record["summary"]) for record in group]
        cells = [_spell_seeds(name, [run[name] for run in runs]) for name in COLUMNS]
        rows.append([name_group(group), group[0]["model"], *cells])
    return ["run", "model", *titles(COLUMNS)], rows


def score_table(groups: Sequence[Group]) -> Table:
    """Returns the table of scores on minimal pairs: a row per report that all of a group have."""
    rows = []
    for group in groups:
        for name in group[0]["minimal_pairs"]:
            reports = [record["minimal_pairs"].get(name) for record in group]
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
        _spell_seeds("blimp", values) or ", ".join(status),
        spell_interval(interval or (), FIGURES["blimp"].digits),
        *(_spell_seeds("blimp", accuracies) for accuracies in baselines),
    ]


def accuracy_table(groups: Sequence[Group], by: str, name: str) -> Table:
    """Returns the table of accuracies: one row per phenomenon or paradigm, one column per group."""
    columns = [[accuracies(record, by, name) for record in group] for group in groups]
    entries = dict.fromkeys(entry for column in columns for run in column for entry in run)
    rows = [
        [entry, *(_spell_seeds("accuracy", [run.get(entry) for run in runs]) for runs in columns)]
        for entry in sorted(entries, key="overall".__eq__)  # overall last
    ]
    return [by, *map(name_group, groups)], rows


def _spell_seeds(name: str, values: Sequence[float | None]) -> str:
    """Writes the figure of a run, or the mean of a group; empty if one is unknown."""
    return "" if None in values else spell_mean(name, mean_over_seeds(values))


def _csv(records: Sequence[dict], by: str, name: str) -> str:
    """Returns the runs as a CSV file: one row per run, all digits."""
    rows: list[dict[str, object]] = []
    for record in records:
        values: dict[str, object] = {key: record[key] for key in ("run", "model", "seed")}
        if by != "run":
            rows.append(values | accuracies(record, by, name))
            continue
        values |= zip(titles(COLUMNS), figures(record["summary"]).values(), strict=True)
        reports = record["minimal_pairs"].items()
        rows.append(values | {name: report["overall"]["accuracy"] for name, report in reports})
    header = list(dict.fromkeys(title for row in rows for title in row))
    return csv_table(header, [[row.get(title) for title in header] for row in rows])


def notes_on(groups: Sequence[Group], losses: bool = True) -> list[str]:
    """Returns the notes below a table of runs, whose rows are `groups`."""
    records = [record for group in groups for record in group]
    scores = [
        (record, name, result)
        for record in records
        for name, result in record["minimal_pairs"].items()
    ]
    pairs: dict[str, set[str]] = {}
    for _, name, result in scores:
        pairs.setdefault(name, set()).add(result["data"]["sha256"])
    notes = [SEEDS_NOTE] if len(records) > len(groups) else []
    notes += [
        f"{name}: not all runs were scored on the same pairs"
        for name, digests in pairs.items()
        if len(digests) > 1
    ]
    notes += [
        f"{record['run']} diverged: {DIVERGED}"
        for record in records
        if record["summary"]["status"] == "diverged"
    ]
    for record, name, result in scores:
        last = record["summary"].get("step", result["step"])
        if result["step"] not in (last, 0):  # 0: scored untrained on purpose
            notes.append(
                f"{record['run']}: {name} is from update {result['step']:,}, but the run ended at"
                f" {last:,}"
            )
    return [*notes, *_notes_on_losses(records)] if losses else notes


def _notes_on_losses(records: Sequence[dict]) -> Iterator[str]:
    yield from on_comparing(records)
    if len(devices := devices_of(records)) > 1:
        yield (
            f"times are from different devices ({' and '.join(devices)}) and do not compare the"
            " models"
        )
    for record in records:
        run, summary = record["run"], record["summary"]
        if record["parent"]:
            yield f"{run} continues {record['parent']}: its words are counted since then"
        if summary.get("changes"):
            changes = ", then ".join(summary["changes"])
            yield f"{run}: its settings changed during training: {changes}"
        if "train_nll_of" in summary:
            yield f"{run}: train NLL is the mean over {summary['train_nll_of']}"


def on_comparing(records: Sequence[dict]) -> Iterator[str]:
    """Yields a note if the losses per token or the validation texts of runs are not comparable.

    Bits per byte and nats per word express the same loss, so their ratio gives the bytes per word,
    which differs between texts. Text generated for each seed is exempt.
    """
    yield from on_tokenizers(record["data_sha256"] for record in records)
    summaries = [
        record["summary"] or {}
        for record in records
        if record["settings"]["data"]["kind"] == "store"
    ]
    figures = [
        [float(summary.get(f"val_{name}") or 0) for name in ("bits_per_byte", "nats_per_word")]
        for summary in summaries
    ]
    lengths = {
        round(nats / bits, 6) for bits, nats in figures if 0 < bits < np.inf and 0 < nats < np.inf
    }
    if len(lengths) > 1:
        yield (
            "not all runs were validated on the same sentences: compare them on one text (esnlm"
            " likelihood --text)"
        )


def on_tokenizers(data_sha256: Iterable[Mapping[str, str]]) -> Iterator[str]:
    """Yields a note if runs, by the hashes of their data, have different tokenizers."""
    if len({hashes.get("tokenizer") for hashes in data_sha256} - {None}) > 1:
        yield (
            "the runs have different tokenizers: compare their losses by bits per byte or nats per"
            " word only"
        )
