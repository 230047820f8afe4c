"""Lists the names that programs and papers rely on (docs/stability.md), one a line.

python -m tests.public_names > tests/public_names.txt
"""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name

import esnlm
from esnlm.base import processes
from esnlm.base.settings import build
from esnlm.commands import COMMANDS
from esnlm.data import store
from esnlm.runs.directory import Entry, RunDirectory
from esnlm.training.config import Experiment, flatten
from tests.commands import arguments_of
from tests.golden.small import MODELS

ROOT = Path(__file__).parents[1]
SHORT = {name: f"esnlm.{name}" for name in esnlm.__all__}
RECORDED = Path(__file__).with_suffix(".txt")


def public_names() -> list[str]:
    return [*_commands(), *_settings(), *_python(), *_arrays(), *_files()]


def _commands() -> Iterator[str]:
    for name in COMMANDS:
        yield f"esnlm {name}"
        for argument in arguments_of(name):
            for option in argument.names:
                yield f"esnlm {name} {option}"
                for choice in argument.description.get("choices") or []:
                    yield f"esnlm {name} {option} {choice}"
    yield f"exit status {processes.STOPPED}: stopped"
    yield f"exit status {processes.LOST}: lost"


def _settings() -> Iterator[str]:
    """Settings with their defaults, as docs/settings.md has them."""
    section = ""
    for line in (ROOT / "docs" / "settings.md").read_text().splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        elif line.startswith("| `"):
            name, default = [cell.strip() for cell in line.split("|")[1:3]]
            yield f"{section}: {name} = {default or '(empty)'}"


def _python() -> Iterator[str]:
    """Names that the Python reference shows, with the parameters of functions."""
    page = (ROOT / "docs" / "api.md").read_text()
    for path, options in re.findall(r"^::: (\S+)\n((?:    .*\n)*)", page, re.MULTILINE):
        module, _, name = path.rpartition(".")
        if "members: []" in options:  # what needs a package that is not always there
            yield path
            continue
        thing, name = resolve_name(f"{module}:{name}"), SHORT.get(name, path)
        yield name
        yield from _parameters(name, thing)
        hidden = ["^_", "^set_.*_request$", *re.findall(r'"!([^"]+)"', options)]
        ours = [each for each in getattr(thing, "__mro__", []) if "esnlm" in each.__module__]
        for member in sorted({member for each in ours for member in vars(each)}):
            if not any(re.match(pattern, member) for pattern in hidden):
                yield f"{name}.{member}"
                yield from _parameters(f"{name}.{member}", getattr(thing, member))


def _parameters(name: str, thing: object) -> Iterator[str]:
    """The parameters of a function: `*` before one that is given by keyword only, `=` after one
    that need not be given."""
    for each in inspect.signature(thing).parameters.values() if callable(thing) else ():
        star = {each.KEYWORD_ONLY: "*, ", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        if each.name != "self":
            yield f"{name}({star}{each.name}{'' if each.default is each.empty else '='})"


def _arrays() -> Iterator[str]:
    """Names of arrays in `Run.arrays`."""
    for name, settings in (MODELS | {"gpt2": {"family": "gpt2", "width": 8, "heads": 2}}).items():
        model = build(Experiment, {"model": settings}).model
        frozen, _ = model.initialize_frozen(9, 0)
        for array in flatten(model.initialize(9, 0, frozen).arrays()):
            yield f"array of {name}: {array}"


def _files() -> Iterator[str]:
    for entry in vars(RunDirectory).values():
        if isinstance(entry, Entry):
            yield f"run directory: {entry.name}"
    for name in sorted(store.NAMES):
        yield f"token store: {name}"


if __name__ == "__main__":
    print("\n".join(public_names()))
