"""Study files of the bottleneck experiments, checked. The defaults are the thesis's (sections 3.1 to 3.3)."""

import contextlib
import io
import re
from dataclasses import dataclass, field, fields

import jsonargparse

from esnlm.errors import InputError, require
from esnlm.readout.scaling import PARAMETRIZATIONS
from experiments.bottleneck.images import ImageSettings


@dataclass(frozen=True)
class Case:
    """Networks of hidden widths n, m, n, m, n that grow together: m = factor * n ** power."""

    parametrization: str  # ntp, standard, mup, spectral or dynamic
    factor: float
    power: float
    claim: str = ""  # the thesis's, to stand beside what is measured

    @property
    def name(self) -> str:
        return f"{self.parametrization}, m = {self.factor:g} n^{self.power:g}"

    def narrow(self, n: int) -> int:
        return round(self.factor * n**self.power)


@dataclass(frozen=True)
class Widths:
    """n, evenly spaced on a logarithmic axis."""

    first: int = 1000
    last: int = 10_000
    count: int = 10


@dataclass(frozen=True)
class OneStep:
    """Alignment, and the coordinate check: one step from each of many initialisations, at each width."""

    kind: str
    cases: list[Case]
    classes: list[str] = field(default_factory=lambda: ["airplane", "automobile"])
    widths: Widths = field(default_factory=Widths)
    seeds: int = 30
    learning_rate: float = 0.1  # eta
    images: ImageSettings = field(default_factory=ImageSettings)
    note: str = ""  # into the report


@dataclass(frozen=True)
class Curves:
    """Losses of training and test images as training goes on, for pairs of classes."""

    kind: str
    pairs: list[list[str]]
    parametrizations: list[str]
    n: int = 10_000
    narrow: int = 500
    epochs: int = 100
    batch_size: int = 64
    learning_rate: float = 0.1  # eta
    momentum: float = 0.9
    seeds: int = 100
    images: ImageSettings = field(default_factory=ImageSettings)
    note: str = ""  # into the report


KINDS = {"alignment": OneStep, "coordinate_check": OneStep, "training_curves": Curves}


def parse(tree: dict, source: str) -> OneStep | Curves:
    """The settings of a study file's tree.

    Raises:
        InputError: a key is unknown or missing, or a value has the wrong type or range; names file and key.
    """
    cases = tree.get("cases")
    settings = _parse(KINDS[tree["kind"]], tree | ({"cases": []} if isinstance(cases, list) else {}), f"{source}: ")
    if isinstance(settings, Curves):
        _positive(settings, source, "n", "narrow", "epochs", "batch_size", "learning_rate", "seeds")
        require(settings.images.test > 0, f"{source}: images.test is {settings.images.test}: it must be above 0")
        require(0 <= settings.momentum < 1, f"{source}: momentum is {settings.momentum}: it must be in [0, 1)")
        require(bool(settings.pairs), f"{source}: pairs is empty: give two classes or more such pairs")
        require(
            bool(settings.parametrizations),
            f"{source}: parametrizations is empty: give some of {', '.join(PARAMETRIZATIONS)}",
        )
        for name in settings.parametrizations:
            require(
                name in PARAMETRIZATIONS,
                f"{source}: parametrizations has {name!r}: choose from {', '.join(PARAMETRIZATIONS)}",
            )
        return settings
    settings.cases.extend(_parse(Case, case, f"{source}: case {i}: ") for i, case in enumerate(cases, 1))
    _positive(settings, source, "seeds", "learning_rate")
    _positive(settings.widths, f"{source}: widths", "first")
    w = settings.widths
    require(
        w.count >= 3 and w.last - w.first >= w.count,
        f"{source}: widths must rise, through at least 3, to fit a slope and its error",
    )
    require(bool(settings.cases), f"{source}: cases is empty: give at least one")
    names = [case.name for case in settings.cases]
    for i, case in enumerate(settings.cases, 1):
        known = case.parametrization in PARAMETRIZATIONS
        require(
            known,
            f"{source}: case {i}: parametrization is {case.parametrization!r}: choose from {', '.join(PARAMETRIZATIONS)}",
        )
        fits = 1 <= case.narrow(w.first) <= w.first and 1 <= case.narrow(w.last) <= w.last
        require(
            fits,
            f"{source}: case {i}: m is {case.narrow(w.first)} to {case.narrow(w.last)}: it must be between 1 and n",
        )
        require(names.count(case.name) == 1, f"{source}: case {i}: {case.name} is there twice: leave one out")
    return settings


def _parse(kind: type, tree, where: str):
    require(isinstance(tree, dict), f"{where}{tree!r} must hold {', '.join(each.name for each in fields(kind))}")
    parser = jsonargparse.ArgumentParser(exit_on_error=False, add_help=False)
    parser.add_class_arguments(kind)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            return kind(**vars(parser.instantiate(parser.parse_object(tree))))
    except (jsonargparse.ArgumentError, TypeError, ValueError) as error:
        message = re.sub(r"\s+", " ", str(error)).strip()
        message = re.sub(
            r'Parser key "([^"]+)": Expected a <class \'(\w+)\'>. Got value: (.*)', r"\1 is \3: it must be \2", message
        )
        raise InputError(f"{where}{message}") from None


def _positive(settings, where: str, *names: str) -> None:
    for name in names:
        require(getattr(settings, name) > 0, f"{where}: {name} is {getattr(settings, name)}: it must be above 0")
