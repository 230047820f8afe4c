"""The settings of a study file, checked. Their defaults are those of Utsunomiya 2025 (sections 3.1
to 3.3)."""

from dataclasses import field
from typing import Annotated, Any, Literal

from pydantic import Field

from esnlm.base.settings import Count, Positive, Rate, build, settings
from experiments.bottleneck.images import ImageSettings
from experiments.bottleneck.network import FORMS

Parametrization, Form = Literal["ntp", "standard", "mup", "spectral", "dynamic"], Literal[FORMS]


@settings
class Case:
    """Networks of hidden widths n, m, n, m, n that grow together: m = factor * n ** power."""

    parametrization: Parametrization
    factor: Positive
    power: Annotated[float, Field(ge=0, le=10)]
    # q of "dynamic" (eq. 2.82 to 2.85); 0 is NTP
    exponent: Annotated[float, Field(ge=0, le=0.5)] = 0.5
    # Spectral's sigma_1 with its min(1, sqrt(n_1 / n_0)) (eq. 3.2); false: without it, 1 /
    # sqrt(n_0)
    kink: bool = True
    form: Form = "rates"  # a rate a layer (section 2.5); "gains": g_l and one rate (section 2.4)
    biases: bool = False  # sqrt(n_{l-1}) b_l in each layer (eq. 2.2)
    claim: str = ""  # the thesis's claim, shown next to the measurement

    def __post_init__(self) -> None:
        if self.exponent != 0.5 and self.parametrization != "dynamic":
            raise ValueError(
                f"exponent is {self.exponent:g}: only dynamic has one, and this is"
                f" {self.parametrization}"
            )
        if not self.kink and self.parametrization != "spectral":
            raise ValueError(
                f"kink is false: only spectral has one, and this is {self.parametrization}"
            )

    @property
    def name(self) -> str:
        exponent = "" if self.exponent == 0.5 else f", q = {self.exponent:g}"
        kink = "" if self.kink else ", sigma_1 = 1/sqrt(n_0)"
        form = ("" if self.form == "rates" else ", g_l") + (", biases" if self.biases else "")
        return f"{self.parametrization}, m = {self.factor:g} n^{self.power:g}{exponent}{kink}{form}"

    def narrow(self, n: int) -> int:
        """Returns m, the width of the narrow layers, for wide layers of n units."""
        return round(self.factor * n**self.power)


@settings
class Widths:
    """The widths n, evenly spaced on a logarithmic axis: at least three, to fit a slope and its
    error."""

    first: Count = 1000
    last: Count = 10_000
    count: Annotated[int, Field(ge=3)] = 10

    def __post_init__(self) -> None:
        if self.last - self.first < self.count:
            raise ValueError(f"last is {self.last:,}: it must be at least first + count")


@settings
class OneStepSettings:
    """Alignment and the coordinate check: one step of gradient descent from many initial weights,
    at each width."""

    kind: str
    cases: Annotated[tuple[Any, ...], Field(min_length=1)]  # of Case
    classes: tuple[str, ...] = ("airplane", "automobile")
    widths: Widths = field(default_factory=Widths)
    seeds: Count = 30
    learning_rate: Positive = 0.1  # eta
    images: ImageSettings = field(default_factory=ImageSettings)
    note: str = ""  # stands in the report

    def __post_init__(self) -> None:
        for i, case in enumerate(self.cases, 1):
            widths = [(case.narrow(n), n) for n in (self.widths.first, self.widths.last)]
            if not all(1 <= m <= n for m, n in widths):
                raise ValueError(
                    f"cases.{i}: m is {widths[0][0]} to {widths[1][0]}: it must be between 1 and n"
                )


@settings
class CurvesSettings:
    """Training curves: losses of training and test images, epoch by epoch, for pairs of classes."""

    kind: str
    pairs: Annotated[tuple[tuple[str, ...], ...], Field(min_length=1)]
    parametrizations: Annotated[tuple[Parametrization, ...], Field(min_length=1)]
    n: Count = 10_000
    narrow: Count = 500  # m
    epochs: Count = 100
    batch_size: Count = 64
    learning_rate: Positive = 0.1  # eta
    momentum: Rate = 0.9
    form: Form = "rates"  # a rate a layer (section 2.5); "gains": g_l and one rate (section 2.4)
    biases: bool = False  # sqrt(n_{l-1}) b_l in each layer (eq. 2.2)
    seeds: Count = 100
    images: ImageSettings = field(default_factory=ImageSettings)
    note: str = ""  # stands in the report

    def __post_init__(self) -> None:
        if self.images.test == 0:
            raise ValueError("images.test is 0: it must be above 0")


KINDS = dict.fromkeys(("alignment", "coordinate_check", "exponents"), OneStepSettings) | {
    "training_curves": CurvesSettings
}


def parse(tree: dict[str, Any], source: str) -> OneStepSettings | CurvesSettings:
    """Returns the settings of a study file's tree, whose `kind` is one of KINDS.

    Raises:
        InputError: a setting is unknown or missing, or has the wrong type or range; names file and
            setting.
    """
    cases = tree.get("cases")
    if isinstance(cases, list) and all(isinstance(case, dict) for case in cases):
        made = [build(Case, case, f"cases.{i}.", source) for i, case in enumerate(cases, 1)]
        tree = tree | {"cases": made}
    return build(KINDS[tree["kind"]], tree, "", source)
