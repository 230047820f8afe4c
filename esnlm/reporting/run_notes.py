"""What a reader of a table of runs must know of its figures: lines below it."""

from collections.abc import Iterable, Sequence

import numpy as np

from esnlm.evaluation.statistics import LEVEL
from esnlm.reporting.run_groups import devices_in, name_group

SEEDS_NOTE = "a ± b: the mean over runs that differ in their seed, and their standard deviation (n - 1)"
INTERVAL_NOTE = f"{LEVEL:.0%}: of one run, other sentences of the same kind; of several runs, other seeds (Student's t)"


def notes_on(groups: Sequence[list[dict]], losses: bool = True) -> list[str]:
    """Returns the lines that belong below a table of runs, none where there is nothing to say.

    Args:
        groups: the rows of the table: of each its run, or its runs of several seeds, from `run_table.row`.
        losses: whether the table has losses beside scores on minimal pairs.
    """
    rows = [row for group in groups for row in group]
    of_seeds = any(len(group) > 1 for group in groups)
    lines = [SEEDS_NOTE] if of_seeds else []
    lines += [INTERVAL_NOTE] if of_seeds and losses and any(map(reports_of_all, groups)) else []
    lines += [*_diverged(groups), *_on_different_pairs(rows), *_by_different_conventions(groups)]
    lines += [*_of_other_steps(rows), *_of_other_configurations(rows)]
    if losses:
        lines += [*of_different_tokenizers(rows), *on_different_sentences(rows), *_on_different_devices(rows)]
        lines += [*_continued(rows), *_changed(rows)]
        lines += [*_of_unfinished_epochs(rows), *_of_missing_reports(groups)]
    return lines


def _diverged(groups: Iterable[list[dict]]) -> list[str]:
    """Returns a line for each run that diverged, which says whether a mean over seeds counts it."""
    return [
        f"{row['run']} diverged: {why_diverged(row)}"
        + ("; the mean over seeds counts it all the same" if len(group) > 1 else "")
        for group in groups
        for row in group
        if row["summary"].get("status") == "diverged"
    ]


def why_diverged(row: dict) -> str:
    """Returns why a run's status is "diverged"."""
    if row["settings"]["training"].get("on_nonfinite") == "stop" and row["summary"].get("skipped_updates"):
        return "a loss or a gradient was not finite, and training.on_nonfinite stop ended it there"
    return "a train or validation NLL is not finite or above 10 ln V"


def _on_different_pairs(rows: Iterable[dict]) -> list[str]:
    """Returns a line for each name of reports that are not all of the same pairs."""
    pairs: dict[str, set[str]] = {}
    for run in rows:
        for name, score in run["minimal_pairs"].items():
            pairs.setdefault(name, set()).add(score["data_sha256"])
    return [
        f"{name}: not all runs were scored on the same pairs" for name, digests in pairs.items() if len(digests) > 1
    ]


def _by_different_conventions(groups: Sequence[list[dict]]) -> list[str]:
    """Returns a line for each name of reports that not all runs were scored for by the same convention (`--scoring`)."""
    lines = []
    for name in scored_differently(row for group in groups for row in group):
        without = [name_group(group) for group in groups if name in scored_differently(group)]
        lines.append(
            f"{name}: not all runs were scored by the same convention"
            + (f"; there is no mean of it over {' and over '.join(without)}" if without else "")
        )
    return lines


def scored_differently(rows: Iterable[dict]) -> list[str]:
    """Returns the names of the reports that not all runs were scored for by the same convention."""
    scorings: dict[str, set[str]] = {}
    for run in rows:
        for name, score in run["minimal_pairs"].items():
            scorings.setdefault(name, set()).add(score["scoring"])
    return [name for name, found in scorings.items() if len(found) > 1]


def _of_other_steps(rows: Iterable[dict]) -> list[str]:
    """Returns a line for each report that is not of a run's last update."""
    return [
        f"{row['run']}: {name} is of update {score['step']:,}, and the run ended at {row['summary']['step']:,}"
        for row in rows
        for name, score in row["minimal_pairs"].items()
        if score["step"] != row["summary"].get("step", score["step"])
    ]


def _of_other_configurations(rows: Iterable[dict]) -> list[str]:
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


def _on_different_devices(rows: Iterable[dict]) -> list[str]:
    """Returns a line where runs, or the parts of one, had different devices, so that times compare these and not the models."""
    devices = devices_of(rows)
    if len(devices) < 2:
        return []
    return [f"times are of different devices, {' and '.join(devices)}: minutes and tokens/s do not compare the models"]


def devices_of(rows: Iterable[dict]) -> list[str]:
    """Returns the devices of finished runs, each once: of a run that went from one device to another, both."""
    return list(dict.fromkeys(device for row in rows for device in devices_in(row["summary"])))


def _is_positive(figure: object) -> bool:
    return isinstance(figure, int | float) and 0 < figure < np.inf


def _continued(rows: Iterable[dict]) -> list[str]:
    """Returns a line for each run that goes on from another one: its words are not all that its arrays have seen."""
    return [
        f"{row['run']} goes on from {row['parent']}: its words are those since then" for row in rows if row["parent"]
    ]


def _changed(rows: Iterable[dict]) -> list[str]:
    """Returns a line for each run whose settings were changed under way (--allow-change): the figures of its row are of both."""
    return [
        f"{row['run']}: its settings were changed under way, {', then '.join(changes)}"
        for row in rows
        if (changes := row["summary"].get("changes"))
    ]


def _of_unfinished_epochs(rows: Iterable[dict]) -> list[str]:
    """Returns a line for each run that ended within an epoch: its train NLL is of fewer updates than that of others."""
    return [
        f"{row['run']}: train NLL is the mean over {row['summary']['train_nll_of']}"
        for row in rows
        if "train_nll_of" in row["summary"]
    ]


def _of_missing_reports(groups: Iterable[list[dict]]) -> list[str]:
    """Returns a line for each report that some runs of a group lack, so that the table has no row of it."""
    lines = []
    for group in groups:
        for name in dict.fromkeys(name for row in group for name in row["minimal_pairs"]):
            missing = sum(name not in row["minimal_pairs"] for row in group)
            if missing:
                verb = "has" if missing == 1 else "have"
                lines.append(f"{name}: {missing} of {len(group)} runs of {name_group(group)} {verb} no such report")
    return lines


def reports_of_all(group: list[dict]) -> list[str]:
    """Returns the names of the reports that every run of a group has, by one convention, so that they have a mean."""
    mixed = scored_differently(group)
    names = [name for name in group[0]["minimal_pairs"] if all(name in row["minimal_pairs"] for row in group)]
    return [name for name in names if name not in mixed]
