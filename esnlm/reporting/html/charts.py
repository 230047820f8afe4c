"""Charts, as the places of what page.html draws as inline SVG.

Places are percentages, so that a chart fits any width while letters and lines keep their size. Colours are the classes
s0 to s7, which page.css sets for a light and for a dark page.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

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


def line_chart(
    series: Sequence[Series],
    titles: tuple[str, str],
    says: str,
    log: tuple[bool, bool] = (False, False),
    references: Mapping[str, float] | None = None,
) -> Block:
    """Returns lines and dots over two axes, whose ranges are those of the points.

    Args:
        series: with finite points, and positive ones on a logarithmic axis.
        titles, log: of the axes x and y.
        says: what the chart shows, for those who do not see it.
        references: values of y, by name, for horizontal lines.
    """
    references = references or {}
    points = np.concatenate([each.points for each in series])
    along = Scale(points[:, 0], log[0], margin=0)
    up = Scale(np.append(points[:, 1], list(references.values())), log[1], margin=0.04)
    lines: list[tuple[int, str]] = []
    dots: list[tuple[int, list[tuple[str, str]]]] = []
    for each in series:
        places = np.column_stack([along(each.points[:, 0]), 1 - up(each.points[:, 1])])
        if each.dots:
            dots.append((each.colour, [(percent(u), percent(v)) for u, v in places]))
        else:
            lines.append((each.colour, "M" + "L".join(f"{u:.1f},{v:.1f}" for u, v in 1000 * places)))
    heights = {name: float(up(value)) for name, value in references.items()}
    labels = []  # of references: text, height, and whether it stands at the right end, away from the lines
    for name in apart(heights, 0.055):
        left, right = (min(abs(each.points[end, 1] - references[name]) for each in series) for end in (0, -1))
        labels.append((name, percent(1 - heights[name]), right > left))
    return block(
        "lines",
        says=says,
        legend=[(each.name, each.colour, "dots" if each.dots else "line") for each in series if each.name],
        titles=titles,
        across=[(percent(along(value)), text) for value, text in along.ticks()],
        upwards=[(percent(1 - up(value)), text) for value, text in up.ticks()],
        references=[percent(1 - height) for height in heights.values()],
        lines=lines,
        dots=dots,
        labels=labels,
    )


def accuracy_chart(bars: Sequence[dict[str, Any]], marks: Mapping[str, tuple[str, int]], chance: float) -> Block:
    """Returns a row for each accuracy in percent, with its interval and with other accuracies as marks.

    Args:
        bars: {name, value, interval, marks} of each row; its marks are values by the names of the legend.
        marks: how these are drawn: a shape of page.html and a colour.
        chance: in percent, a dashed line.
    """
    shown = [figure for bar in bars for figure in (bar["value"], *bar["interval"], *bar["marks"].values())]
    # Positions can be read without a zero, so the axis begins at the ten below all that is shown.
    low = max(0.0, 10 * math.floor((min([*shown, 50, chance]) - 2) / 10))
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
        from matplotlib.ticker import LogLocator, MaxNLocator

        low, high = (10**self.low, 10**self.high) if self.log else (self.low, self.high)
        if self.log and (decades := self.high - self.low) >= 1:
            digits = (1.0, 2.0, 5.0) if decades < 1.6 else (1.0, 3.0) if decades < 3 else (1.0,)
            return [(value, spell(value)) for value in self._within(LogLocator(subs=digits).tick_values(low, high))]
        values = self._within(MaxNLocator(6, steps=(1, 2, 5, 10)).tick_values(low, high))
        digits_after = max(0, -math.floor(math.log10(values[1] - values[0]) + 1e-9)) if len(values) > 1 else 2
        return [(value, f"{value:,.{digits_after}f}") for value in values]

    def _within(self, values: Sequence[float]) -> list[float]:
        positive = [float(value) for value in values if value > 0 or not self.log]
        return [value for value in positive if -1e-9 <= self(value) <= 1 + 1e-9]


def spell(value: float) -> str:
    """Returns a round number in few letters: 300, 30k, 2M, 10⁻⁵."""
    for scale, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k"), (0.01, "")):
        if value >= scale:
            return f"{value / max(scale, 1):g}{unit}"
    digit, power = f"{value:.0e}".split("e")
    return f"{'' if digit == '1' else digit + '·'}10{str(int(power)).translate(SUPERSCRIPTS)}"


def percent(share: float | np.ndarray) -> str:
    """Returns a share of the width or height of a chart."""
    return f"{100 * float(share):.2f}%"
