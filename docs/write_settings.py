"""Writes docs/settings.md: every setting of a configuration, as the code has it.

python docs/write_settings.py > docs/settings.md

A setting is a field of a dataclass. The comment beside or above the field gives its meaning. A
paper's symbol stands there in brackets, [rho_rec], and the paper in parentheses, (Ueda et al.
2025b). A symbol without a paper belongs to the paper named in the docstring of the class. The
annotation gives the values that a setting may have.
"""

import dataclasses
import inspect
import re
import sys
import types
import typing
from collections.abc import Iterator
from typing import Any, NamedTuple

from pydantic.fields import FieldInfo

from esnlm.base.settings import choice_of, find_class, section_of
from esnlm.data.sources import SOURCES
from esnlm.models.base import MODELS
from esnlm.reservoir.topology import TOPOLOGIES
from esnlm.reservoir.weights import ReservoirConfig
from esnlm.training.config import TRAINING, Experiment

HEAD = """# Every setting

A configuration is a YAML file of these settings, in sections. `--section.key value` on the command line wins over the file:
`--model.reservoir.state_size 2048`. A setting left out has its default.

Some sections come in several kinds, each with its own settings: `data.kind` ({data}), `model.family` ({model}),
`model.reservoir.topology.kind` ({topology}) and `training.kind` ({training}). The first kind is the default. Papers are
cited as in the [references](references.md); a symbol in brackets is the paper's. This command writes the page:
`python docs/write_settings.py > docs/settings.md`.

    run: runs/mine
    seed: 1
    data: {{kind: store, train: stores/train, validation: stores/dev}}
    model:
      family: esn
      reservoir: {{state_size: 2048, topology: {{kind: small_world, degree: 16}}}}
      readout: {{rank: 256}}
    training: {{epochs: 2, learning_rate: 0.002}}
"""
CITED = r"[A-Z][\w-]+(?: and [A-Z][\w-]+| et al\.)? \d{4}[a-z]?"
PAPER = rf"\(({CITED})\)"  # in the comment beside a setting
# The topologies that are classes of a module of esnlm; a topology that a program makes of a
# function is not.
OWN_TOPOLOGIES = {
    kind: of
    for kind, of in sorted(TOPOLOGIES.items())
    if hasattr(sys.modules[of.__module__], of.__name__)
}
TYPES = {
    int: "an integer",
    float: "a number",
    str: "a string",
    bool: "true or false",
    dict: "names with integers",
}
BOUNDS = {"ge": "at least {}", "gt": "above {}", "le": "at most {}", "lt": "below {}"}


class Section(NamedTuple):
    """A section of settings."""

    title: str
    key: str  # of the section, with a dot at its end, or empty
    of: type  # the dataclass


def sections() -> Iterator[Section]:
    """Yields every section of a configuration, once for each of its kinds."""
    yield Section("The run", "", Experiment)
    for kind, source in SOURCES.items():
        yield Section(f"data, kind: {kind}", "data.", source)
    for family in MODELS:
        model = find_class(family, MODELS, "model.family")
        yield Section(f"model, family: {family}", "model.", model)
        if family == "esn":
            title = "model.reservoir, of the families esn, jaeger and deep_readout"
            yield Section(title, "model.reservoir.", ReservoirConfig)
            yield from inner_sections(ReservoirConfig, "model.reservoir.", "")
            for kind, topology in OWN_TOPOLOGIES.items():
                yield Section(
                    f"model.reservoir.topology, kind: {kind}", "model.reservoir.topology.", topology
                )
        yield from inner_sections(model, "model.", f", of the family {family}")
    for kind, training in TRAINING.items():
        yield Section(f"training, kind: {kind}", "training.", training)
    yield from inner_sections(Experiment, "", "")


def inner_sections(of: type, key: str, where: str) -> Iterator[Section]:
    """Yields the sections within a section, except those with a kind and the reservoir, which
    several families have."""
    for name, hint in typing.get_type_hints(of, include_extras=True).items():
        inner = section_of(hint)
        if inner is not None and choice_of(hint) is None and inner is not ReservoirConfig:
            yield Section(f"{key}{name}{where}", f"{key}{name}.", inner)
            yield from inner_sections(inner, f"{key}{name}.", where)


def page() -> str:
    """Returns the page."""
    kinds: dict[str, dict] = {
        "data": SOURCES,
        "model": MODELS,
        "topology": OWN_TOPOLOGIES,
        "training": TRAINING,
    }
    first = {"data": "grammar", "model": "esn", "topology": "erdos_renyi", "training": "gradient"}
    names = {
        of: ", ".join(sorted(registry, key=lambda name: name != first[of]))
        for of, registry in kinds.items()
    }
    parts = [HEAD.format(**names)]
    for section in sections():
        text = " ".join((inspect.getdoc(section.of) or "").split("\n\n")[0].split())
        parts.append(f"## {section.title}\n\n{text}\n")
        rows = list(settings(section))
        if rows:
            head = (
                "| setting | default | values | meaning | paper |\n| --- | --- | --- | --- | --- |"
            )
            parts.append("\n".join([head, *rows]) + "\n")
        else:
            parts.append("It has no settings of its own.\n")
    return "\n".join(parts)


def settings(section: Section) -> Iterator[str]:
    """Yields a row for each setting of a section."""
    hints = typing.get_type_hints(section.of, include_extras=True)
    comments = comments_of(section.of)
    of_class = re.search(f"({CITED})", " ".join((inspect.getdoc(section.of) or "").split()))
    for field in dataclasses.fields(section.of):
        hint = hints[field.name]
        if field.name in ("kind", "family") or is_section(hint):
            continue
        comment = comments[field.name]
        symbol, paper = re.search(r" \[([^\]]+)\]$", comment), re.search(PAPER, comment)
        meaning = re.sub(PAPER, "", re.sub(r" \[[^\]]+\]$", "", comment)).strip()
        meaning = re.sub(
            r"^[A-Z](?=[a-z ])",
            lambda first: first[0].lower(),
            re.sub(r"\s+([;,.])", r"\1", meaning),
        )
        meaning += f" [{symbol[1]}]" if symbol else ""
        source = paper or (of_class if symbol else None)
        cells = [f"`{section.key}{field.name}`", shown(default(field)), allowed(hint), meaning]
        yield "| " + " | ".join([*cells, source[1] if source else ""]) + " |"


def comments_of(kind: type) -> dict[str, str]:
    """Returns the comment of each field: the comment lines above it, and the comment at the end of
    its line.

    Raises:
        ValueError: a field has no comment.
    """
    found: dict[str, str] = {}
    for each in filter(dataclasses.is_dataclass, reversed(kind.__mro__)):
        above: list[str] = []
        for line in inspect.getsource(each).splitlines():
            beside = re.match(r"    (\w+): [^#]*?(?:  # (.*))?$", line)
            if beside and beside[1] in inspect.get_annotations(each):
                found[beside[1]] = " ".join([*above, beside[2] or ""]).strip().removesuffix(".")
            above = [*above, line.removeprefix("    # ")] if line.startswith("    # ") else []
    hints = typing.get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        if (
            not found.get(field.name)
            and field.name not in ("kind", "family")
            and not is_section(hints[field.name])
        ):
            raise ValueError(
                f"{kind.__module__}.{kind.__name__}.{field.name}: describe the setting in a comment"
            )
    return found


def is_section(hint: Any) -> bool:
    """Returns whether a setting is a section of its own."""
    return section_of(hint) is not None or choice_of(hint) is not None


def default(field: dataclasses.Field) -> Any:
    """Returns the default of a setting; pydantic wraps some in an object of its own."""
    value = (
        field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    )
    return value.get_default() if isinstance(value, FieldInfo) else value


def shown(value: Any) -> str:
    """Returns a default as YAML has it."""
    if value is None:
        return "`null`"
    if value == "":
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{list(value) if isinstance(value, tuple) else value}`"


def allowed(hint: Any) -> str:
    """Returns the values that a setting may have: its type and bounds, or its choices."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        bounds = [
            bound
            for each in hint.__metadata__
            if isinstance(each, FieldInfo)
            for bound in each.metadata
        ]
        found = [
            rule.format(f"{value:g}")
            for bound in bounds
            for name, rule in BOUNDS.items()
            if (value := getattr(bound, name, None)) is not None and abs(value) < 2**53
        ]
        return ", ".join([allowed(inner[0]), " and ".join(found)] if found else [allowed(inner[0])])
    if origin is typing.Literal:
        return ", ".join(map(str, inner))
    if origin in (typing.Union, types.UnionType):
        known = [allowed(each) for each in inner if each is not type(None)]
        return " or ".join([*known, *(["null"] if type(None) in inner else [])])
    if origin is tuple:
        return f"a list; each: {allowed(inner[0])}"
    return TYPES[origin or hint]


if __name__ == "__main__":
    print(page(), end="")
