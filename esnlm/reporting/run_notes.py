"""What a reader of a table of runs must know of its figures: lines below it."""

from collections.abc import Iterator, Sequence

import numpy as np

from esnlm.evaluation.statistics import LEVEL
from esnlm.reporting.run_groups import devices_of, name_group

SEEDS_NOTE = "a ± b: the mean over runs that differ in their seed, and their standard deviation (n - 1)"
INTERVAL_NOTE = f"{LEVEL:.0%}: of one run, other sentences of the same kind; of several runs, other seeds (Student's t)"


def notes_on(groups: Sequence[list[dict]], losses: bool = True) -> list[str]:
    """Returns the lines that belong below a table of runs.

    Args:
        groups: the rows of the table: of each its run, or its runs of several seeds, from `run_table.row`.
        losses: whether the table has losses beside scores on minimal pairs.
    """
    return [*_on_scores(groups, losses), *(_on_losses(groups) if losses else [])]


def _on_scores(groups: Sequence[list[dict]], losses: bool) -> Iterator[str]:
    rows = [row for group in groups for row in group]
    if any(len(group) > 1 for group in groups):
        yield SEEDS_NOTE
        if losses and any(map(reports_of_all, groups)):
            yield INTERVAL_NOTE
    for group in groups:
        for row in group:
            if row["summary"]["status"] == "diverged":
                counted = "; the mean over seeds counts it all the same" if len(group) > 1 else ""
                yield f"{row['run']} diverged: {why_diverged(row)}{counted}"
    yield from (f"{name}: not all runs were scored on the same pairs" for name in _differing(rows, "data_sha256"))
    for name in scored_differently(rows):
        without = [name_group(group) for group in groups if name in scored_differently(group)]
        no_mean = f"; there is no mean of it over {' and over '.join(without)}" if without else ""
        yield f"{name}: not all runs were scored by the same convention{no_mean}"
    reports = [(row, name, score) for row in rows for name, score in row["minimal_pairs"].items()]
    for row, name, score in reports:
        ended = row["summary"].get("step", score["step"])
        if score["step"] != ended:
            yield f"{row['run']}: {name} is of update {score['step']:,}, and the run ended at {ended:,}"
    for row, name, score in reports:
        if score["config_sha256"] != row["config_sha256"]:
            again = "score this one again with eval_blimp.py --overwrite"
            yield f"{row['run']}: {name} is of a run of another configuration: {again}"


def _on_losses(groups: Sequence[list[dict]]) -> Iterator[str]:
    rows = [row for group in groups for row in group]
    yield from on_comparing(rows)
    devices = devices_of(rows)
    if len(devices) > 1:
        yield f"times are of different devices, {' and '.join(devices)}: minutes and tokens/s do not compare the models"
    for row in rows:
        if row["parent"]:
            yield f"{row['run']} goes on from {row['parent']}: its words are those since then"
    for row in rows:
        if changes := row["summary"].get("changes"):
            yield f"{row['run']}: its settings were changed under way, {', then '.join(changes)}"
    for row in rows:
        if "train_nll_of" in row["summary"]:
            yield f"{row['run']}: train NLL is the mean over {row['summary']['train_nll_of']}"
    for group in groups:
        for name in dict.fromkeys(name for row in group for name in row["minimal_pairs"]):
            if missing := sum(name not in row["minimal_pairs"] for row in group):
                verb = "has" if missing == 1 else "have"
                yield f"{name}: {missing} of {len(group)} runs of {name_group(group)} {verb} no such report"


def on_comparing(rows: Sequence[dict]) -> Iterator[str]:
    """Yields lines if losses per token, or validation texts, of runs (from `identify`) cannot be compared.

    Bits per byte and nats per word are of one loss, so their ratio tells the bytes of a word, which differ if the
    sentences do. Text that is made up for each seed is left out.
    """
    if len({row["tokenizer_sha256"] for row in rows} - {None}) > 1:
        yield "the runs are of different tokenizers: only bits per byte and nats per word compare their losses"
    lengths: dict[str, float] = {}
    for row in rows:
        figures = [(row["summary"] or {}).get(name) or 0 for name in ("val_bits_per_byte", "val_nats_per_word")]
        if row["settings"]["data"]["kind"] == "store" and all(0 < float(each) < np.inf for each in figures):
            lengths[row["run"]] = round(figures[1] / (figures[0] * np.log(2)), 6)
    if len(set(lengths.values())) > 1:
        first, last = min(lengths, key=lengths.__getitem__), max(lengths, key=lengths.__getitem__)
        yield (
            f"not all runs were validated on the same sentences: their words have {lengths[first]:.4f} bytes in {first} and"
            f" {lengths[last]:.4f} in {last}. Compare them on one text (esnlm likelihood --text)"
        )


def why_diverged(row: dict) -> str:
    """Returns why a run's status is "diverged"."""
    if row["settings"]["training"].get("on_nonfinite") == "stop" and row["summary"].get("skipped_updates"):
        return "a loss or a gradient was not finite, and training.on_nonfinite stop ended it there"
    return "a train or validation NLL is not finite or above 10 ln V"


def scored_differently(rows: Sequence[dict]) -> list[str]:
    """Returns the names of the reports that not all runs were scored for by the same convention."""
    return _differing(rows, "scoring")


def reports_of_all(group: Sequence[dict]) -> list[str]:
    """Returns the names of the reports that every run of a group has, by one convention, so that they have a mean."""
    mixed = scored_differently(group)
    names = [name for name in group[0]["minimal_pairs"] if all(name in row["minimal_pairs"] for row in group)]
    return [name for name in names if name not in mixed]


def _differing(rows: Sequence[dict], key: str) -> list[str]:
    """Returns the names of the reports in which runs differ in `key`."""
    found: dict[str, set[str]] = {}
    for row in rows:
        for name, score in row["minimal_pairs"].items():
            found.setdefault(name, set()).add(score[key])
    return [name for name, values in found.items() if len(values) > 1]
