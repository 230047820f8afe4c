"""What every study file has, and how one is read: a mistake is one line that names file and key."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from esnlm import config_io
from esnlm.config import Experiment
from esnlm.errors import InputError


class Section(BaseModel):
    """A part of a study file. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True)


class StudyFile(Section):
    """The keys that all kinds of studies have."""

    kind: str
    note: str = ""
    base: str | None = None
    out: Path | None = None
    blimp: Path | None = None


@contextlib.contextmanager
def one_line(file: Path) -> Iterator[None]:
    """Turns the first mistake that pydantic finds within it into an InputError."""
    try:
        yield
    except ValidationError as error:
        first = error.errors()[0]
        key, message = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
        raise InputError(f"{file}: {key}: {message[:1].lower()}{message[1:]}") from None


def find_base(file: Path, base: str | None) -> Path:
    """Returns the configuration that a study file names, from the folder of the study file."""
    path = file.parent / (base or "")
    if not path.is_file():
        raise InputError(f"{file}: base is {base}: name a configuration, from the study file's folder")
    return path


def read_experiment(file: Path, name: str, base: Path, settings: Sequence[str], overrides: Sequence[str]) -> Experiment:
    """Returns the configuration of a run. A mistake in the study's own settings names the study file and the run."""
    where = str(base)  # which is read alone first, so that an error names the file in which the mistake stands
    try:
        config_io.read(base)
        where = f"{file}: {name}"
        experiment = config_io.read(base, settings)
    except InputError as error:
        line = str(error).removeprefix("command line: ")
        raise InputError(line if line.startswith(where) else f"{where}: {line}") from None
    return config_io.read(base, [*settings, *overrides]) if overrides else experiment


def require_free(file: Path, overrides: Sequence[str], swept: set[str]) -> None:
    """Raises InputError if the command line sets what the study file sweeps: the names of runs would be wrong."""
    for word in overrides:
        key = word.partition("=")[0].removeprefix("--")
        if any(f"{key}.".startswith(f"{own}.") or f"{own}.".startswith(f"{key}.") for own in swept):
            raise InputError(f"command line: --{key}: {file} sets it: change it there, or give a list for its list")


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """Returns for each dotted key its last part, or the whole key if two have the same last part."""
    last = [key.rpartition(".")[2] for key in keys]
    return {key: name if last.count(name) == 1 else key for key, name in zip(keys, last, strict=True)}
