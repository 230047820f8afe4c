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
from esnlm.reservoir.functions import ACTIVATIONS, UPDATE_RULES
from esnlm.runs.directory import Entry, RunDirectory
from esnlm.training.config import Experiment, flatten
from tests.commands import arguments_of
from tests.golden import small

ROOT = Path(__file__).parents[1]
SHORT = {name: f"esnlm.{name}" for name in esnlm.__all__}
# Classes that functions make: their fields are public, their constructors may change.
MADE = (
    "esnlm.Run",
    "esnlm.Reservoir",
    "esnlm.Experiment",
    "esnlm.evaluation.likelihood.Likelihood",
    "esnlm.evaluation.word_states.WordStates",
    "esnlm.data.tokenizer.Tokenizer",
    "esnlm.models.ngrams.NgramModel",
    "esnlm.data.store.TokenStore",
)
PLAIN = (str, int, float, tuple, Path)  # defaults that are listed
RECORDED = Path(__file__).with_suffix(".txt")


def public_names() -> list[str]:
    return [*_commands(), *_settings(), *_python(), *_arrays(), *_files()]


def _commands() -> Iterator[str]:
    for name in COMMANDS:
        yield f"esnlm {name}"
        for argument in arguments_of(name):
            for option in argument.names:
                default = argument.description.get("default")
                is_shown = isinstance(default, PLAIN) and "const" not in argument.description
                yield f"esnlm {name} {option}{f' = {default}' if is_shown else ''}"
                for choice in argument.description.get("choices") or []:
                    yield f"esnlm {name} {option} {choice}"
    yield f"exit status {processes.STOPPED}: stopped"
    yield f"exit status {processes.LOST}: lost"


def _settings() -> Iterator[str]:
    """Settings with their defaults and values, and kinds, as docs/settings.md has them."""
    text, section = (ROOT / "docs" / "settings.md").read_text(), ""
    for setting, kinds in re.findall(r"`([\w.]+)` \(([\w, ]+)\)", text.partition("\n## ")[0]):
        for kind in kinds.split(", "):
            yield f"`{setting}`: {kind}"
    for setting, functions in {"activation": ACTIVATIONS, "update_rule": UPDATE_RULES}.items():
        yield from (f"`model.reservoir.{setting}`: {name}" for name in functions)
    for line in text.splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        elif line.startswith("| `"):
            name, default, values = [cell.strip() for cell in line.split("|")[1:4]]
            yield f"{section}: {name} = {default or '(empty)'}: {values}"


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
        fields = inspect.get_annotations(thing) if name in MADE else ()
        if not fields:
            yield from _parameters(name, thing)
        hidden = ["^_", "^set_.*_request$", *re.findall(r'"!([^"]+)"', options)]
        ours = [each for each in getattr(thing, "__mro__", []) if "esnlm" in each.__module__]
        members = {member for each in ours for member in vars(each)}
        for member in sorted(members.union(fields)):
            if not any(re.match(pattern, member) for pattern in hidden):
                yield f"{name}.{member}"
                yield from _parameters(f"{name}.{member}", getattr(thing, member, None))


def _parameters(name: str, thing: object) -> Iterator[str]:
    """The parameters of a function, with their places, or `*` where only the keyword may be given,
    and with their defaults."""
    parameters = inspect.signature(thing).parameters if callable(thing) else {}
    for i, each in enumerate(value for name, value in parameters.items() if name != "self"):
        place = {each.KEYWORD_ONLY: "*, ", each.VAR_KEYWORD: "**"}.get(each.kind, f"{i}: ")
        default = repr(each.default) if isinstance(each.default, PLAIN) else "..."
        yield f"{name}({place}{each.name}{'' if each.default is each.empty else f' = {default}'})"


def _arrays() -> Iterator[str]:
    """Names of arrays in `Run.arrays`."""
    for name, settings in (
        small.MODELS | {"gpt2": {"family": "gpt2", "width": 8, "heads": 2}}
    ).items():
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
