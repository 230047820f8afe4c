"""Defines the keys of study files and reads them. Errors name the file and the key in one line."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FiniteFloat,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from esnlm.base.errors import InputError
from esnlm.base.settings import read_tree
from esnlm.training import config_io
from esnlm.training.config import Experiment

# The names in esnlm/reports/figures.py of what a study measures. All come from summary.json except
# blimp, the overall accuracy on minimal pairs in percent.
MEASURES = (
    *("trainable_params", "total_params", "total_entries", "train_nll", "val_nll"),
    *("val_nll_without_eos", "val_bits_per_byte", "perplexity", "seconds", "tokens_per_second"),
    "blimp",
)


def format_setting(value: Any) -> str:
    """Formats a value for the command line."""
    return value if isinstance(value, str) else json.dumps(value)


def check_distinct(values: list[Any]) -> list[Any]:
    """Returns the values. Raises ValueError if two are the same setting, as 1, 1.0 and "1e0"."""
    first_text: dict[str, str] = {}  # of each distinct value
    for value in values:
        text = format_setting(value)
        try:
            canonical = json.dumps(json.loads(text, parse_int=float))
        except ValueError:  # not JSON, but text such as ring or 007
            canonical = text
        if canonical in first_text:
            raise ValueError(
                f"{first_text[canonical]} and {text} are the same value, whose runs would count"
                " twice"
            )
        first_text[canonical] = text
    return values


class Section(BaseModel):
    """A part of a study file. Rejects unknown keys."""

    model_config = ConfigDict(extra="forbid")


class StudyFile(Section):
    """The keys of both kinds of studies."""

    kind: str
    note: str = ""
    base: str | None = None
    out: Path | None = None
    blimp: Path | None = None


Axis = Annotated[list[Any], Field(min_length=1), AfterValidator(check_distinct)]
Seeds = Annotated[
    list[Annotated[int, Field(ge=0)]], Field(min_length=1), AfterValidator(check_distinct)
]
Measure = Annotated[str, Field(pattern=f"^({'|'.join(MEASURES)})$")]
Several = BeforeValidator(lambda value: value if isinstance(value, list) else [value])
# Mean, or mean and standard error
Published = Annotated[
    tuple[FiniteFloat, FiniteFloat | None],
    BeforeValidator(lambda value: value if isinstance(value, list) else (value, None)),
]


class Block(Section):
    """Runs from one configuration: each case at each point of the grid."""

    base: str | None = None
    cases: Annotated[dict[str, dict[str, Any]], Field(min_length=1)] = {"": {}}
    grid: dict[str, Axis] = {}


class Reference(Section):
    """Published values, by cell name."""

    source: str = ""
    cells: dict[str, dict[Measure, Published]] = {}


class GridFile(StudyFile):
    """A study file of kind `grid`."""

    runs: Annotated[list[Block], Several]
    seeds: Seeds = [0]
    reference: Reference = Reference()
    columns: list[Measure] = list(MEASURES)


class Place(Section):
    """The search space of a setting: from low to high, both included, or choices."""

    low: int | FiniteFloat | None = None
    high: int | FiniteFloat | None = None
    log: bool = False
    choices: Annotated[list[str | int | float | bool | None], Field(min_length=2)] | None = None

    @model_validator(mode="after")
    def _check(self) -> "Place":
        low, high = self.low, self.high
        if (self.choices is None) == (low is None or high is None):
            raise ValueError("give low and high, or choices")
        if low is None or high is None:
            return self
        if low >= high or (self.log and low <= 0):
            raise ValueError("low must be below high, and above 0 on a logarithmic scale")
        return self


class SearchFile(StudyFile):
    """A study file of kind `search`."""

    search: Annotated[dict[str, Place], Field(min_length=1)]
    trials: Annotated[int, Field(ge=1)]
    objective: Literal["val_nll", "val_bits_per_byte", "perplexity", "train_nll", "blimp"] = (
        "val_nll"
    )
    sampler: Literal["tpe", "random"] = "tpe"
    seed: Annotated[int, Field(ge=0)] = 0
    pruner: Literal["none", "median"] = "none"
    prune_by: Literal["val_nll", "train_nll"] = "val_nll"


def read_study(file: Path) -> GridFile | SearchFile:
    """Reads a study file. Raises InputError if it is missing or has a wrong kind or key."""
    tree = read_tree(file, "name a study file, such as those in configs/studies")
    kind = tree.get("kind") if isinstance(tree, dict) else None
    if kind not in ("grid", "search"):
        raise InputError(f"{file}: kind is {kind!r}: choose grid or search")
    try:
        return GridFile(**tree) if kind == "grid" else SearchFile(**tree)
    except ValidationError as error:
        raise InputError(f"{file}: {_first_line(error)}") from None


def read_list(kind: Any, key: str, values: Any) -> list[Any]:
    """Returns a list of `kind` (Axis or Seeds) from the command line."""
    try:
        return TypeAdapter(dict[str, kind]).validate_python({key: values})[key]
    except ValidationError as error:
        raise InputError(f"command line: --{_first_line(error)}") from None


def _first_line(error: ValidationError) -> str:
    """Formats the first error with its key."""
    first = error.errors()[0]
    key, message = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
    return f"{key}: {message[:1].lower()}{message[1:]}"


def find_base(file: Path, base: str | None) -> Path:
    """Returns the path of a study's configuration, relative to the folder of the study file."""
    path = file.parent / (base or "")
    if not path.is_file():
        raise InputError(
            f"{file}: base is {base}: name a configuration, relative to the study file's folder"
        )
    return path


def read_experiment(file: Path, name: str, base: Path, settings: Sequence[str]) -> Experiment:
    """Returns the configuration of a run. Errors name the study file and the run."""
    try:
        return config_io.read(base, settings)
    except InputError as error:
        raise InputError(f"{file}: {name}: {str(error).removeprefix('command line: ')}") from None


def check_free(file: Path, overrides: Sequence[str], swept: set[str]) -> None:
    """Raises InputError if the command line sets a swept setting: names of runs would be wrong."""
    for word in overrides:
        key = word.partition("=")[0].removeprefix("--")
        if any(f"{key}.".startswith(f"{s}.") or f"{s}.".startswith(f"{key}.") for s in swept):
            raise InputError(
                f"command line: --{key}: {file} sets it; change it there, or replace its list by a"
                " list"
            )


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """Shortens dotted keys to their last part, except keys that share it."""
    last = [key.rpartition(".")[2] for key in keys]
    return {
        key: name if last.count(name) == 1 else key for key, name in zip(keys, last, strict=True)
    }
