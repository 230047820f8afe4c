"""Identifies runs, and groups runs that differ only in their seed for one row of a table or one
line of a plot."""

import contextlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from esnlm.base.console import counted
from esnlm.base.errors import InputError
from esnlm.runs.directory import RunDirectory
from esnlm.training import config_io
from esnlm.training.config import as_dict, hash_settings


def identify(run: Path, ended: dict[str, Any] | None = None) -> dict:
    """Reads the identity of a run, finished or not. `ended` is its summary if that is not written
    yet.

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
    experiment, data = config_io.read_begun(directory.config), {}
    with contextlib.suppress(OSError, ValueError):
        data = json.loads(directory.data.read_bytes())
    return {
        "run": directory.path.resolve().name,
        "model": experiment.model.title,
        "seed": experiment.seed,
        "settings": {
            section: as_dict(experiment)[section] for section in ("data", "model", "training")
        },
        "settings_sha256": hash_settings(experiment),
        "data_sha256": data,
        "own_text": experiment.data.depends_on_seed,
        "parent": experiment.parent.run,
        "parent_step": experiment.parent.step,
        "summary": ended or directory.read_summary(),
    }


def distinct_runs(runs: Iterable[Path]) -> list[Path]:
    """Returns each run once, however often and by whichever paths it is named."""
    return list({run.resolve(): run for run in runs}.values())


def tell_apart(rows: Sequence[dict], runs: Sequence[Path]) -> None:
    """Replaces the names of runs in rows (from `identify`) by their paths if two runs share a
    name."""
    names = [row["run"] for row in rows]
    for row, name, run in zip(rows, names, runs, strict=True):
        row["run"] = str(run) if names.count(name) > 1 else name


def group_by_seed(rows: Sequence[dict]) -> list[list[dict]]:
    """Groups the rows of runs that differ only in their seed, in the order of their first runs.

    A second run with the same seed forms its own group, since a mean would count the seed twice.
    """
    groups: list[list[dict]] = []
    group_of: dict[str, list[dict]] = {}
    for row in rows:
        text = None if row["own_text"] else row["data_sha256"]
        key = json.dumps([row["settings_sha256"], row["parent_step"], text])
        if key in group_of and row["seed"] not in (other["seed"] for other in group_of[key]):
            group_of[key].append(row)
        else:
            groups.append([row])
            group_of.setdefault(key, groups[-1])
    return groups


def name_group(group: Sequence[dict]) -> str:
    """Returns the name of a run, or of runs of several seeds: "esn (2 seeds)" for esn-seed0 and
    esn-seed1."""
    first = group[0]["run"]
    without_seed = re.sub(r"[-_.]?seed\d+$", "", first) or first
    return first if len(group) == 1 else f"{without_seed} ({len(group)} seeds)"


def devices_of(rows: Sequence[dict]) -> list[str]:
    """Returns the distinct devices that finished runs were trained on; a resumed run may have
    several."""
    found = []
    for row in rows:
        found += [*row["summary"].get("earlier_devices", []), row["summary"].get("device")]
    return list(dict.fromkeys(machine(device) for device in found if device))


def machine(device: Mapping[str, Any]) -> str:
    """Formats the device of a summary, such as "cpu x 1, 2 cores"."""
    return f"{device['kind']} x {device['count']}, {counted(device['cores'], 'core')}"
