"""Writes docs/settings.md: every setting of a configuration, as the code has it.

python docs/write_settings.py > docs/settings.md

A setting is a field of a dataclass. Its meaning is the comment beside the field, or above it. A symbol of a paper stands there
in brackets, [rho_rec], and a paper in parentheses, (Ueda et al. 2025b). A symbol without a paper is of the paper that the
class names in its docstring. What a setting may be is asked of the check of the configuration itself, which is given wrong
values.
"""

import dataclasses
import inspect
import re
import sys
import types
import typing
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from esnlm.compute import ComputeConfig
from esnlm.config import TRAINING, Experiment, ParentConfig
from esnlm.data.sources import SOURCES
from esnlm.errors import InputError
from esnlm.models.deep_readout import DeepReadoutConfig
from esnlm.models.echo_state import EchoStateConfig
from esnlm.models.lstm import LstmConfig
from esnlm.models.registry import MODELS
from esnlm.readout.linear import ReadoutConfig
from esnlm.reservoir.topology import TOPOLOGIES
from esnlm.reservoir.weights import ContinuousTime, ReservoirConfig

HEAD = """# Every setting

A configuration is a YAML file of these settings, in sections. `--section.key value` on the command line wins over the file:
`--model.reservoir.state_size 2048`. What is left out has the default.

Some sections are of several kinds, with settings of their own: `data.kind` ({data}), `model.family` ({model}),
`model.reservoir.topology.kind` ({topology}) and `training.kind` ({training}). The first one is the default. Papers are cited as in the
[references](references.md); a symbol in brackets is the paper's. This page is made by
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
# Those that stand in a module of esnlm, and none that a program made of a function.
OWN_TOPOLOGIES = {
    kind: of for kind, of in sorted(TOPOLOGIES.items()) if hasattr(sys.modules[of.__module__], of.__name__)
}
PAPER = rf"\(({CITED})\)"  # in the comment beside a setting
WRONG = {int: (-1, 0, 3, 10**12), float: (-1.0, 0.0, 2.0, 10.0**12), str: ("?", ""), tuple: ((-1,),)}
TYPES = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "true or false",
    tuple: "a list",
    dict: "names with numbers",
}


class Section(NamedTuple):
    """Settings that stand together, and a configuration that has them."""

    title: str
    key: str  # of the section, with a dot at its end, or empty
    of: type  # the dataclass
    example: Experiment
    only: tuple[str, ...] | None = None  # the settings to show; None: all that are no sections


def sections() -> Iterator[Section]:
    """Yields every section of a configuration, once for each kind that it can be."""
    standard = Experiment()
    yield Section("The run", "", Experiment, standard, ("run", "seed", "tracking"))
    for kind, source in SOURCES.items():
        example = replace(standard, data=source(**({"train": "stores/train"} if kind == "store" else {})))
        yield Section(f"data, kind: {kind}", "data.", source, example)
    for family, model in MODELS.items():
        example = replace(standard, model=model())
        yield Section(f"model, family: {family}", "model.", model, example)
        if model is EchoStateConfig:
            yield Section(
                "model.reservoir, of the families esn, jaeger and deep_readout",
                "model.reservoir.",
                ReservoirConfig,
                example,
            )
            reservoir = ReservoirConfig(continuous=ContinuousTime())
            continuous = replace(standard, model=EchoStateConfig(reservoir=reservoir))
            yield Section("model.reservoir.continuous", "model.reservoir.continuous.", ContinuousTime, continuous)
            for kind, topology in OWN_TOPOLOGIES.items():
                topical = replace(standard, model=EchoStateConfig(reservoir=ReservoirConfig(topology=topology(kind))))
                title = f"model.reservoir.topology, kind: {kind}"
                yield Section(title, "model.reservoir.topology.", topology, topical)
            yield Section("model.readout, of the family esn", "model.readout.", ReadoutConfig, example)
        if model in (LstmConfig, DeepReadoutConfig):
            yield from inner_sections(model, "model.", family, example)
    for kind, training in TRAINING.items():
        full_rank = replace(standard, model=EchoStateConfig(readout=ReadoutConfig(rank=None)))
        example = replace(standard if kind == "adamw" else full_rank, training=training())
        yield Section(f"training, kind: {kind}", "training.", training, example)
    yield Section("compute", "compute.", ComputeConfig, standard)
    going_on = replace(standard, parent=ParentConfig(run="runs/first"))
    yield Section("parent, the run that this one goes on from", "parent.", ParentConfig, going_on)


def inner_sections(of: type, key: str, family: str, example: Experiment) -> Iterator[Section]:
    """Yields the sections within a section of a family, but for the reservoir, which others have too."""
    for name, hint in typing.get_type_hints(of).items():
        if is_section(hint) and hint is not ReservoirConfig:
            yield Section(f"{key}{name}, of the family {family}", f"{key}{name}.", hint, example)
            yield from inner_sections(hint, f"{key}{name}.", family, example)


def page() -> str:
    """Returns the page."""
    kinds: dict[str, dict] = {"data": SOURCES, "model": MODELS, "topology": OWN_TOPOLOGIES, "training": TRAINING}
    first = {"data": "grammar", "model": "esn", "topology": "erdos_renyi", "training": "adamw"}
    names = {of: ", ".join(sorted(registry, key=lambda name: name != first[of])) for of, registry in kinds.items()}
    parts = [HEAD.format(**names)]
    for section in sections():
        text = " ".join((inspect.getdoc(section.of) or "").split("\n\n")[0].split())
        parts.append(f"## {section.title}\n\n{text}\n")
        rows = list(settings(section))
        if rows:
            head = "| setting | default | may be | meaning | paper |\n| --- | --- | --- | --- | --- |"
            parts.append("\n".join([head, *rows]) + "\n")
        else:
            parts.append("It has no settings of its own.\n")
    return "\n".join(parts)


def settings(section: Section) -> Iterator[str]:
    """Yields a row for each setting of a section."""
    hints = typing.get_type_hints(section.of)
    comments = comments_of(section.of)
    of_class = re.search(f"({CITED})", " ".join((inspect.getdoc(section.of) or "").split()))
    for field in dataclasses.fields(section.of):
        hint = hints[field.name]
        chosen = field.name in ("kind", "family")
        if chosen or is_section(hint) or (section.only is not None and field.name not in section.only):
            continue
        comment = comments[field.name]
        symbol, paper = re.search(r" \[([^\]]+)\]$", comment), re.search(PAPER, comment)
        meaning = re.sub(PAPER, "", re.sub(r" \[[^\]]+\]$", "", comment)).strip()
        meaning = re.sub(r"^[A-Z](?=[a-z ])", lambda first: first[0].lower(), re.sub(r"\s+([;,.])", r"\1", meaning))
        meaning += f" [{symbol[1]}]" if symbol else ""
        source = paper or (of_class if symbol else None)
        cells = [f"`{section.key}{field.name}`", shown(default(field)), allowed(section, field.name, hint), meaning]
        yield "| " + " | ".join([*cells, source[1] if source else ""]) + " |"


def comments_of(kind: type) -> dict[str, str]:
    """Returns the comment of each field: the lines of comments above it, and what stands behind it on its line.

    Raises:
        ValueError: a field has none.
    """
    found: dict[str, str] = {}
    for each in filter(dataclasses.is_dataclass, reversed(kind.__mro__)):
        above: list[str] = []
        for line in inspect.getsource(each).splitlines():
            beside = re.match(r"    (\w+): [^#]*?(?:  # (.*))?$", line)
            if beside and beside[1] in inspect.get_annotations(each):
                found[beside[1]] = " ".join([*above, beside[2] or ""]).strip()
            above = [*above, line.removeprefix("    # ").rstrip(".")] if line.startswith("    # ") else []
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        if not found.get(field.name) and field.name not in ("kind", "family") and not is_section(hints[field.name]):
            raise ValueError(f"{kind.__module__}.{kind.__name__}.{field.name}: say beside it, in a comment, what it is")
    return found


def is_section(hint: Any) -> bool:
    """Says whether a setting is a section of its own."""
    kinds = [kind for kind in typing.get_args(hint) or (hint,) if kind is not type(None)]
    return any(dataclasses.is_dataclass(kind) or inspect.isabstract(kind) for kind in kinds if isinstance(kind, type))


def default(field: dataclasses.Field) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def shown(value: Any) -> str:
    """Returns a default as YAML has it."""
    if value is None:
        return "`null`"
    if value == "":
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{list(value) if isinstance(value, tuple) else value}`"


def allowed(section: Section, name: str, hint: Any) -> str:
    """Returns what a setting may be: its type, and what the check of a configuration says to wrong values."""
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    kind = next(each for each in kinds if each is not type(None))
    kind = typing.get_origin(kind) or kind
    rules: list[str] = []
    for value in WRONG.get(kind, ()) if str not in typing.get_args(hint) else ():
        try:
            changed(section.example, f"{section.key}{name}", value).check()
        except InputError as error:
            wrong = re.match(rf"{re.escape(section.key + name)} (?:is [^:]*: (.*)|(must .*))$", str(error))
            rule = re.split(r"; |, (?:since|or null) ", wrong[1] or wrong[2])[0] if wrong else ""
            rule = re.sub(r"^(it )?must (all |not )?(be |hold )?|^choose |( = |, )[\d,]+$| must hold$", "", rule)
            rule = re.sub(r"^negative", "not negative", re.sub(r"^divide ", "a divisor of ", rule))
            rule = re.sub(r"^name .*", TYPES[str], rule)
            if rule and rule not in rules:
                rules.append(rule)
    null = " or null" * (len(kinds) > 1)
    listed = ", ".join(rules)
    return listed + null if kind is str and listed else ", ".join([TYPES[kind] + null, *rules])


def changed(section: Any, key: str, value: Any) -> Any:
    """Returns a section with one of its settings, of a dotted key, changed."""
    name, _, rest = key.partition(".")
    return replace(section, **{name: changed(getattr(section, name), rest, value) if rest else value})


if __name__ == "__main__":
    print(page(), end="")
