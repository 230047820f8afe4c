"""Settings: frozen dataclasses with checked types and ranges, made in Python or from YAML."""

import dataclasses
import re
import sys
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Any, NamedTuple, TypeVar, dataclass_transform

import pydantic.dataclasses
import yaml
from pydantic import ConfigDict, Field, ValidationError

from esnlm.base.errors import InputError

Natural = Annotated[int, Field(ge=0, lt=2**63)]
Count = Annotated[int, Field(ge=1, lt=2**63)]
NonNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Rate = Annotated[float, Field(ge=0, lt=1)]  # of dropout, or a decay
Fraction = Annotated[float, Field(ge=0, le=1)]

Section = TypeVar("Section")
RULES = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, arbitrary_types_allowed=True)
SCIENTIFIC = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+")  # YAML 1.1 reads 1e-3 as text


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def settings(section: type[Section]) -> type[Section]:
    """Makes a class a frozen dataclass with checked fields.

    Rules between fields belong into `__post_init__`. It raises ValueError, beginning with a field's
    name.
    """
    decorate = pydantic.dataclasses.dataclass(frozen=True, config=RULES)
    return decorate(section)  # type: ignore[return-value]


class Choice(NamedTuple):
    """Marks a field whose setting `key` names its class; see `find_class`.

    Example:
        topology: Annotated[Topology, Choice(TOPOLOGIES, "kind", "ring")] = Ring()
    """

    classes: Mapping[str, str | type]
    key: str
    default: str


def find_class(name: str, classes: Mapping[str, Any], setting: str) -> Any:
    """Returns the class of a name in `classes`, or of a name "module:Class".

    A module is imported from Python's path, or else from the working directory. The values of
    `classes` are classes, or names of this form, so that only the module in use is imported.

    Raises:
        InputError: there is no such name, module or class. The message begins with `setting`.
    """
    target = classes.get(str(name), str(name))
    if not isinstance(target, str):
        return target
    if ":" not in target:
        raise InputError(f"{setting} is {spell(name)}: choose from {', '.join(classes)}")
    folder = str(Path.cwd())
    if str(name) not in classes and folder not in sys.path:
        sys.path.append(folder)
    try:
        return resolve_name(target)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(
            f"{setting} is {spell(name)}: {error}; modules are searched for on Python's path and in"
            " the working directory"
        ) from None


class CommandLine(str):
    """A value from the command line, not yet parsed."""


def build(
    section: type[Section], tree: Mapping[str, Any], path: str = "", where: str = ""
) -> Section:
    """Returns a section of settings from nested mappings of plain values. Settings left out have
    their defaults.

    Args:
        section: a class made by `settings`.
        tree: its settings by name.
        path: path of the section, with a dot at its end, to name settings in errors.
        where: source of the settings, such as a file, to begin an error with.

    Raises:
        InputError: a name is unknown, or a value has the wrong type or range.

    Example:
        build(GatedMlpConfig, {"blocks": 2}, "model.readout.gated_mlp.", "run.yaml")
    """
    hints = typing.get_type_hints(section, include_extras=True)
    known = [each.name for each in dataclasses.fields(section)]  # type: ignore[arg-type]
    values = {}
    for name, value in tree.items():
        source = "command line" if isinstance(value, CommandLine) else where
        if name not in known:
            raise InputError(
                f"{_begin(source)}{path}{name}: no such setting; choose from {', '.join(known)}"
            )
        values[name] = _value(hints[name], value, f"{path}{name}", where)
    try:
        return section(**values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    names = [str(each) for each in first["loc"]]
    of_command = any(isinstance(tree.get(name), CommandLine) for name in names[:1] or tree)
    begin = _begin("command line" if of_command else where)
    if first["type"] == "value_error":
        raise InputError(f"{begin}{path}{first['ctx']['error']}")
    rule = first["msg"].replace("Input should be", "it must be")
    raise InputError(f"{begin}{path}{'.'.join(names)} is {spell(first['input'])}: {rule}")


def read_tree(file: Path, advice: str) -> Any:
    """Returns the value of a YAML file. Raises InputError, with `advice` for a missing file."""
    try:
        return yaml.load(file.read_bytes().decode(), _Loader)
    except OSError as error:
        raise InputError(f"{file}: {error.strerror or error}; {advice}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: not a YAML file: {' '.join(str(error).split())}") from None


def spell(value: Any) -> str:
    """Returns a value as in a configuration file."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def section_of(hint: Any) -> Any:
    """Returns the dataclass in a field of this type; None if the field holds a plain value."""
    return next((each for each in _alternatives(hint) if dataclasses.is_dataclass(each)), None)


def choice_of(hint: Any) -> Choice | None:
    """Returns the Choice of a field of this type; None if its class is fixed."""
    return next(
        (each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Choice)), None
    )


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Rejects duplicate keys: YAML would silently keep the last, such as of two learning rates."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = set()
        for key, _ in node.value:
            if key.value in keys:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key.value} stands twice", key.start_mark
                )
            keys.add(key.value)
        return super().construct_mapping(node, deep)


def _begin(where: str) -> str:
    return f"{where}: " if where else ""


def _value(hint: Any, value: Any, name: str, where: str) -> Any:
    """Returns a value for a field: a section, or a plain value for pydantic to check."""
    choice, section = choice_of(hint), section_of(hint)
    if choice is None and section is None:
        return _from_text(hint, value) if isinstance(value, CommandLine) else _plain(hint, value)
    if value is None and type(None) in _alternatives(hint):
        return None
    if dataclasses.is_dataclass(value):
        return value
    begin = _begin("command line" if isinstance(value, CommandLine) else where)
    if isinstance(value, CommandLine):
        value = yaml.safe_load(value)
    if not isinstance(value, Mapping):
        raise InputError(
            f"{begin}{name} is {spell(value)}: it is a section; give its settings, as {name}.KEY"
        )
    if choice is not None:
        kind = value.get(choice.key, choice.default)
        begin = _begin("command line" if isinstance(kind, CommandLine) else where)
        section = find_class(kind, choice.classes, f"{begin}{name}.{choice.key}")
        bases = tuple(each for each in _alternatives(hint) if isinstance(each, type))
        is_kind = isinstance(section, type) and issubclass(section, bases)
        if not is_kind or not dataclasses.is_dataclass(section):
            raise InputError(
                f"{begin}{name}.{choice.key} is {spell(kind)}: it must be a"
                f" {' or '.join(each.__name__ for each in bases)} with the decorator `settings`"
            )
    return build(section, value, f"{name}.", where)


def _from_text(hint: Any, text: CommandLine) -> Any:
    """Parses a value from the command line: a string if the setting is one, otherwise YAML."""
    kinds = _alternatives(hint)
    if tuple not in kinds and (str in kinds or any(isinstance(each, str) for each in kinds)):
        return None if text == "null" and type(None) in kinds else str(text)
    try:
        return _plain(hint, yaml.safe_load(text))
    except yaml.YAMLError:
        return str(text)


def _plain(hint: Any, value: Any) -> Any:
    """Returns a value from a file with lists as tuples, and with numbers like 1e-3 as numbers."""
    if isinstance(value, list | tuple | range):
        return tuple(_plain(hint, each) for each in value)
    if isinstance(value, str) and float in _alternatives(hint) and SCIENTIFIC.fullmatch(value):
        return float(value)
    if hasattr(value, "tolist"):  # a number or an array of NumPy
        return _plain(hint, value.tolist())
    return value


def _alternatives(hint: Any) -> list[Any]:
    """Returns the types and literal values that a hint allows, including those inside tuples."""
    origin = typing.get_origin(hint)
    if origin is Annotated:
        return _alternatives(typing.get_args(hint)[0])
    if origin is typing.Literal:
        return list(typing.get_args(hint))
    if origin in (typing.Union, types.UnionType):
        return [each for one in typing.get_args(hint) for each in _alternatives(one)]
    if origin is tuple:
        return [
            tuple,
            *(
                each
                for one in typing.get_args(hint)
                if one is not ...
                for each in _alternatives(one)
            ),
        ]
    return [hint]
