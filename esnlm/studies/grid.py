"""The study file of kind `grid`: which runs it asks for, all of them checked before the first is trained."""

import dataclasses
import itertools
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from esnlm import config_io
from esnlm.config import Experiment
from esnlm.errors import InputError, require
from esnlm.training.summary import hash_config

KEYS = ("kind", "note", "base", "runs", "seeds", "out", "blimp", "reference", "columns")
BLOCK = ("base", "cases", "grid")
UNFIT = r"[^\w.+-]+"  # for the name of a folder

# What is told of a run, its title and its digits; from summary.json but for blimp, the overall accuracy on minimal pairs.
MEASURES = {
    "trainable_params": ("trained", 0),
    "total_params": ("all parameters", 0),
    "train_nll": ("train NLL", 3),
    "val_nll": ("val NLL", 3),
    "val_bits_per_byte": ("bits/byte", 3),
    "perplexity": ("perplexity", 2),
    "blimp": ("minimal pairs, %", 1),
    "seconds": ("seconds", 0),
    "tokens_per_second": ("tokens/s", 0),
}


class Cell(NamedTuple):
    """A row of the table: runs that differ in their seed."""

    name: str
    base: Path  # configuration file
    case: str  # "" where its block has none
    values: dict[str, Any]  # of its block's grid, by dotted key
    settings: dict[str, Any]  # all that is set beside the base, by dotted key


class Run(NamedTuple):
    cell: str
    seed: int
    experiment: Experiment

    @property
    def directory(self) -> Path:
        return Path(self.experiment.run)


@dataclass(frozen=True)
class Grid:
    """A study file that was read. Of its configurations nothing is known yet; see `runs_of`."""

    file: Path
    cells: tuple[Cell, ...]
    seeds: tuple[int, ...]
    out: Path
    blimp: Path | None
    note: str
    source: str  # of the published values
    published: dict[str, dict[str, tuple[float, float | None]]]  # cell -> measure -> mean, standard error
    columns: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.file.stem


def parse(tree: dict, file: Path) -> Grid:
    """The grid of a study file's tree.

    Raises:
        InputError: a key is unknown, or what it holds is not what it must be.
    """
    _known(file, "", tree, KEYS)
    require("runs" in tree, f"{file}: runs is missing: give grid, cases or both")
    blocks = tree["runs"] if isinstance(tree["runs"], list) else [tree["runs"]]
    cells = [cell for block in blocks for cell in _cells(file, block, tree.get("base"))]
    require(bool(cells), f"{file}: runs is empty: give grid, cases or both")
    names = [cell.name for cell in cells]
    for name in names:
        require(
            names.count(name) == 1, f"{file}: two cells have the name {name}: name the cases of one of them otherwise"
        )
    seeds = tree.get("seeds", [0])
    right = isinstance(seeds, list) and bool(seeds) and all(type(seed) is int and seed >= 0 for seed in seeds)
    require(
        right and len(set(seeds)) == len(seeds),
        f"{file}: seeds is {seeds!r}: it must be a list of different integers from 0 up",
    )
    for key in ("out", "blimp", "note"):
        require(isinstance(tree.get(key), str | None), f"{file}: {key} is {tree.get(key)!r}: it must be a text")
    columns = tree.get("columns") or list(MEASURES)
    known = isinstance(columns, list) and all(column in MEASURES for column in columns)
    require(known, f"{file}: columns is {columns!r}: list some of {', '.join(MEASURES)}")
    source, published = _reference(file, tree.get("reference") or {})
    out, blimp = Path(tree.get("out") or Path("studies") / file.stem), tree.get("blimp")
    note = (tree.get("note") or "").strip()
    return Grid(
        file, tuple(cells), tuple(seeds), out, Path(blimp) if blimp else None, note, source, published, tuple(columns)
    )


def runs_of(grid: Grid, overrides: Sequence[str] = ()) -> list[Run]:
    """Every run, cell by cell, its configuration parsed and checked.

    Args:
        overrides: `--section.key value` of the command line, for all runs.

    Raises:
        InputError: a configuration cannot be used, or two cells come to the same one.
    """
    swept = {"run", "seed"}.union(*(cell.settings for cell in grid.cells))
    for argument in overrides:
        key = argument.partition("=")[0].removeprefix("--")
        require(
            not argument.startswith("--") or key not in swept,
            f"command line: --{key} is for {grid.file} to set: change it there",
        )
    for base in dict.fromkeys(cell.base for cell in grid.cells):
        config_io.read(base)  # first by itself, so that each mistake is named where it stands
    runs, cell_of = [], {}
    for cell in grid.cells:
        experiment = _experiment(grid.file, cell, overrides)
        twin = cell_of.setdefault(hash_config(experiment), cell.name)
        require(twin == cell.name, f"{grid.file}: {twin} and {cell.name} are the same configuration: leave one out")
        for seed in grid.seeds:
            run = str(grid.out / "runs" / f"{cell.name}-seed{seed}")
            runs.append(Run(cell.name, seed, dataclasses.replace(experiment, run=run, seed=seed)))
    return runs


def short(keys: Sequence[str]) -> dict[str, str]:
    """Dotted keys by their last part, where that tells them apart."""
    last = [key.rpartition(".")[2] for key in keys]
    return {key: name if last.count(name) == 1 else key for key, name in zip(keys, last, strict=True)}


def _cells(file: Path, block, base) -> list[Cell]:
    require(
        isinstance(block, dict), f"{file}: runs is {block!r}: it must hold grid, cases or both, or list such blocks"
    )
    _known(file, "runs.", block, BLOCK)
    base = block.get("base", base)
    require(
        isinstance(base, str) and base,
        f"{file}: base is {base!r}: name a configuration file, from the study file's folder",
    )
    for key in ("cases", "grid"):
        right = isinstance(block.get(key, {}), dict) and (key not in block or bool(block[key]))
        require(right, f"{file}: runs.{key} is {block.get(key)!r}: it must be a section that is not empty")
    cases, axes = block.get("cases", {"": {}}), block.get("grid", {})
    for case, settings in cases.items():
        right = isinstance(case, str) and (case == "" or re.fullmatch(r"[\w+][\w.+^-]*", case))
        require(
            right and isinstance(settings, dict),
            f"{file}: runs.cases.{case}: a case is a name (letters, digits, _ . + ^ -) and its settings",
        )
        both = [key for key in settings if key in axes]
        require(
            not both,
            f"{file}: {both and both[0]} stands in runs.grid and in runs.cases.{case}: leave it in one of them",
        )
    for key, values in axes.items():
        require(isinstance(key, str), f"{file}: runs.grid.{key}: name a setting, as section.key")
        require(
            isinstance(values, list) and values,
            f"{file}: runs.grid.{key} is {values!r}: it must be a list that is not empty",
        )
    names, cells = short(list(axes)), []
    for (case, settings), values in itertools.product(cases.items(), itertools.product(*axes.values())):
        point = dict(zip(axes, values, strict=True))
        parts = [f"{names[key]}={re.sub(UNFIT, '_', _text(value))}" for key, value in point.items()]
        name = ",".join([case] * bool(case) + parts) or "base"
        for key in ("run", "seed"):
            require(key not in settings | point, f"{file}: {name}: {key} is for seeds and out to give: leave it out")
        cells.append(Cell(name, file.parent / base, case, point, settings | point))
    return cells


def _experiment(file: Path, cell: Cell, overrides: Sequence[str]) -> Experiment:
    settings = [f"--{key}={_text(value)}" for key, value in cell.settings.items()]
    try:
        experiment = config_io.read(cell.base, settings)
    except InputError as error:
        raise InputError(f"{file}: {cell.name}: {str(error).removeprefix('command line: ')}") from None
    return config_io.read(cell.base, [*settings, *overrides]) if overrides else experiment


def _reference(file: Path, tree) -> tuple[str, dict]:
    right = (
        isinstance(tree, dict) and isinstance(tree.get("source", ""), str) and isinstance(tree.get("cells", {}), dict)
    )
    require(right, f"{file}: reference must hold source, a text, and cells, by name")
    _known(file, "reference.", tree, ("source", "cells"))
    published = {}
    for name, values in tree.get("cells", {}).items():
        require(
            isinstance(values, dict), f"{file}: reference.cells.{name} is {values!r}: it must hold values by measure"
        )
        _known(file, f"reference.cells.{name}.", values, MEASURES)
        published[name] = {}
        for measure, value in values.items():
            numbers = value if isinstance(value, list) else [value]
            right = 1 <= len(numbers) <= 2 and all(
                isinstance(number, int | float) and math.isfinite(number) for number in numbers
            )
            require(
                right,
                f"{file}: reference.cells.{name}.{measure} is {value!r}: give a number, or [mean, standard error]",
            )
            published[name][measure] = float(numbers[0]), float(numbers[1]) if len(numbers) == 2 else None
    return tree.get("source", ""), published


def _text(value) -> str:
    """A value as the command line has it."""
    return value if isinstance(value, str) else json.dumps(value)


def _known(file: Path, section: str, tree: dict, known: Sequence[str]) -> None:
    for key in tree:
        require(key in known, f"{file}: unknown key {section}{key}: choose from {', '.join(known)}")
