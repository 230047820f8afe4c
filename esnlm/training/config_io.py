"""Reads a configuration from a YAML file and the command line, and writes it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from esnlm.base.console import warn
from esnlm.base.errors import InputError, warn_caller
from esnlm.base.files import write_file
from esnlm.base.settings import CommandLine, build, read_tree
from esnlm.runs.trackers import find_tracker
from esnlm.training.config import Experiment, as_dict

# Settings of the section `compute` that a run does not inherit from its parent.
OF_DEVICE = ("kernel", "batch_slots", "window_tokens", "mesh")

# Former names of settings and of their values. Files may still have them; a run directory keeps
# those of the version that began it.
FORMER_SETTINGS = {"data.piece": "bptt_length"}
FORMER_VALUES = {
    ("data.kind", "given"): "in_memory",
    ("model.reservoir.topology.kind", "given"): "from_matrix",
    ("compute.kernel", "ell"): "auto",
}
# Sections of a deep readout that moved, with the setting that made each act.
MOVED = {"diagonal": "units", "gru": "units", "attention": "heads"}
MOVED_TO = "experiments.frozen_cells:FrozenCellsConfig"


def read(file: str | Path, overrides: Sequence[str] = ()) -> Experiment:
    """Reads an experiment from a YAML file. `overrides` (`--section.key value`) take precedence.

    Raises:
        InputError: the file is missing, a setting is unknown or has the wrong type or range, or a
            tracker is not installed.
    """
    return _build(_read_tree(file), overrides, str(file))


def read_begun(file: str | Path) -> Experiment:
    """Reads the config.yaml of a run, without requiring its trackers to be installed."""
    tree = _without_moved_cells(_rename(_read_tree(file), "", []))
    return build(Experiment, tree, where=str(file))


def read_of_parent(file: str | Path, overrides: Sequence[str]) -> Experiment:
    """Reads the parent's configuration for a run that continues it, as `read` does.

    Leaves out the parent's directory, its own parent, the settings chosen for its device, and its
    section `data` if the overrides set another `data.kind`.
    """
    tree = _read_tree(file) | {"run": "", "parent": {}}
    tree["compute"] = {
        key: value for key, value in tree.get("compute", {}).items() if key not in OF_DEVICE
    }
    kind = _overrides(overrides).get(("data", "kind"))
    if kind is not None and kind != tree.get("data", {}).get("kind"):
        tree["data"] = {}
    return _build(tree, overrides, str(file))


def from_dict(tree: dict[str, Any]) -> Experiment:
    """Builds an experiment from nested dicts, {"run": "runs/small", ...}. Errors as in `read`."""
    return _build(tree, (), "")


def write(experiment: Experiment, file: Path) -> None:
    """Writes the experiment as a YAML file for `read`."""
    text = dump(experiment)
    write_file(file, text)


def dump(experiment: Experiment) -> str:
    """Returns the experiment as YAML text."""
    return yaml.safe_dump(as_dict(experiment), sort_keys=False)


def _read_tree(file: str | Path) -> dict[str, Any]:
    tree = read_tree(Path(file), "name an existing configuration file")
    if not isinstance(tree, dict):
        raise InputError(f"{file}: not a configuration: it must hold keys such as run, data, model")
    return tree


def _build(tree: dict[str, Any], overrides: Sequence[str], where: str) -> Experiment:
    warnings: list[str] = []
    merged = _rename(tree, "", warnings)
    for path, text in _overrides(overrides).items():
        section = merged
        for key in path[:-1]:
            section = section.setdefault(key, {})
            if not isinstance(section, dict):
                raise InputError(f"command line: --{'.'.join(path)}: {key} is not a section")
        section[path[-1]] = text
    merged = _rename(merged, "", warnings)
    for warning in warnings:
        warn_caller(f"{where}: {warning}" if where else warning, FutureWarning)
    experiment = build(Experiment, _without_moved_cells(merged), where=where)
    for name in experiment.tracking:
        find_tracker(name)
    return experiment


def _rename(value: Any, path: str, warnings: list[str]) -> Any:
    """Returns a tree of settings with current names, and appends a warning for each former one."""
    if not isinstance(value, dict):
        current = FORMER_VALUES.get((path, str(value)), value)
        if current is not value:
            warnings.append(f"{path} {value} is now {current}")
        return current
    tree = {}
    for key, inner in value.items():
        setting = f"{path}.{key}" if path else key
        name = FORMER_SETTINGS.get(setting, key)
        if name != key:
            warnings.append(f"{setting} is now {setting.removesuffix(key)}{name}")
        tree[name] = _rename(inner, setting, warnings)
    return tree


def _without_moved_cells(tree: dict[str, Any]) -> dict[str, Any]:
    """Reads settings from before frozen GRUs, diagonal units and attention left the package.

    Runs have all sections in their config.yaml. Those without units are left out; any others make a
    model of the family in experiments/.
    """
    model = tree.get("model")
    if not isinstance(model, dict) or model.get("family") != "deep_readout":
        return tree
    moved = {name: model[name] for name in MOVED if isinstance(model.get(name), dict)}
    others = {name: section for name, section in model.items() if name not in moved}
    if any(str(section.get(MOVED[name], 0)) != "0" for name, section in moved.items()):
        warn(f"model.{', model.'.join(moved)}: this is model.family {MOVED_TO} now")
        readout = others.get("readout", {})
        tokens = readout.get("recent_tokens", {}) | {"attention": moved.pop("attention", {})}
        others |= {"family": MOVED_TO, "readout": readout | {"recent_tokens": tokens}, **moved}
    return tree | {"model": others}


def _overrides(words: Sequence[str]) -> dict[tuple[str, ...], CommandLine]:
    """Parses `--section.key value` and `--section.key=value` into {("section", "key"): value}."""
    overrides: dict[tuple[str, ...], CommandLine] = {}
    remaining = iter(words)
    for word in remaining:
        flag, equals, value = word.partition("=")
        if not flag.startswith("--"):
            raise InputError(
                f"command line: {word}: no option before it; give settings as --section.key value"
            )
        if not equals:
            try:
                value = next(remaining)
            except StopIteration:
                raise InputError(f"command line: {flag} has no value") from None
        overrides[tuple(flag.removeprefix("--").split("."))] = CommandLine(value)
    return overrides
