"""Charts, as the places of what page.html draws as inline SVG.

Places are percentages, so that a chart fits any width while letters and lines keep their size. Colours are the classes
s0 to s7, which page.css sets for a light and for a dark page.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from esnlm.reporting.html.blocks import Block, block
from esnlm.reporting.plots import apart

COLOURS = 8
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class Series(NamedTuple):
    """A line, or dots, of a line chart."""

    name: str  # "" is left out of the legend
    points: np.ndarray  # (n, 2)
    colour: int = 0
    dots: bool = False


class Axis(NamedTuple):
    """What an axis shows. Its range is that of the points."""

    title: str
    log: bool = False


class Bar(NamedTuple):
    """A row of a chart of accuracies."""

    name: str
    value: float
    interval: Sequence[float]
    marks: Mapping[str, float]  # other values in the row, by the names of the legend


def line_chart(
    series: Sequence[Series], x: Axis, y: Axis, says: str, references: Mapping[str, float] | None = None
) -> Block:
    """Returns lines and dots over two axes.

    Args:
        series: with finite points, and positive ones on a logarithmic axis.
        says: what the chart shows, for those who do not see it.
        references: values of y, by name, for horizontal lines.
    """
    references = references or {}
    points = np.concatenate([each.points for each in series])
    along = Scale(points[:, 0], x.log, margin=0)
    up = Scale(np.append(points[:, 1], list(references.values())), y.log, margin=0.04)
    lines: list[tuple[int, str]] = []
    dots: list[tuple[int, list[tuple[str, str]]]] = []
    for each in series:
        places = np.column_stack([along(each.points[:, 0]), 1 - up(each.points[:, 1])])
        if each.dots:
            dots.append((each.colour, [(percent(u), percent(v)) for u, v in places]))
        else:
            lines.append((each.colour, "M" + "L".join(f"{u:.1f},{v:.1f}" for u, v in 1000 * places)))
    heights = {name: float(up(value)) for name, value in references.items()}
    labels = []  # of references: text, height, and whether it stands at the right end
    for name in apart(heights, 0.055):
        drawn = [each.points for each in series if not each.dots] or [each.points for each in series]
        left, right = (min(abs(points[end, 1] - references[name]) for points in drawn) for end in (0, -1))
        labels.append((name, percent(1 - heights[name]), right > left))
    return block(
        "lines",
        says=says,
        legend=[(each.name, each.colour, "dots" if each.dots else "line") for each in series if each.name],
        titles=(x.title, y.title),
        across=[(percent(along(value)), text) for value, text in along.ticks()],
        upwards=[(percent(1 - up(value)), text) for value, text in up.ticks()],
        references=[percent(1 - height) for height in heights.values()],
        lines=lines,
        dots=dots,
        labels=labels,
    )


def accuracy_chart(bars: Sequence[Bar], marks: Mapping[str, tuple[str, int]], chance: float | None) -> Block:
    """Returns a row for each accuracy in percent, with its interval and with other accuracies as marks.

    Args:
        bars: the rows.
        marks: how the names in `Bar.marks` are drawn: a shape of page.html and a colour.
        chance: in percent, a dashed line; None: there is none.
    """
    shown = [figure for bar in bars for figure in (bar.value, *bar.interval, *bar.marks.values())]
    # Positions can be read without a zero, so the axis begins at the ten below all that is shown.
    low = max(0.0, 10 * math.floor((min([*shown, 50, *([] if chance is None else [chance])]) - 2) / 10))
    ticked = [name for name, (mark, _) in marks.items() if mark == "tick"]  # baselines, which often agree
    lower = {name: 5 * (i - (len(ticked) - 1) / 2) for i, name in enumerate(ticked)}  # pixels
    ticks = [tick for tick in range(0, 101, 10 if low >= 40 else 20) if tick >= low]
    return block("accuracies", bars=bars, marks=marks, chance=chance, low=low, lower=lower, ticks=ticks)


def plane(values: np.ndarray, circles: Mapping[str, tuple[float, str]], title: str) -> Block:
    """Returns complex numbers, (n,), in the plane, with circles around 0: radius and class by name."""
    reach = 1.08 * max([*(radius for radius, _ in circles.values()), float(np.abs(values).max(initial=0))])
    # A line without length and with round ends is a point whose size does not depend on the scale.
    dots = "".join(f"M{z.real:.3f},{-z.imag:.3f}h0" for z in values)
    says = f"{title}: {', '.join(f'{name} {radius:.4g}' for name, (radius, _) in circles.items())}"
    return block("plane", title=title, says=says, circles=circles, dots=dots, reach=f"{reach:.4g}")


class Scale:
    """Puts values on 0 .. 1."""

    def __init__(self, values: np.ndarray, log: bool, margin: float) -> None:
        self.log = log
        low, high = float(values.min()), float(values.max())
        if log:
            low, high = math.log10(low), math.log10(high)
        extra = margin * (high - low) or (0 if high > low else 0.5)
        self.low, self.high = low - extra, high + extra

    def __call__(self, value: float | np.ndarray) -> np.ndarray:
        return (np.asarray(np.log10(value) if self.log else value) - self.low) / (self.high - self.low)

    def ticks(self) -> list[tuple[float, str]]:
        """Returns values with their texts, few and round."""
        if self.log:
            decades = self.high - self.low
            digits = (1, 2, 5) if decades < 1.6 else (1, 3) if decades < 3 else (1,)
            powers = range(math.floor(self.low), math.ceil(self.high) + 1)
            values = [d * 10.0**power for power in powers if power % max(1, round(decades / 6)) == 0 for d in digits]
            within = [value for value in values if self.low - 1e-9 <= math.log10(value) <= self.high + 1e-9]
            if len(within) > 1:
                return [(value, spell(value)) for value in within]
        low, high = (10**self.low, 10**self.high) if self.log else (self.low, self.high)
        raw = (high - low) / 6
        size = 10.0 ** math.floor(math.log10(raw))
        step = next(factor * size for factor in (1, 2, 5, 10) if factor * size >= raw)
        numbers = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
        digits_after = max(0, -math.floor(math.log10(step) + 1e-9))
        return [(n * step, f"{n * step:,.{digits_after}f}" if digits_after < 4 else f"{n * step:.3g}") for n in numbers]


def spell(value: float) -> str:
    """Returns a round number in few letters: 300, 30k, 2M, 10⁻⁵."""
    if 0.01 <= value < 1e12:
        scale, unit = next((s, u) for s, u in ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")) if value >= s or s == 1)
        return f"{value / scale:g}{unit}"
    digit, power = f"{value:.0e}".split("e")
    return f"{'' if digit == '1' else digit + '·'}10{str(int(power)).translate(SUPERSCRIPTS)}"


def percent(share: float | np.ndarray) -> str:
    """Returns a share of the width or height of a chart."""
    return f"{100 * float(share):.2f}%"
