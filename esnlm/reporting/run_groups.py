"""What a run is, and which runs differ in nothing but their seed, so that they can be one row or one line."""

import contextlib
import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from esnlm import config_io
from esnlm.config import as_dict, hash_settings
from esnlm.errors import InputError
from esnlm.io.console import counted
from esnlm.io.sealed_folder import file_sha256
from esnlm.runs.directory import RunDirectory


def identify(run: Path) -> dict:
    """Reads what a run is, finished or not.

    Returns:
        {run, model, seed, settings, settings_sha256, config_sha256, tokenizer_sha256, parent, summary}: `settings` has
        the sections of the configuration that decide the result, `tokenizer_sha256` is None if it is not known,
        `parent` is the run that it goes on from, and `summary` is None if the run is not finished.
    """
    directory = RunDirectory(run)
    if not directory.config.exists():
        is_study = (directory.path / "table.json").exists()
        advice = (
            "a study: name its runs, or give --html" if is_study else "no run here: name a folder that train.py made"
        )
        raise InputError(f"{run}: {advice}")
    experiment = config_io.read_begun(directory.config)
    return {
        "run": directory.path.resolve().name,
        "model": experiment.model.title,
        "seed": experiment.seed,
        "settings": {section: as_dict(experiment)[section] for section in ("data", "model", "training")},
        "settings_sha256": hash_settings(experiment),
        "config_sha256": file_sha256(directory.config),
        "tokenizer_sha256": _data(directory).get("tokenizer"),
        "parent": experiment.parent.run,
        "summary": directory.read_summary(),
    }


def tell_apart(rows: Sequence[dict], runs: Sequence[Path]) -> None:
    """Calls the runs of rows (from `identify`) by their paths if two have one name."""
    names = [row["run"] for row in rows]
    for row, name, run in zip(rows, names, runs, strict=True):
        row["run"] = str(run) if names.count(name) > 1 else name


def all_but_seed(run: Path) -> list[Any]:
    """Returns what runs that differ in nothing but their seed have in common: settings, precision, text and parent.

    A parent is known by the same of its own while it is there, else by its path.
    """
    directory = RunDirectory(run)
    experiment = config_io.read_begun(directory.config)
    text, parent = None if experiment.data.depends_on_seed else _data(directory), experiment.parent
    if parent.run is None:
        return [hash_settings(experiment), text]
    own = hash_settings(dataclasses.replace(experiment, parent=dataclasses.replace(parent, run="the parent")))
    summary = RunDirectory(Path(parent.run)).read_summary()
    if summary is None or summary.get("config_sha256") != parent.config_sha256:  # gone, or another run lies there now
        return [own, text, parent.run, parent.step]
    return [own, text, all_but_seed(Path(parent.run)), parent.step != summary.get("step") and parent.step]


def group_by_seed(rows: Sequence[dict], runs: Sequence[Path]) -> list[list[dict]]:
    """Returns the rows of runs in groups that differ in nothing but their seed, in the order of their first runs.

    A run whose seed its group has already is a group of its own, since a mean would count the seed twice.
    """
    groups: list[list[dict]] = []
    group_of: dict[str, list[dict]] = {}
    for row, run in zip(rows, runs, strict=True):
        key = json.dumps(all_but_seed(run))
        if key in group_of and row["seed"] not in (other["seed"] for other in group_of[key]):
            group_of[key].append(row)
        else:
            groups.append([row])
            group_of.setdefault(key, groups[-1])
    return groups


def name_group(group: Sequence[dict]) -> str:
    """Returns the name of a run, or of runs of several seeds: "esn (2 seeds)" for esn-seed0 and esn-seed1.

    If the names do not end in the seed, it is that of the first run: "run10 and 1 more seed".
    """
    names = [row["run"] for row in group]
    without_seed = {re.sub(r"[-_.]?seed\d+$", "", name) for name in names}
    if len(names) == 1:
        return names[0]
    if len(without_seed) == 1 and without_seed != {""}:
        return f"{without_seed.pop()} ({len(names)} seeds)"
    return f"{names[0]} and {counted(len(names) - 1, 'more seed')}"


def devices_of(rows: Sequence[dict]) -> list[str]:
    """Returns the devices that finished runs were trained on, each once; a resumed run may have several."""
    found = [
        each for row in rows for each in (*row["summary"].get("earlier_devices", []), row["summary"].get("device"))
    ]
    return list(dict.fromkeys(machine(device) for device in found if device))


def machine(device: Mapping[str, Any]) -> str:
    """Returns the device of a summary as a text, such as "cpu x 1, 2 cores"."""
    return f"{device['kind']} x {device['count']}, {counted(device['cores'], 'core')}"


def _data(directory: RunDirectory) -> dict[str, Any]:
    """Returns the sha256 of the run's texts and of its tokenizer; an imported model has none."""
    with contextlib.suppress(OSError, ValueError):
        return dict(json.loads(directory.data.read_bytes()))
    return {}
