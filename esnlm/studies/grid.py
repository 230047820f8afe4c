"""A study of kind `grid`: each case at each point of a grid, for each seed."""

import contextlib
import dataclasses
import itertools
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import yaml
from pydantic import AfterValidator, BeforeValidator, Field, FiniteFloat

from esnlm.errors import InputError
from esnlm.studies.measures import MEASURES, Run
from esnlm.studies.study_file import (
    Section,
    StudyFile,
    find_base,
    one_line,
    read_experiment,
    require_free,
    short_names,
)


def _known(name: str) -> str:
    if name not in MEASURES:
        raise ValueError(f"choose from {', '.join(MEASURES)}")
    return name


Measure = Annotated[str, AfterValidator(_known)]
Published = FiniteFloat | tuple[FiniteFloat, FiniteFloat]  # mean, or mean and standard error


class Block(Section):
    """Runs from one configuration: each case at each point of the grid."""

    base: str | None = None
    cases: Annotated[dict[str, dict[str, Any]], Field(min_length=1)] = {"": {}}
    grid: dict[str, Annotated[list[Any], Field(min_length=1)]] = {}


class Reference(Section):
    """Published values, by the name of a cell."""

    source: str = ""
    cells: dict[str, dict[Measure, Published]] = {}


class GridFile(StudyFile):
    """A study file of kind `grid`."""

    runs: Annotated[list[Block], BeforeValidator(lambda runs: runs if isinstance(runs, list) else [runs])]
    seeds: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)] = [0]
    reference: Reference = Reference()
    columns: list[Measure] = list(MEASURES)

    @property
    def published(self) -> dict[str, dict[str, tuple[float, float | None]]]:
        """Mean and standard error, by cell and measure."""
        return {
            cell: {name: value if isinstance(value, tuple) else (value, None) for name, value in its.items()}
            for cell, its in self.reference.cells.items()
        }


class Cell(NamedTuple):
    """A row of the table: runs that differ in their seed only."""

    name: str
    base: Path
    case: str  # "" if its block has no cases
    values: dict[str, Any]  # its point in the grid, by dotted key
    settings: dict[str, Any]  # case and point together


def take_lists(grid: GridFile, file: Path, overrides: Sequence[str]) -> list[str]:
    """Puts lists of the command line in place of the study's seeds and axes, and returns the other overrides.

    Example:
        `--seed=[0, 1]` and `--model.reservoir.state_size=[256, 512]` make the same table at another scale.
    """
    others = []
    for word in overrides:
        key, _, text = word.removeprefix("--").partition("=")
        axes = [block.grid for block in grid.runs if key in block.grid]
        values: list[Any] = []
        with contextlib.suppress(yaml.YAMLError):
            values = yaml.safe_load(text) if text.startswith("[") else []
        if values and key == "seed":
            with one_line(file):
                grid.seeds = values
        elif values and axes:
            for axis in axes:
                axis[key] = [_spelled_as(axis[key], value) for value in values]
        else:
            others.append(word)
    return others


def _spelled_as(known: list[Any], value: Any) -> Any:
    """Returns a number as the study spells it, 1.0 or 1: published values and claims find cells by their names."""
    if type(value) not in (int, float):
        return value
    has_point = any(isinstance(each, float) for each in known)
    return next((each for each in known if each == value), float(value) if has_point else value)


def make_cells(grid: GridFile, file: Path) -> list[Cell]:
    """Returns the rows of a grid, in the order of the file.

    Raises:
        InputError: a base is missing, two cells have one name, or a block sets what is not its to set.
    """
    cells: dict[str, Cell] = {}
    for block in grid.runs:
        base, names = find_base(file, block.base or grid.base), short_names(list(block.grid))
        for (case, settings), values in itertools.product(block.cases.items(), itertools.product(*block.grid.values())):
            point = dict(zip(block.grid, values, strict=True))
            parts = [f"{names[key]}={_fit(spell(value))}" for key, value in point.items()]
            name = ",".join([*([_fit(case)] if case else []), *parts]) or "base"
            if taken := {"run", "seed"} & {*settings, *point} or {*settings} & {*point}:
                raise InputError(f"{file}: {name}: {min(taken)} is for seeds and out, or for the block's grid, to set")
            if name in cells:
                raise InputError(f"{file}: two cells have the name {name}: give one of them a case of its own")
            cells[name] = Cell(name, base, case, point, settings | point)
    return list(cells.values())


def make_runs(grid: GridFile, file: Path, out: Path, overrides: Sequence[str] = ()) -> list[Run]:
    """Returns every run, cell by cell, with its configuration read and checked.

    Args:
        out: folder of the study.
        overrides: `--key=value` for all runs.

    Raises:
        InputError: a configuration cannot be used, or an override sets what the study sweeps.
    """
    runs, cells = [], make_cells(grid, file)
    require_free(file, overrides, {"run", "seed"}.union(*(cell.settings for cell in cells)))
    for cell in cells:
        settings = [f"--{key}={spell(value)}" for key, value in cell.settings.items()]
        experiment = read_experiment(file, cell.name, cell.base, settings, overrides)
        for seed in grid.seeds:
            own = dataclasses.replace(experiment, run=str(out / "runs" / f"{cell.name}-seed{seed}"), seed=seed)
            runs.append(Run(cell.name, seed, own, cell.base, [*settings, *overrides]))
    return runs


def _fit(text: str) -> str:
    """Returns a text that can stand in the name of a folder."""
    return re.sub(r"[^\w.+^-]+", "_", text)


def spell(value: Any) -> str:
    """Returns a value as the command line has it."""
    return value if isinstance(value, str) else json.dumps(value)
