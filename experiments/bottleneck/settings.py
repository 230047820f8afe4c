"""The settings of a study file, checked. Their defaults are those of Utsunomiya 2025 (sections 3.1 to 3.3)."""

import contextlib
import dataclasses
import math
import typing
from dataclasses import dataclass, field
from typing import Any

from esnlm.errors import InputError
from esnlm.readout.scaling import PARAMETRIZATIONS
from experiments.bottleneck.images import ImageSettings
from experiments.bottleneck.network import FORMS


@dataclass(frozen=True)
class Case:
    """Networks of hidden widths n, m, n, m, n that grow together: m = factor * n ** power."""

    parametrization: str  # ntp, standard, mup, spectral or dynamic
    factor: float
    power: float
    exponent: float = 0.5  # q of "dynamic" (eq. 2.82 to 2.85), in [0, 1/2]; 0 is NTP
    kink: bool = True  # Spectral's sigma_1 with its min(1, sqrt(n_1 / n_0)) (eq. 3.2); false: without it, 1 / sqrt(n_0)
    form: str = "rates"  # a rate a layer (section 2.5); "gains": g_l and one rate (section 2.4)
    biases: bool = False  # sqrt(n_{l-1}) b_l in each layer (eq. 2.2)
    claim: str = ""  # what the thesis says of it, to stand beside what is measured

    @property
    def name(self) -> str:
        exponent = "" if self.exponent == 0.5 else f", q = {self.exponent:g}"
        kink = "" if self.kink else ", sigma_1 = 1/sqrt(n_0)"
        form = ("" if self.form == "rates" else ", g_l") + (", biases" if self.biases else "")
        return f"{self.parametrization}, m = {self.factor:g} n^{self.power:g}{exponent}{kink}{form}"

    def narrow(self, n: int) -> int:
        """Returns m, the width of the narrow layers, where the wide ones have n units."""
        return round(self.factor * n**self.power)


@dataclass(frozen=True)
class Widths:
    """The widths n, evenly spaced on a logarithmic axis."""

    first: int = 1000
    last: int = 10_000
    count: int = 10


@dataclass(frozen=True)
class OneStepSettings:
    """Alignment and the coordinate check: one step of gradient descent from many initial weights, at each width."""

    kind: str
    cases: list[Case]
    classes: list[str] = field(default_factory=lambda: ["airplane", "automobile"])
    widths: Widths = field(default_factory=Widths)
    seeds: int = 30
    learning_rate: float = 0.1  # eta
    images: ImageSettings = field(default_factory=ImageSettings)
    note: str = ""  # stands in the report


@dataclass(frozen=True)
class CurvesSettings:
    """Training curves: losses of training and test images, epoch by epoch, for pairs of classes."""

    kind: str
    pairs: list[list[str]]
    parametrizations: list[str]
    n: int = 10_000
    narrow: int = 500  # m
    epochs: int = 100
    batch_size: int = 64
    learning_rate: float = 0.1  # eta
    momentum: float = 0.9
    form: str = "rates"  # a rate a layer (section 2.5); "gains": g_l and one rate (section 2.4)
    biases: bool = False  # sqrt(n_{l-1}) b_l in each layer (eq. 2.2)
    seeds: int = 100
    images: ImageSettings = field(default_factory=ImageSettings)
    note: str = ""  # stands in the report


KINDS = {
    "alignment": OneStepSettings,
    "coordinate_check": OneStepSettings,
    "exponents": OneStepSettings,
    "training_curves": CurvesSettings,
}


def parse(tree: dict[str, Any], source: str) -> OneStepSettings | CurvesSettings:
    """Returns the settings of a study file's tree, whose `kind` is one of KINDS.

    Raises:
        InputError: a key is unknown or missing, or a value has the wrong type or range; names file and key.
    """
    settings = _build(KINDS[tree["kind"]], tree, f"{source}: ")
    if isinstance(settings, CurvesSettings):
        _check_curves(settings, source)
    else:
        _check_one_step(settings, source)
    return settings


def _build(kind: type, tree: Any, where: str) -> Any:
    """Returns the dataclass `kind` with the values of a tree."""
    fields = {each.name: each for each in dataclasses.fields(kind)}
    if not isinstance(tree, dict):
        raise InputError(f"{where.removesuffix(': ')} is {tree!r}: it must hold {', '.join(fields)}")
    for key in tree:
        if key not in fields:
            raise InputError(f"{where}unknown key {key!r}: choose from {', '.join(fields)}")
    for name, each in fields.items():
        optional = each.default is not dataclasses.MISSING or each.default_factory is not dataclasses.MISSING
        if not (optional or name in tree):
            raise InputError(f"{where}{name} is missing")
    hints = typing.get_type_hints(kind)
    return kind(**{key: _convert(hints[key], value, f"{where}{key}") for key, value in tree.items()})


def _convert(hint: Any, value: Any, where: str) -> Any:
    """Returns a value of a YAML file as the type that a field asks for."""
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _build(hint, value, f"{where}: ")
    if typing.get_origin(hint) is list:
        if not isinstance(value, list):
            raise InputError(f"{where} is {value!r}: it must be a list")
        return [_convert(typing.get_args(hint)[0], each, f"{where} {i}") for i, each in enumerate(value, 1)]
    if hint is float and not isinstance(value, bool):
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            value = float(value)  # also of a text: YAML reads 1e-3 as one
        if not (not isinstance(value, float) or math.isfinite(value)):
            raise InputError(f"{where} is {value}: it must be finite")
        if isinstance(value, float):
            return value
    kinds = typing.get_args(hint) or (hint,)
    right = isinstance(value, kinds) and not (isinstance(value, bool) and bool not in kinds)
    if not right:
        raise InputError(f"{where} is {value!r}: it must be {getattr(hint, '__name__', hint)}")
    return value


def _check_curves(settings: CurvesSettings, source: str) -> None:
    _require_positive(settings, source, "n", "narrow", "epochs", "batch_size", "learning_rate", "seeds")
    if not (settings.images.test > 0):
        raise InputError(f"{source}: images.test is {settings.images.test}: it must be above 0")
    if not (0 <= settings.momentum < 1):
        raise InputError(f"{source}: momentum is {settings.momentum}: it must be in [0, 1)")
    if not settings.pairs:
        raise InputError(f"{source}: pairs is empty: give two classes or more such pairs")
    _check_form(settings.form, source)
    known = ", ".join(PARAMETRIZATIONS)
    if not settings.parametrizations:
        raise InputError(f"{source}: parametrizations is empty: give some of {known}")
    for name in settings.parametrizations:
        if name not in PARAMETRIZATIONS:
            raise InputError(f"{source}: parametrizations has {name!r}: choose from {known}")


def _check_one_step(settings: OneStepSettings, source: str) -> None:
    _require_positive(settings, source, "seeds", "learning_rate")
    _require_positive(settings.widths, f"{source}: widths", "first")
    w = settings.widths
    rising = w.count >= 3 and w.last - w.first >= w.count
    if not rising:
        raise InputError(f"{source}: widths must rise, through at least 3, to fit a slope and its error")
    if not settings.cases:
        raise InputError(f"{source}: cases is empty: give at least one")
    names = [case.name for case in settings.cases]
    for i, case in enumerate(settings.cases, 1):
        where, known = f"{source}: cases {i}", case.parametrization in PARAMETRIZATIONS
        message = f"parametrization is {case.parametrization!r}: choose from {', '.join(PARAMETRIZATIONS)}"
        if not known:
            raise InputError(f"{where}: {message}")
        q, kind = case.exponent, case.parametrization
        if not (0 <= q <= 0.5):
            raise InputError(f"{where}: exponent is {q:g}: it must be in [0, 1/2]")
        if not (q == 0.5 or kind == "dynamic"):
            raise InputError(f"{where}: exponent is {q:g}: only dynamic has one, and this is {kind}")
        if not (case.kink or kind == "spectral"):
            raise InputError(f"{where}: kink is false: only spectral has one, and this is {kind}")
        _check_form(case.form, where)
        try:
            first, last = case.narrow(w.first), case.narrow(w.last)
        except OverflowError:
            raise InputError(f"{where}: m is too large for a number: it must be between 1 and n") from None
        fits = 1 <= first <= w.first and 1 <= last <= w.last
        if not fits:
            raise InputError(f"{where}: m is {first} to {last}: it must be between 1 and n")
        if names.count(case.name) != 1:
            raise InputError(f"{where}: {case.name} is there twice: leave one out")


def _check_form(form: str, where: str) -> None:
    if form not in FORMS:
        raise InputError(f"{where}: form is {form!r}: choose from {', '.join(FORMS)}")


def _require_positive(settings: Any, where: str, *names: str) -> None:
    for name in names:
        if not (getattr(settings, name) > 0):
            raise InputError(f"{where}: {name} is {getattr(settings, name)}: it must be above 0")
