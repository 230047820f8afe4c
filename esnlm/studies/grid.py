"""Reads a study file of kind `grid`: which runs it asks for, all of them checked before the first is trained."""

import dataclasses
import datetime
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from esnlm import config_io
from esnlm.config import Experiment
from esnlm.errors import InputError, require
from esnlm.io.remote import is_url
from esnlm.rng import LARGEST_SEED
from esnlm.training.summary import hash_config

KEYS = ("kind", "note", "base", "runs", "seeds", "out", "blimp", "reference", "columns")
BLOCK_KEYS = ("base", "cases", "grid")
LONGEST_NAME = 255  # bytes that a file system takes
MOST_RUNS = 1000  # of a study: the check of a configuration takes some hundredths of a second
UNFIT_FOR_FOLDERS = r"[^\w.+-]+"  # what the name of a folder should not hold

# What a table tells of a run: its title and its digits. All of it is in summary.json but blimp, which is the overall
# accuracy on minimal pairs.
MEASURES = {
    "trainable_params": ("trained", 0),
    "total_params": ("all parameters", 0),
    "total_entries": ("all entries", 0),  # zeros of sparse matrices too
    "train_nll": ("train NLL", 3),
    "val_nll": ("val NLL", 3),
    "val_nll_without_eos": ("val NLL without EOS", 3),  # which of the two a paper gives is seldom said
    "val_bits_per_byte": ("bits/byte", 3),
    "perplexity": ("perplexity", 2),
    "blimp": ("minimal pairs, %", 1),
    "seconds": ("seconds", 0),
    "tokens_per_second": ("tokens/s", 0),
}


class Cell(NamedTuple):
    """A row of the table: runs that differ in their seed only."""

    name: str
    base: Path  # configuration file
    case: str  # "" where its block has no cases
    values: dict[str, Any]  # its point in the block's grid, by dotted key
    settings: dict[str, Any]  # everything that is set beside the base, by dotted key


class GridRun(NamedTuple):
    """One training run of a grid."""

    cell: str
    seed: int
    experiment: Experiment

    @property
    def directory(self) -> Path:
        return Path(self.experiment.run)


@dataclass(frozen=True)
class Grid:
    """The content of a study file. Its configurations are not read yet: `make_runs` does that."""

    file: Path
    cells: tuple[Cell, ...]
    seeds: tuple[int, ...]
    out: Path
    blimp: Path | None
    note: str
    source: str  # where the published values stand
    published: dict[str, dict[str, tuple[float, float | None]]]  # cell -> measure -> mean, standard error
    columns: tuple[str, ...]
    # What the command line has changed in the model and the training, by dotted key: published values are not of these settings.
    changed: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.file.stem

    @property
    def title(self) -> str:
        """The name of the study, and that of its folder where --out gave it another one, as for the same study on other text."""
        return title(self.name, self.out)


def parse_grid(tree: dict[str, Any], file: Path) -> Grid:
    """Returns the grid of a study file's tree.

    Raises:
        InputError: a key is unknown, or what it holds is not what it must be.
    """
    require_known(file, "", tree, KEYS)
    require("runs" in tree, f"{file}: runs is missing: give grid, cases or both")
    blocks = tree["runs"] if isinstance(tree["runs"], list) else [tree["runs"]]
    cells = [cell for block in blocks for cell in _parse_block(file, block, tree.get("base"))]
    require(bool(cells), f"{file}: runs is empty: give grid, cases or both")
    for name, count in Counter(cell.name for cell in cells).items():
        message = f"two cells have the name {name}: name the cases of one of them otherwise"
        require(count == 1, f"{file}: {message}")
    _require_one_base_a_line(file, cells)
    seeds = tree.get("seeds", [0])
    right = (
        isinstance(seeds, list)
        and bool(seeds)
        and all(type(seed) is int and 0 <= seed <= LARGEST_SEED for seed in seeds)
    )
    message = f"seeds is {seeds!r}: it must be a list of different integers from 0 to {LARGEST_SEED}"
    require(right and len(set(seeds)) == len(seeds), f"{file}: {message}")
    _require_few_runs(file, len(cells) * len(seeds))
    for cell in cells:
        longest = f"{cell.name}-seed{max(seeds)}.log"
        message = f"{cell.name}: the name of a cell is that of its runs' folders, and too long for one: give its case a short name"
        require(len(longest.encode()) <= LONGEST_NAME, f"{file}: {message}")
    for key in ("out", "blimp", "note"):
        require(isinstance(tree.get(key), str | None), f"{file}: {key} is {tree.get(key)!r}: it must be a text")
    columns = tree.get("columns") or list(MEASURES)
    known = isinstance(columns, list) and all(isinstance(column, str) and column in MEASURES for column in columns)
    require(known, f"{file}: columns is {columns!r}: list some of {', '.join(MEASURES)}")
    source, published = _parse_reference(file, tree.get("reference") or {})
    blimp = tree.get("blimp")
    return Grid(
        file=file,
        cells=tuple(cells),
        seeds=tuple(seeds),
        out=find_out(file, tree),
        blimp=Path(blimp) if blimp else None,
        note=(tree.get("note") or "").strip(),
        source=source,
        published=published,
        columns=tuple(columns),
    )


def make_runs(grid: Grid, overrides: Sequence[str] = ()) -> list[GridRun]:
    """Returns every run, cell by cell, with its configuration read and checked.

    Args:
        grid: from `parse_grid`.
        overrides: `--section.key value` of the command line, for all runs.

    Raises:
        InputError: a configuration cannot be used, or two cells come to the same one.
    """
    set_by_file = {"run", "seed"}.union(*(cell.settings for cell in grid.cells))
    lists = {"seed"}.union(*(cell.values for cell in grid.cells))  # what a list on the command line may replace
    for argument in overrides:
        key = argument.partition("=")[0].removeprefix("--")
        is_ours = argument.startswith("--") and any(overlap(key, each) for each in set_by_file)
        advice = f", or give a list, as --{key} '[{argument.partition('=')[2] or '...'}]'" if key in lists else ""
        require(not is_ours, f"command line: --{key} is for {grid.file} to set: change it there{advice}")
    for base in dict.fromkeys(cell.base for cell in grid.cells):
        config_io.read(base)  # read alone first, so that an error names the file in which the mistake stands
    runs: list[GridRun] = []
    cell_of_hash: dict[str, str] = {}
    for cell in grid.cells:
        experiment = _read_experiment(grid.file, cell, overrides)
        twin = cell_of_hash.setdefault(hash_config(experiment), cell.name)
        require(twin == cell.name, f"{grid.file}: {twin} and {cell.name} are the same configuration: leave one out")
        for seed in grid.seeds:
            run = str(grid.out / "runs" / f"{cell.name}-seed{seed}")
            runs.append(GridRun(cell.name, seed, dataclasses.replace(experiment, run=run, seed=seed)))
    return runs


def title(study: str, out: Path) -> str:
    """Returns the name of a study, and that of its folder where this is another one."""
    folder = out.resolve().name
    return study if folder == study else f"{study} ({folder})"


def find_out(file: Path, tree: dict[str, Any]) -> Path:
    """Returns the folder of a study. Raises InputError where the file names a URL."""
    out = tree.get("out") or Path("studies") / file.stem
    require(not is_url(str(out)), f"{file}: out is {out}: a study is written to this machine only; name a local folder")
    return Path(out)


def find_base(file: Path, base: Any) -> Path:
    """Returns the configuration file that a study file names as a base. Raises InputError where there is none."""
    advice = "name a configuration file, from the study file's folder"
    require(isinstance(base, str) and bool(base), f"{file}: base is {base!r}: {advice}")
    path = file.parent / base
    require(path.is_file(), f"{file}: base is {base}: there is no file {path}; {advice}")
    return path


def overlap(key: str, other: str) -> bool:
    """Returns whether two dotted keys name one setting, or one of them a section that holds the other.

    Example:
        >>> overlap("model.readout", "model.readout.rank"), overlap("model.readout", "model.reservoir")
        (True, False)
    """
    return f"{key}.".startswith(f"{other}.") or f"{other}.".startswith(f"{key}.")


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """Returns for each dotted key its last part, or the whole key where two have the same last part."""
    last = [key.rpartition(".")[2] for key in keys]
    return {key: name if last.count(name) == 1 else key for key, name in zip(keys, last, strict=True)}


def _parse_block(file: Path, block: Any, base: Any) -> list[Cell]:
    """Returns the cells of a block: each of its cases at each point of its grid."""
    message = f"runs is {block!r}: it must hold grid, cases or both, or list such blocks"
    require(isinstance(block, dict), f"{file}: {message}")
    require_known(file, "runs.", block, BLOCK_KEYS)
    base = find_base(file, block.get("base", base))
    for key in ("cases", "grid"):
        right = isinstance(block.get(key, {}), dict) and (key not in block or bool(block[key]))
        require(right, f"{file}: runs.{key} is {block.get(key)!r}: it must be a section that is not empty")
    cases, axes = block.get("cases", {"": {}}), block.get("grid", {})
    for case, settings in cases.items():
        right = isinstance(case, str) and (case == "" or bool(re.fullmatch(r"[\w+][\w.+^-]*", case)))
        message = "a case is a name (letters, digits, _ . + ^ -) and its settings"
        require(right and isinstance(settings, dict), f"{file}: runs.cases.{case}: {message}")
        for key in settings:
            message = f"{key} stands in runs.grid and in runs.cases.{case}: leave it in one of them"
            require(key not in axes, f"{file}: {message}")
    for key, values in axes.items():
        require(isinstance(key, str), f"{file}: runs.grid.{key}: name a setting, as section.key")
        right = isinstance(values, list) and bool(values)
        require(right, f"{file}: runs.grid.{key} is {values!r}: it must be a list that is not empty")
    _require_few_runs(file, len(cases) * math.prod(map(len, axes.values())))
    given = [(f"cases.{case}.{key}", value) for case, its in cases.items() for key, value in its.items()]
    given += [(f"grid.{key}", value) for key, values in axes.items() for value in values]
    for where, value in given:
        is_date = isinstance(value, datetime.date)  # or a time
        require(not is_date, f"{file}: runs.{where}: YAML reads {value} as a date: put it in quotation marks")
    names, cells = short_names(list(axes)), []
    for (case, settings), values in itertools.product(cases.items(), itertools.product(*axes.values())):
        point = dict(zip(axes, values, strict=True))
        parts = [f"{names[key]}={re.sub(UNFIT_FOR_FOLDERS, '_', spell(value))}" for key, value in point.items()]
        name = ",".join([case] * bool(case) + parts) or "base"
        for key in ("run", "seed"):
            require(key not in settings | point, f"{file}: {name}: {key} is for seeds and out to give: leave it out")
        cells.append(Cell(name, base, case, point, settings | point))
    return cells


def _require_one_base_a_line(file: Path, cells: Sequence[Cell]) -> None:
    """Raises InputError where cells of two bases, or of cases with different settings, would be points of one line.

    Cells of one case that have an axis in common are points of one line.
    """
    bases: dict[tuple[str, str], Path] = {}
    settings: dict[tuple[str, str, str], dict[str, Any]] = {}
    for cell in cells:
        for key in cell.values:
            base = bases.setdefault((cell.case, key), cell.base)
            whose = f"two blocks with the case {cell.case}" if cell.case else "two blocks without cases"
            message = f"{whose} sweep {key} from different bases, {base} and {cell.base}: give each a case of its own"
            require(base.resolve() == cell.base.resolve(), f"{file}: {message}")
            line = repr({name: value for name, value in cell.values.items() if name != key})
            of_case = {name: value for name, value in cell.settings.items() if name not in cell.values}
            message = f"{whose} sweep {key} with different settings of the case: give each a case of its own"
            require(settings.setdefault((cell.case, key, line), of_case) == of_case, f"{file}: {message}")


def _require_few_runs(file: Path, count: int) -> None:
    message = f"{count:,} runs: a study has at most {MOST_RUNS:,}: divide it into several"
    require(count <= MOST_RUNS, f"{file}: {message}")


def _read_experiment(file: Path, cell: Cell, overrides: Sequence[str]) -> Experiment:
    """Returns the configuration of a cell. An error in the file's own settings names the file and the cell."""
    settings = [f"--{key}={spell(value)}" for key, value in cell.settings.items()]
    try:
        experiment = config_io.read(cell.base, settings)
    except InputError as error:
        raise InputError(f"{file}: {cell.name}: {str(error).removeprefix('command line: ')}") from None
    return config_io.read(cell.base, [*settings, *overrides]) if overrides else experiment


def _parse_reference(file: Path, tree: Any) -> tuple[str, dict[str, dict[str, tuple[float, float | None]]]]:
    """Returns where the published values stand, and the values: cell -> measure -> mean, standard error."""
    right = isinstance(tree, dict) and isinstance(tree.get("source", ""), str)
    right = right and isinstance(tree.get("cells", {}), dict)
    require(right, f"{file}: reference must hold source, a text, and cells, by name")
    require_known(file, "reference.", tree, ("source", "cells"))
    published: dict[str, dict[str, tuple[float, float | None]]] = {}
    for name, values in tree.get("cells", {}).items():
        where = f"reference.cells.{name}"
        require(isinstance(values, dict), f"{file}: {where} is {values!r}: it must hold values by measure")
        require_known(file, f"{where}.", values, MEASURES)
        published[name] = {}
        for measure, value in values.items():
            numbers = value if isinstance(value, list) else [value]
            finite = all(isinstance(number, int | float) and math.isfinite(number) for number in numbers)
            message = f"{where}.{measure} is {value!r}: give a number, or [mean, standard error]"
            require(1 <= len(numbers) <= 2 and finite, f"{file}: {message}")
            published[name][measure] = float(numbers[0]), float(numbers[1]) if len(numbers) == 2 else None
    return tree.get("source", ""), published


def spell(value: Any) -> str:
    """Returns a value as the command line has it."""
    return value if isinstance(value, str) else json.dumps(value)


def require_known(file: Path, section: str, tree: dict[str, Any], known: Collection[str]) -> None:
    for key in tree:
        require(key in known, f"{file}: unknown key {section}{key}: choose from {', '.join(known)}")
