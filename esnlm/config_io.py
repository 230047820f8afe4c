"""Reading a configuration from a YAML file and the command line, and writing it; every mistake is named in one line."""

import contextlib
import dataclasses
import functools
import io
import re
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import jsonargparse
import yaml

from esnlm.compute import ComputeConfig
from esnlm.config import SPELLED_TYPES, TRAINING, Experiment, ParentConfig, as_dict, require_no_null
from esnlm.data.sources import SOURCES
from esnlm.errors import InputError, require
from esnlm.io.atomic import write_file
from esnlm.io.yaml_file import LARGEST_FILE, read_tree
from esnlm.models.registry import MODELS
from esnlm.reservoir.functions import own_first
from esnlm.reservoir.topology import TOPOLOGIES
from esnlm.reservoir.weights import ReservoirConfig
from esnlm.runs.trackers import find_tracker

RENAMED = {"compute.lanes": "compute.batch_slots"}  # former spellings, which are still read

# What was read before, by its sections, its text and its overrides: a tenth of a second each, and a study reads the configurations
# of all its runs again whenever one of them ends. Half of that is for the file, which many runs of a study have in common.
_read_before: dict[tuple[Any, ...], Experiment] = {}
_files_before: dict[tuple[Any, ...], jsonargparse.Namespace] = {}
MOST_KEPT = 4096

Kept = TypeVar("Kept")

_SCALARS = {"run": str, "seed": int, "tracking": tuple[str, ...]}  # the settings that lie in no section


def read(file: str | Path, overrides: Sequence[str] = ()) -> Experiment:
    """Reads the experiment of a YAML file, with `--section.key value` overrides, which win.

    Raises:
        InputError: the file is missing or not YAML, a key is unknown, or a value has the wrong type or range.
    """
    return _to_begin(read_begun(file, overrides))


def read_begun(file: str | Path, overrides: Sequence[str] = ()) -> Experiment:
    """Does what `read` does for the config.yaml of a run, whose trackers need not be installed where it is read.

    What only a new run is refused (`Experiment.check_new`) may stand in it.
    """
    _require_length(overrides)
    return _parse(file, _read_yaml(Path(file)), overrides)


def read_of_parent(file: str | Path, overrides: Sequence[str]) -> Experiment:
    """Does what `read` does for a run that goes on from another one, perhaps on a text of another kind.

    Args:
        file: config.yaml of the parent.
        overrides: settings that win over it. Where they name another `data.kind`, the parent's section `data` is left out.

    Raises:
        InputError: as in `read`, or a setting of the text is one of another kind.
    """
    _require_length(overrides)
    tree = _read_yaml(Path(file))
    theirs = tree.get("data", {}).get("kind")
    kind, given = _Choice(file, tree, overrides).arguments("data", "kind", theirs)
    if kind != theirs:
        tree = tree | {"data": {}}
    elif unknown := [each for each in given if kind in SOURCES and each not in _settings(SOURCES[kind])]:
        having = [name for name, source in SOURCES.items() if unknown[0] in _settings(source)]
        line = f"command line: data.{unknown[0]}: the parent's data.kind, {kind}, has no such setting"
        require(not having, f"{line}; give --data.kind {' or '.join(having)} with it")
    return _to_begin(_parse(file, tree, overrides))


def from_dict(tree: dict[str, Any]) -> Experiment:
    """Does what `read` does for a configuration that was made in Python, as nested dicts of plain values.

    Example:
        from_dict({"run": "runs/small", "model": {"reservoir": {"state_size": 256}}})
    """
    return _to_begin(_parse("experiment", _checked("experiment", _plain(tree)), ()))


def section(name: str, kind: type, values: dict[str, Any], where: str) -> Any:
    """Returns one section of settings, made in Python, with the types that a file's must have.

    Args:
        name: what the line on a wrong value calls the section.
        kind: its class.
        values: known settings by name.
        where: what that line begins with.

    Example:
        section("training", Ridge, {"regularizations": [1e-6]}, "readout ridge")
    """
    parser = _parser(((name, kind),))
    with readable_errors(f"{where}: "):
        found = getattr(parser.instantiate(parser.parse_object({name: _plain(values)})), name)
    require_no_null(found, f"{where}: {name}.")
    return found


def _to_begin(experiment: Experiment) -> Experiment:
    """Returns an experiment that can be begun. Raises InputError where it cannot, or a tracker of it is not installed."""
    experiment.check_new()
    for name in experiment.tracking:
        find_tracker(name)
    return experiment


def _require_length(overrides: Sequence[str]) -> None:
    length = sum(map(len, overrides))
    line = f"command line: {length:,} characters of settings: give at most {LARGEST_FILE:,}, as a file may have"
    require(length <= LARGEST_FILE, line)


def _parse(file: str | Path, tree: dict[str, Any], overrides: Sequence[str]) -> Experiment:
    """Returns the experiment of a configuration's tree, with overrides; `file` names it in errors."""
    overrides = [_with_new_name(argument) for argument in overrides]
    choose = _Choice(file, tree, overrides)
    sections: dict[str, type] = {
        "data": choose("data", "kind", SOURCES, "grammar"),
        "model": choose("model", "family", MODELS, "esn"),
        "training": choose("training", "kind", TRAINING, "adamw"),
        "compute": ComputeConfig,
        "parent": ParentConfig,
    }
    if "reservoir" in _settings(sections["model"]):
        sections["model.reservoir"] = ReservoirConfig
        kind = choose("model.reservoir.topology", "kind", TOPOLOGIES, "erdos_renyi", own_first("topology"))
        sections["model.reservoir.topology"] = kind
    key = tuple(sections.items()), repr(tree), tuple(overrides)
    experiment = _keep(_read_before, key, lambda: _instantiate(file, tree, overrides, sections))
    experiment.check()
    return experiment


def _keep(before: dict[tuple[Any, ...], Kept], key: tuple[Any, ...], make: Callable[[], Kept]) -> Kept:
    """Returns what was made before for a key, or makes it."""
    if key not in before:
        made = make()
        if len(before) >= MOST_KEPT:
            before.clear()
        before[key] = made
    return before[key]


def _instantiate(
    file: str | Path, tree: dict[str, Any], overrides: Sequence[str], sections: dict[str, type]
) -> Experiment:
    """Returns the experiment of a tree and overrides whose sections are of these kinds, not checked yet."""
    flags = [argument for argument in overrides if argument.startswith("--")]  # and not the values that follow them
    given = [flag.partition("=")[0].removeprefix("--").split(".") for flag in flags]
    in_file = list(_paths(tree))
    for name, section in sections.items():
        _require_known_inside("command line", name, section, given, sections)
        _require_known_inside(file, name, section, in_file, sections)
        _require_sections(file, name, section, tree)
    parser = _parser(tuple(sections.items()))
    with readable_errors(f"{file}: "):
        key = tuple(sections.items()), repr(tree)
        from_file = _keep(_files_before, key, lambda: parser.parse_object(tree)).clone()
    with readable_errors("command line: "):
        parsed = parser.instantiate(parser.parse_args(list(overrides), namespace=from_file) if overrides else from_file)
    return Experiment(**{each: getattr(parsed, each) for each in _settings(Experiment)})


@functools.cache  # Making it takes a third of a reading's time, and a study reads hundreds of configurations.
def _parser(sections: tuple[tuple[str, type], ...]) -> jsonargparse.ArgumentParser:
    """Returns the parser of the settings of these sections, by their names, and of those that lie in none."""
    parser = jsonargparse.ArgumentParser(exit_on_error=False, add_help=False, allow_abbrev=False)
    for name, kind in _SCALARS.items():
        parser.add_argument(f"--{name}", type=kind, default=getattr(Experiment, name))
    for name, section in sections:
        inner = {other.rpartition(".")[2] for other, _ in sections if other.rpartition(".")[0] == name}
        parser.add_class_arguments(section, name, skip=inner)
    return parser


def write(experiment: Experiment, file: Path) -> None:
    """Writes the experiment as YAML that `read` gives back."""
    write_file(file, dump(experiment))


def dump(experiment: Experiment) -> str:
    """Returns the experiment as the text of such a file."""
    return yaml.safe_dump(as_dict(experiment), sort_keys=False)


def setting_names() -> dict[str, tuple[str, ...]]:
    """Returns the names of all settings, of every kind of section, and what the one that chooses a section may be.

    Example:
        setting_names()["training.kind"]        # ("adamw", "ridge", ...)
    """
    chosen: dict[str, tuple[str, Mapping[str, type]]] = {
        "data": ("kind", SOURCES),
        "model": ("family", MODELS),
        "training": ("kind", TRAINING),
        "model.reservoir.topology": ("kind", TOPOLOGIES),
    }
    found: dict[str, tuple[str, ...]] = {}

    def add(kind: type, prefix: str) -> None:
        for name, hint in typing.get_type_hints(kind).items():
            if name not in _settings(kind):
                continue
            key = f"{prefix}{name}"
            if key in chosen:
                chooser, kinds = chosen[key]
                found[f"{key}.{chooser}"] = tuple(kinds)
                for each in kinds.values():
                    add(each, f"{key}.")
                continue
            hints: tuple[Any, ...] = typing.get_args(hint) or (hint,)
            inner: list[Any] = [each for each in hints if dataclasses.is_dataclass(each)]
            for each in inner:
                add(each, f"{key}.")
            if not inner:
                found.setdefault(key, ())

    add(Experiment, "")
    return found


@contextlib.contextmanager
def readable_errors(where: str) -> Iterator[None]:
    """Turns what jsonargparse says of a value within it into an InputError of one line.

    Args:
        where: what the line begins with: the file, or the command line, and a colon.
    """
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    except (jsonargparse.ArgumentError, TypeError, ValueError) as error:
        message = re.sub(r"\s+", " ", str(error)).strip()
        raise InputError(where + _of_wrong_type(message)) from None


def _of_wrong_type(message: str) -> str:
    """Returns what jsonargparse says of a value of a wrong type as "KEY is VALUE: it must be TYPE", any other as it is."""
    one = re.search(
        r'Parser key "(?P<key>[^"]+)": Expected a (?P<types><class \'\w+\'>). Got value: ?(?P<value>.*)', message
    )
    several = re.search(
        r'Parser key "(?P<key>[^"]+)": Does not validate against any of the Union subtypes'
        r" Subtypes: \[(?P<types>.*?)\] Errors: .*Given value: ?(?P<value>.*)",
        message,
    )
    found = one or several
    no_section = re.search(r'Parser key "(?P<key>[^"]+)": Unable to load config \'(?P<value>.*?)\' - ', message)
    if no_section is not None:
        return f"{no_section['key']} is {no_section['value']}: it must be a section of settings"
    if found is None:
        return message
    names = re.findall(r"<class '([\w.]+)'>|(\w+)\[[^]]*\]", found["types"])
    types = [SPELLED_TYPES.get(name, "a section of settings" if "." in name else name) for name in map("".join, names)]
    value = {"": "empty", "None": "null"}.get(found["value"], found["value"])
    return f"{found['key']} is {value}: it must be {' or '.join(types)}"


def _read_yaml(file: Path) -> dict[str, Any]:
    """Returns the tree of a configuration file, with keys of an experiment only."""
    return _checked(file, read_tree(file, "name a configuration file that is there"))


def _plain(value: Any) -> Any:
    """Returns nested dicts with lists for tuples and arrays, and Python's numbers for NumPy's, as a file would have them."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | range):
        return [_plain(inner) for inner in value]
    if isinstance(value, Path):
        return str(value)
    return value.tolist() if hasattr(value, "tolist") else value


def _checked(file: str | Path, tree: Any) -> dict[str, Any]:
    if not isinstance(tree, dict):
        raise InputError(f"{file}: not a configuration: it must hold keys such as run, data, model")
    known = _settings(Experiment)
    for key, value in tree.items():
        require(key in known, f"{file}: unknown key {key!r}: choose from {', '.join(known)}")
        is_section = key not in _SCALARS
        require(
            not is_section or isinstance(value, dict), f"{file}: {key} is {value!r}: it must be a section of settings"
        )
    for old, new in RENAMED.items():
        (section, old_key), (_, new_key) = old.split("."), new.split(".")
        inside = tree.get(section, {})
        if old_key in inside:
            require(new_key not in inside, f"{file}: {old} and {new} are one setting: leave {old} out")
            inside[new_key] = inside.pop(old_key)
    return tree


def _with_new_name(argument: str) -> str:
    """Returns a command-line argument, `--section.key` or `--section.key=value`, with the key's spelling of today."""
    flag, equals, value = argument.partition("=")
    name = RENAMED.get(flag.removeprefix("--")) if flag.startswith("--") else None
    return f"--{name}{equals}{value}" if name else argument


@dataclasses.dataclass(frozen=True)
class _Choice:
    """Finds the dataclass that a section's own setting names, before the section is parsed.

    So a typo is answered with the settings of that one dataclass, and never with those of all that could be chosen.
    """

    file: str | Path
    tree: dict[str, Any]  # of the file
    overrides: Sequence[str]

    def __call__(
        self, section: str, key: str, choices: Mapping[str, type], default: str, advice: str | None = None
    ) -> type:
        """Returns the one of `choices` that `section.key` names, after a check of the names of the section's settings.

        Args:
            section: the name of the section, with dots.
            key: of the setting that chooses.
            choices: the dataclasses by name.
            default: the name where none is given.
            advice: ends the line on a name that is none of them.
        """
        in_file = self._section(section)
        default = in_file.get(key, default)
        name, given = self.arguments(section, key, default)
        if not isinstance(name, str) or name not in choices:
            names = ", ".join(choices)
            raise InputError(f"{section}.{key} is {name!r}: choose {names}{f'; {advice}' if advice else ''}")
        if name != default and in_file.keys() - {key}:
            raise InputError(
                f"{section}.{key} is {name!r} on the command line, but the settings in {self.file} are for {default!r};"
                f" give a --config with {section}.{key}: {name}"
            )
        known = _settings(choices[name])
        for where, settings in ((self.file, in_file), ("command line", given)):
            for each in settings:
                line = f"{where}: {section}.{each}: {name} has no such setting; choose from {', '.join(known)}"
                require(each in known, line)
        return choices[name]

    def arguments(self, section: str, key: str, default: Any) -> tuple[Any, list[str]]:
        """Returns what the command line says `section.key` is, or the default, and the settings it has of the section."""
        name, given = default, []
        for i, argument in enumerate(self.overrides):
            flag, equals, value = argument.partition("=")
            is_section = f"--{section}.".startswith(f"{flag}.")
            require(not is_section, f"command line: {flag} is a section: give its settings, as {flag}.KEY value")
            if flag == f"--{section}.{key}":
                name = value if equals else "".join(self.overrides[i + 1 : i + 2])
            if flag.startswith(f"--{section}."):
                given.append(flag.split(".")[section.count(".") + 1])
        return name, given

    def _section(self, section: str) -> dict[str, Any]:
        """Returns the file's settings in a section, which may lie inside another one."""
        outer, _, last = section.rpartition(".")
        inside = (self._section(outer) if outer else self.tree).get(last, {})
        require(isinstance(inside, dict), f"{self.file}: {section} is {inside!r}: it must be a section of settings")
        return inside


def _require_known_inside(
    where: str | Path, name: str, section: type, paths: Iterable[Sequence[Any]], chosen: Collection[str]
) -> None:
    """Raises InputError for a setting that a section, or one inside it, does not have.

    Args:
        where: what the line begins with: the file, or "command line".
        name: of the section, with dots.
        section: its settings.
        paths: the dotted keys that are given, divided at their dots; those of other sections are passed over.
        chosen: the names of the sections that are checked by themselves, since what they hold is chosen by one of their settings.
    """
    top = name.split(".")
    for path in paths:
        at, kind = name, section
        inside = path[len(top) :] if path[: len(top)] == top else []
        for i, each in enumerate(inside, 1):
            known = _settings(kind)
            line = f"{at}.{each}: {at.rpartition('.')[2]} has no such setting; choose from {', '.join(known)}"
            require(each in known, f"{where}: {line}")
            at = f"{at}.{each}"
            hint = typing.get_type_hints(kind)[each]
            kinds = typing.get_args(hint) or (hint,)
            inner = [one for one in kinds if dataclasses.is_dataclass(one)]
            if at in chosen or any(one is dict or typing.get_origin(one) is dict for one in (hint, *kinds)):
                break
            if not inner:
                whole = ".".join(map(str, path))
                require(i == len(inside), f"{where}: {whole}: {at} is one setting, and no section of settings")
                break
            kind = typing.cast(type, inner[0])


def _require_sections(file: str | Path, name: str, section: type, tree: Any) -> None:
    """Raises InputError where a file has something else, such as null, for a section inside the section of that name.

    Args:
        file: named in the error.
        name: of the section, with dots.
        section: its settings.
        tree: of the whole file.
    """
    inside = tree
    for key in name.split("."):
        inside = inside.get(key, {})
    for each, hint in typing.get_type_hints(section).items():
        if each in inside and dataclasses.is_dataclass(hint):
            line = f"{file}: {name}.{each} is {inside[each]!r}: it must be a section of settings"
            require(isinstance(inside[each], dict), line)
            _require_sections(file, f"{name}.{each}", typing.cast(type, hint), tree)


def _paths(tree: Mapping[Any, Any]) -> Iterator[list[Any]]:
    """Returns the path of each value in nested mappings, whose keys a file may give as numbers, too."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from ([key, *path] for path in _paths(value))
        yield [key]


def _settings(section: type) -> list[str]:
    return [each.name for each in dataclasses.fields(section)]
