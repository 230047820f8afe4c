"""What a run is, and which runs differ in nothing but their seed.

Such runs can be one row of a table, or one line of a picture: the mean over seeds and the spread between them.
"""

import contextlib
import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from esnlm import config_io
from esnlm.config import as_dict
from esnlm.errors import InputError, require
from esnlm.io.console import counted
from esnlm.io.json_file import parse_json, read_small
from esnlm.io.sealed_folder import file_sha256
from esnlm.runs.directory import RunDirectory
from esnlm.training.settings import hash_settings


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
        "run": directory.path.resolve().name,
        "model": experiment.model.title,
        "seed": experiment.seed,
        "settings": {section: as_dict(experiment)[section] for section in ("data", "model", "training")},
        "settings_sha256": hash_settings(experiment),
        "config_sha256": file_sha256(directory.config),
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


def devices_in(summary: Mapping[str, Any]) -> list[str]:
    """Returns the devices that a run was trained on, in their order: more than one where it was resumed on another one."""
    devices = [*summary.get("earlier_devices", []), summary.get("device")]
    return [machine(device) for device in devices if isinstance(device, dict)]


def machine(device: Mapping[str, Any]) -> str:
    """Returns the device of a summary as a text.

    Example:
        >>> machine({"platform": "cpu", "kind": "cpu", "count": 1, "cores": 2})
        'cpu x 1, 2 cores'
    """
    return f"{device['kind']} x {device['count']}, {counted(device['cores'], 'core')}"
