"""Reads a study file of kind `search`: which settings are searched, where, and for what."""

import dataclasses
import math
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from esnlm import config_io
from esnlm.config import Experiment, TrainingConfig, as_dict
from esnlm.errors import InputError, require
from esnlm.studies.grid import MOST_RUNS, find_base, find_out, overlap, require_known, short_names, spell, title

KEYS = (
    *("kind", "note", "base", "search", "trials", "objective", "direction", "seed"),
    *("pruner", "prune_by", "out", "blimp"),
)
# What can be searched for, and whether more of it is better.
OBJECTIVES = {
    "val_nll": "minimize",
    "val_bits_per_byte": "minimize",
    "perplexity": "minimize",
    "train_nll": "minimize",
    "blimp": "maximize",
}
NEED_VALIDATION = ("val_nll", "val_bits_per_byte", "perplexity")
DIRECTIONS = ("minimize", "maximize")
PRUNERS = ("none", "median")
PRUNE_BY = ("val_nll", "train_nll")


class Range(NamedTuple):
    """The numbers from `low` to `high`, both among them."""

    low: float
    high: float
    log: bool
    whole: bool

    @property
    def ends(self) -> list[Any]:
        return [self.low, self.high]


class Choices(NamedTuple):
    """Values of any kind, without an order."""

    values: tuple[Any, ...]

    @property
    def ends(self) -> list[Any]:
        return list(self.values)


@dataclass(frozen=True)
class Search:
    """The content of a study file of kind `search`, with its configuration checked."""

    file: Path
    base: Path
    space: dict[str, Range | Choices]  # by dotted key
    trials: int
    objective: str
    direction: str
    seed: int  # of the search; the runs have that of their configuration
    pruner: str
    prune_by: str
    out: Path
    blimp: Path | None
    note: str
    overrides: tuple[str, ...]
    experiment: Experiment  # of the base

    @property
    def name(self) -> str:
        return self.file.stem

    @property
    def title(self) -> str:
        """The name of the study, and that of its folder where --out gave it another one."""
        return title(self.name, self.out)

    @property
    def names(self) -> dict[str, str]:
        """A short name of each searched setting, by its dotted key."""
        return short_names(list(self.space))

    @property
    def definition(self) -> dict[str, Any]:
        """What must not change while trials are added: results under another definition cannot be compared."""
        base = as_dict(self.experiment) | {"run": None, "tracking": None}
        space = {key: place._asdict() for key, place in self.space.items()}
        same = {"objective": self.objective, "direction": self.direction, "prune_by": self.prune_by, "seed": self.seed}
        return {"base": base, "search": space} | same

    def directory(self, number: int) -> Path:
        """Returns the run directory of a trial."""
        return self.out / "runs" / f"trial-{number:04}"

    def make_experiment(self, values: dict[str, Any], run: Path) -> Experiment:
        """Returns the configuration at a point of the search.

        Args:
            values: of the searched settings.
            run: its run directory.

        Raises:
            InputError: these values cannot be used together.
        """
        settings = [f"--{key}={spell(value)}" for key, value in values.items()]
        try:
            experiment = config_io.read(self.base, [*settings, *self.overrides])
        except InputError as error:
            point = ", ".join(f"{self.names[key]}={spell(value)}" for key, value in values.items())
            raise InputError(f"{self.file}: {point}: {str(error).removeprefix('command line: ')}") from None
        return dataclasses.replace(experiment, run=str(run))


def parse_search(tree: dict[str, Any], file: Path, overrides: Sequence[str] = ()) -> Search:
    """Returns the search of a study file's tree. Each end and each choice of a setting is tried.

    Args:
        overrides: `--section.key value` of the command line, for all trials.

    Raises:
        InputError: a key is unknown, what it holds is not what it must be, or a configuration cannot be used.
    """
    require_known(file, "", tree, KEYS)
    path = find_base(file, tree.get("base"))
    axes = tree.get("search")
    message = f"search is {axes!r}: it must hold settings, each with low and high, or with choices"
    require(isinstance(axes, dict) and bool(axes), f"{file}: {message}")
    assert isinstance(axes, dict)
    for key in axes:
        require(isinstance(key, str), f"{file}: search.{key}: name a setting, as section.key")
        require(key not in ("run", "seed"), f"{file}: search.{key}: {key} cannot be searched: leave it out")
        message = "losses on other validation text cannot be compared: leave it out"
        require(not key.startswith("data.validation"), f"{file}: search.{key}: {message}")
    for argument in overrides:
        key = argument.partition("=")[0].removeprefix("--")
        is_ours = argument.startswith("--") and any(overlap(key, each) for each in ("run", *axes))
        require(not is_ours, f"command line: --{key} is for {file} to set: change it there")
    experiment = config_io.read(path, overrides)
    objective = _choose(file, tree, "objective", tuple(OBJECTIVES), "val_nll")
    for key in ("out", "blimp", "note"):
        require(isinstance(tree.get(key), str | None), f"{file}: {key} is {tree.get(key)!r}: it must be a text")
    blimp, trials, seed = tree.get("blimp"), tree.get("trials"), tree.get("seed", 0)
    right = type(trials) is int and 1 <= trials <= MOST_RUNS
    require(right, f"{file}: trials is {trials!r}: it must be a whole number from 1 to {MOST_RUNS:,}")
    require(type(seed) is int and seed >= 0, f"{file}: seed is {seed!r}: it must be an integer from 0 up")
    if objective == "blimp" and not blimp and not experiment.data.has_minimal_pairs:
        raise InputError(f"{file}: objective is blimp: name minimal pairs, with blimp or --blimp")
    learns = isinstance(experiment.training, TrainingConfig) and "training.kind" not in axes
    if objective == "train_nll" and not learns:
        raise InputError(f"{file}: objective is train_nll: a readout by regression has none; choose val_nll")
    stops = getattr(experiment.training, "stop_after", None) is not None or "training.stop_after" in axes
    if objective == "train_nll" and stops:
        reason = "training.stop_after may end a run within an epoch, whose train NLL is of a few updates"
        raise InputError(f"{file}: objective is train_nll: {reason}; choose val_nll")
    if objective in NEED_VALIDATION and getattr(experiment.data, "validation", "made with the corpus") is None:
        raise InputError(f"{file}: objective is {objective}: name validation text, with data.validation")
    search = Search(
        file=file,
        base=path,
        space={key: _parse_place(file, str(key), place, experiment) for key, place in axes.items()},
        trials=int(trials or 0),
        objective=objective,
        direction=_choose(file, tree, "direction", DIRECTIONS, OBJECTIVES[objective]),
        seed=seed,
        pruner=_choose(file, tree, "pruner", PRUNERS, "none"),
        prune_by=_choose(file, tree, "prune_by", PRUNE_BY, "val_nll"),
        out=find_out(file, tree),
        blimp=Path(blimp) if blimp else None,
        note=(tree.get("note") or "").strip(),
        overrides=tuple(overrides),
        experiment=experiment,
    )
    _check_ends(search)
    return search


def last_step(experiment: Experiment) -> int | None:
    """Returns the last update of a run; None for a regression, which is not given up on the way.

    Raises:
        InputError: its data cannot be used.
    """
    training = experiment.training
    if not isinstance(training, TrainingConfig):
        return None
    return training.epochs * math.ceil(experiment.data.size().sentences / training.batch_size)


def _choose(file: Path, tree: dict[str, Any], key: str, choices: tuple[str, ...], default: str) -> str:
    value = tree.get(key, default)
    require(value in choices, f"{file}: {key} is {value!r}: choose {', '.join(choices)}")
    return value


def _parse_place(file: Path, key: str, place: Any, experiment: Experiment) -> Range | Choices:
    """Returns where a setting is searched."""
    message = f"search.{key} is {place!r}: give low and high (and log: true), or choices"
    require(isinstance(place, dict), f"{file}: {message}")
    if "choices" in place:
        require_known(file, f"search.{key}.", place, ("choices",))
        values = place["choices"]
        right = isinstance(values, list) and len(values) > 1
        right = right and all(isinstance(value, str | int | float | None) for value in values)
        right = right and len({spell(value) for value in values}) == len(values)
        require(right, f"{file}: search.{key}.choices is {values!r}: list two or more different values")
        return Choices(tuple(values))
    require_known(file, f"search.{key}.", place, ("low", "high", "log"))
    require("low" in place and "high" in place, f"{file}: {message}")
    low, high = (_parse_number(file, f"search.{key}.{end}", place[end]) for end in ("low", "high"))
    log = place.get("log", False)
    require(isinstance(log, bool), f"{file}: search.{key}.log is {log!r}: it must be true or false")
    require(low < high, f"{file}: search.{key}: low is {low} and high {high}: high must be above low")
    require(not log or low > 0, f"{file}: search.{key}: low is {low}: it must be above 0 on a logarithmic scale")
    if _takes_whole(experiment, key, isinstance(low, int) and isinstance(high, int)):
        message = f"search.{key}: the setting takes whole numbers: give whole ends"
        require(float(low).is_integer() and float(high).is_integer(), f"{file}: {message}")
        return Range(int(low), int(high), log, whole=True)
    return Range(float(low), float(high), log, whole=False)


def _parse_number(file: Path, key: str, value: Any) -> int | float:
    """Returns a number. YAML takes 1e-4, without a point, for a text: it is a number here."""
    try:
        number = float(value) if isinstance(value, str) else value
        right = isinstance(number, int | float) and not isinstance(number, bool) and math.isfinite(number)
    except (ValueError, OverflowError):
        right = False
    require(right, f"{file}: {key} is {value!r}: it must be a number")
    return number


def _takes_whole(experiment: Experiment, key: str, ends_are_whole: bool) -> bool:
    """Returns whether a setting takes whole numbers: by its type, or where the base lacks its section, by the ends of its range."""
    *sections, last = key.split(".")
    section: Any = experiment
    for name in sections:
        section = getattr(section, name, None)
    if not dataclasses.is_dataclass(section):
        return ends_are_whole
    hint = typing.get_type_hints(type(section)).get(last)
    if hint is None:
        return ends_are_whole
    kinds = typing.get_args(hint) or (hint,)
    return int in kinds and float not in kinds


def _check_ends(search: Search) -> None:
    """Raises InputError where an end or a choice of a setting cannot be used beside the first ones of the others."""
    first = {key: place.ends[0] for key, place in search.space.items()}
    for key, place in search.space.items():
        for value in place.ends:
            search.make_experiment(first | {key: value}, search.out)
