"""A study of kind `grid`: each case at each point of a grid, for each seed."""

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from esnlm.base.errors import InputError
from esnlm.studies.pool import Run
from esnlm.studies.study_file import (
    Axis,
    GridFile,
    Seeds,
    check_free,
    find_base,
    read_experiment,
    read_list,
    short_names,
    spell,
)


class Cell(NamedTuple):
    """A row of the table: runs that differ only in their seed."""

    name: str
    base: Path
    case: str  # "" if the block has no cases
    values: dict[str, Any]  # its point in the grid, by dotted key
    settings: dict[str, Any]  # case and point together


def take_lists(grid: GridFile, overrides: Sequence[str]) -> list[str]:
    """Replaces seeds and axes by lists such as `--seed=[0, 1]`. Returns the other overrides."""
    others = []
    for word in overrides:
        key, _, text = word.removeprefix("--").partition("=")
        axes = [block.grid for block in grid.runs if key in block.grid]
        if not text.startswith("[") or not (axes or key == "seed"):
            others.append(word)
            continue
        values = yaml.safe_load(text)
        if key == "seed":
            grid.seeds = read_list(Seeds, key, values)
        for axis in axes:
            axis[key] = read_list(Axis, key, values)
    return others


def make_cells(grid: GridFile, file: Path) -> list[Cell]:
    """Returns the rows of a grid, in file order.

    Raises InputError if two have the same name, or a base is missing.
    """
    cells: dict[str, Cell] = {}
    for block in grid.runs:
        base, names = find_base(file, block.base or grid.base), short_names(list(block.grid))
        points = list(itertools.product(*block.grid.values()))
        for (case, settings), values in itertools.product(block.cases.items(), points):
            point = dict(zip(block.grid, values, strict=True))
            parts = [case] if case else []
            parts += [f"{names[key]}={spell(value)}" for key, value in point.items()]
            # also a folder's name
            name = ",".join(re.sub(r"[^\w.=+^-]+", "_", part) for part in parts) or "base"
            if taken := {"run", "seed"} & {*settings, *point} or {*settings} & {*point}:
                raise InputError(
                    f"{file}: {name}: {min(taken)} is set by seeds and out, or by the block's grid"
                )
            if name in cells:
                raise InputError(f"{file}: two cells have the name {name}: give one its own case")
            cells[name] = Cell(name, base, case, point, settings | point)
    return list(cells.values())


def make_runs(grid: GridFile, file: Path, out: Path, overrides: Sequence[str] = ()) -> list[Run]:
    """Returns all runs, cell by cell. Raises InputError if a configuration or override is wrong."""
    runs, cells = [], make_cells(grid, file)
    check_free(file, overrides, {"run", "seed"}.union(*(cell.settings for cell in cells)))
    for cell in cells:
        settings = [f"--{key}={spell(value)}" for key, value in cell.settings.items()]
        settings += overrides
        for seed in grid.seeds:
            place = [f"--run={out / 'runs' / f'{cell.name}-seed{seed}'}", f"--seed={seed}"]
            experiment = read_experiment(file, cell.name, cell.base, [*settings, *place])
            runs.append(Run(cell.name, experiment, cell.base, settings))
    return runs
