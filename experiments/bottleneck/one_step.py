"""One step of gradient descent from many initial weights at each width: alignment, sizes and
changes of every layer."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from esnlm.base.console import Progress
from experiments.bottleneck import images, network
from experiments.bottleneck.images import PIXELS, Images
from experiments.bottleneck.record import Record
from experiments.bottleneck.settings import Case, OneStepSettings

LAYERS = 6
WIDE = np.array([True, False, True, False, True])  # the hidden layers have widths n, m, n, m, n
CLASSES = 2

# What is measured of a layer, and how a table names it.
MEASURES = {"alignment": "|<dL/dh, dh>|", "size": "|h|", "change": "|dh|"}
MEASURES_OF_KIND = {
    "alignment": ("alignment",),
    "coordinate_check": ("size", "change"),
    "exponents": ("alignment", "change"),
}
RESAMPLES = 2000  # of the bootstrap


class Fit(NamedTuple):
    """log y = slope log n + constant by least squares, y a mean over seeds, with the slope's 95 %
    interval over seeds."""

    slope: float
    low: float
    high: float
    constant: float


def measure_missing(settings: OneStepSettings, record: Record, source: str) -> None:
    """Measures the cases and widths that the record lacks, and adds them to it."""
    missing = [
        (case, n)
        for case in settings.cases
        for n in sizes(settings)
        if _cell_name(case, n) not in record.cells
    ]
    if not missing:
        return
    data, _ = images.load(settings.images, settings.classes, f"{source}: images")
    weights = [
        settings.seeds * np.dot(w[1:], w[:-1]) for w in (widths(case, n) for case, n in missing)
    ]
    work = np.cumsum(weights) // 10**6
    progress = Progress(total=int(work[-1]), unit="million weights")
    for (case, n), done in zip(missing, work, strict=True):
        found = [
            measure(case, n, seed, data, settings.learning_rate) for seed in range(settings.seeds)
        ]
        record.add(_cell_name(case, n), {name: [each[name] for each in found] for name in MEASURES})
        progress.show(int(done), f"{case.name}, n = {n:,}", final=(case, n) == missing[-1])


def measure(case: Case, n: int, seed: int, data: Images, learning_rate: float) -> dict[str, Any]:
    """Measures the six layers after one step on one training image, which the seed chooses.

    Returns:
        "alignment", |<dL/dh~_l, delta h~_l>| (eq. 3.5), "size" and "change", the means over units
        of |h~_l| and
        |delta h~_l|, each a list of one number a layer; and "error", the mean |f - y|, to which all changes are in
        proportion.
    """
    sizes = widths(case, n, data.x.shape[1])
    drawn = network.initialize(
        case.parametrization, sizes, seed, case.exponent, case.kink, case.form, case.biases
    )
    i = np.random.default_rng([seed, n]).integers(len(data.x))
    rates, image = np.float32(learning_rate * drawn.rates), slice(i, i + 1)
    step = network.step(drawn.weights, rates, drawn.gains, data.x[image], data.y[image])
    h, gradient, change = ([np.asarray(layer[0], np.float64) for layer in part] for part in step)
    return {
        "alignment": [abs(float(g @ d)) for g, d in zip(gradient, change, strict=True)],
        "size": [float(np.abs(layer).mean()) for layer in h],
        "change": [float(np.abs(layer).mean()) for layer in change],
        "error": float(np.abs(gradient[-1]).mean()),
    }


def widths(case: Case, n: int, inputs: int = PIXELS) -> list[int]:
    """Returns n_0 .. n_6 (section 3.1)."""
    m = case.narrow(n)
    return [inputs, n, m, n, m, n, CLASSES]


def sizes(settings: OneStepSettings) -> list[int]:
    """Returns the widths n of a study."""
    w = settings.widths
    return [int(n) for n in np.geomspace(w.first, w.last, w.count).round()]


def values_of_seeds(record: Record, case: Case, sizes: list[int], name: str) -> np.ndarray:
    """Returns a measure of each seed, (widths, seeds, layers)."""
    return np.array([record.cells[_cell_name(case, n)][name] for n in sizes], float)


def fit_power(x: ArrayLike, values: np.ndarray) -> Fit:
    """Fits a power of the widths x to the means over seeds of values (widths, seeds).

    The interval is from a bootstrap over seeds: at each width the seeds are resampled with
    replacement, and the power is fitted to their means, 2,000 times. It shows the variation between
    seeds; the widths are not resampled.
    """
    x, values = np.log(x), np.asarray(values, float)
    slope, constant = np.polyfit(x, np.log(values.mean(axis=1)), 1)
    widths, seeds = values.shape
    drawn = np.random.default_rng(0).integers(seeds, size=(RESAMPLES, widths, seeds))
    means = np.log(values[np.arange(widths)[:, None], drawn].mean(axis=2))  # (RESAMPLES, widths)
    slopes = np.polyfit(x, means.T, 1)[0]
    low, high = np.percentile(slopes, [2.5, 97.5])
    return Fit(float(slope), float(low), float(high), float(constant))


def expected_slopes(case: Case, name: str) -> list[float | None]:
    """Returns the slope of each layer in table 1.1, or None if there is none.

    |h~_l| is of order 1 in hidden layers. |delta h~_l| is of order n_l^-1/2 (NTP), 1 (muP, Spectral) or
    n_min^q n_l^-1/2 (Dynamic, eq. 2.79) there, and of order 1 at the output (eq. 2.45). "standard"
    is not in the table, and muP is stated for hidden layers of one width. The alignment is of order
    1 in every layer under NTP and Dynamic, whatever q is (eq. 2.31).
    """
    if name == "alignment":
        return [0.0 if case.parametrization in ("ntp", "dynamic") else None] * LAYERS
    if case.parametrization == "standard" or (case.parametrization == "mup" and case.power != 1):
        return [None] * LAYERS
    power = np.where(WIDE, 1, case.power)  # n_l goes as n^power
    orders = {"ntp": -power / 2, "dynamic": case.exponent * case.power - power / 2}
    hidden = orders.get(case.parametrization, 0 * power) if name == "change" else 0 * power
    return [*(float(slope) for slope in hidden), 0.0 if name == "change" else None]


def _cell_name(case: Case, n: int) -> str:
    return f"{case.name}, n = {n}"
