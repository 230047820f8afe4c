"""Charts as inline SVG. They fit any width: positions are percentages, while letters and lines keep their size.

Colours are classes, s0 to s7, which page.css sets for a light and for a dark page.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from esnlm.reporting.html.markup import Html, join, tag

COLOURS = 8
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class Series(NamedTuple):
    """A line, or dots, of a line chart."""

    name: str  # "" is not told in the legend
    points: np.ndarray  # (n, 2)
    colour: int = 0
    dots: bool = False


class Axis(NamedTuple):
    """What an axis shows. Its range is that of the points."""

    title: str
    log: bool = False


def line_chart(
    series: Sequence[Series], x: Axis, y: Axis, says: str, references: Mapping[str, float] | None = None
) -> Html:
    """Returns lines and dots over two axes.

    Args:
        series: with finite points, and positive ones on a logarithmic axis.
        x, y: the axes.
        says: what the chart shows, for those who do not see it.
        references: values of y, by name, for horizontal lines.
    """
    references = dict(references or {})
    points = np.concatenate([each.points for each in series])
    along = _Scale(points[:, 0], x.log, margin=0)
    up = _Scale(np.append(points[:, 1], list(references.values())), y.log, margin=0.04)
    parts: list[Html] = []
    for value, text in up.ticks():
        at = _percent(1 - up(value))
        parts.append(tag("line", x1="0", x2="100%", y1=at, y2=at, class_="grid"))
        parts.append(tag("text", text, x=-8, y=at, dy="0.32em", class_="tick end"))
    for value, text in along.ticks():
        parts.append(tag("text", text, x=_percent(along(value)), y="100%", dy=18, class_="tick middle"))
    for value in references.values():
        at = _percent(1 - up(value))
        parts.append(tag("line", x1="0", x2="100%", y1=at, y2=at, class_="reference"))
    drawn = []
    for each in series:
        places = np.column_stack([along(each.points[:, 0]), 1 - up(each.points[:, 1])])
        if each.dots:
            circles = (tag("circle", cx=_percent(u), cy=_percent(v), r=4) for u, v in places)
            drawn.append(tag("g", circles, class_=f"dots s{each.colour}"))
        else:
            drawn.append(tag("path", d=_path(1000 * places), class_=f"line s{each.colour}"))
    lines = [shape for shape, each in zip(drawn, series, strict=True) if not each.dots]
    # The inner picture is stretched to the width of the page. Its lines are not.
    parts.append(tag("svg", lines, viewBox="0 0 1000 1000", preserveAspectRatio="none", width="100%", height="100%"))
    parts += [shape for shape, each in zip(drawn, series, strict=True) if each.dots]
    for name, value in _apart(references, up).items():
        x_at, side = _clear_end(value, series)
        parts.append(tag("text", name, x=x_at, y=_percent(1 - up(value)), dy=-5, class_=f"tick halo{side}"))
    parts.append(tag("text", y.title, x=-44, y=-14, class_="tick"))
    parts.append(tag("text", x.title, x="100%", y="100%", dy=36, class_="tick end"))
    plot = tag("svg", parts, class_="plot", role="img", aria_label=says)
    return tag(
        "figure", legend((each.name, f"s{each.colour}", "dots" if each.dots else "line") for each in series), plot
    )


def legend(entries: Iterable[tuple[str, str, str]]) -> Html:
    """Returns a legend.

    Args:
        entries: name, class of the colour, and a mark of MARKS or "line"; one without a name is left out.
    """
    items = [tag("li", _swatch(mark, colour), name) for name, colour, mark in dict.fromkeys(entries) if name]
    return tag("ul", items, class_="legend") if items else Html("")


class Bar(NamedTuple):
    """A row of a chart of accuracies."""

    name: str
    value: float
    interval: Sequence[float] | None
    marks: Mapping[str, float]  # other values in the row, by the names of the legend


# What a mark is drawn as, around (0, 0). "dots" is a series in a chart of lines, "value" the figure of the run itself.
MARKS = {
    "value": Html('<circle r="5.5"/>'),
    "dots": Html('<circle r="4"/>'),
    "ring": Html('<circle r="4.5"/>'),
    "diamond": Html('<path d="M0,-6 6,0 0,6 -6,0z"/>'),
    "square": Html('<path d="M-4,-4H4V4H-4z"/>'),
    "tick": Html('<path d="M0,-6V6"/>'),
}
LOWER = 5  # pixels by which one tick of a row stands below another, so that neither hides the other


def accuracy_chart(
    bars: Sequence[Bar], marks: Mapping[str, tuple[str, str]], value: str, chance: float | None = 50
) -> Html:
    """Returns a row for each accuracy in percent, with its interval and with other accuracies as marks.

    Args:
        bars: the rows.
        marks: how the names in `Bar.marks` are drawn: a mark of MARKS and the class of a colour.
        value: what the rows' own values are, for the legend.
        chance: in percent, where a line is drawn; None: there is none.
    """
    shown = [figure for bar in bars for figure in (bar.value, *(bar.interval or ()), *bar.marks.values())]
    # Positions can be read without a zero, so the axis begins at the ten below all that is shown.
    low = max(0.0, 10 * math.floor((min([*shown, 50, *([] if chance is None else [chance])]) - 2) / 10))

    def at(figure: float) -> str:
        return _percent((figure - low) / (100 - low))

    # Baselines often agree.
    ticked = [name for name, (mark, _) in marks.items() if mark == "tick"]
    lower = {name: LOWER * (i - (len(ticked) - 1) / 2) for i, name in enumerate(ticked)}
    step = 10 if low >= 40 else 20
    ticks = [tick for tick in range(0, 101, step) if tick >= low]
    grid = [tag("line", x1=at(tick), x2=at(tick), y1="0", y2="100%", class_="grid") for tick in ticks]
    if chance is not None:
        grid.append(tag("line", x1=at(chance), x2=at(chance), y1="0", y2="100%", class_="reference"))
    rows = []
    for bar in bars:
        parts, text, interval = list(grid), f"{bar.value:.1f}", ""
        if bar.interval is not None:
            interval = f" [{bar.interval[0]:.1f}, {bar.interval[1]:.1f}]"
            parts.append(
                tag("line", x1=at(bar.interval[0]), x2=at(bar.interval[1]), y1="50%", y2="50%", class_="range")
            )
        parts += [
            _place(*marks[name], at(figure), name, figure, lower.get(name, 0)) for name, figure in bar.marks.items()
        ]
        parts.append(_place("value", "s0", at(bar.value), value, bar.value))
        says = ", ".join(
            [f"{bar.name}: {text}{interval}", *(f"{name} {figure:.1f}" for name, figure in bar.marks.items())]
        )
        track = tag("svg", parts, class_="track", role="img", aria_label=says)
        rows.append(
            tag(
                "li",
                tag("span", bar.name, class_="name"),
                track,
                tag("span", text, tag("small", interval), class_="figure"),
            )
        )
    scale = [tag("text", f"{tick}", x=at(tick), y=14, class_="tick middle") for tick in ticks]
    axis = tag("li", tag("svg", scale, class_="track", aria_hidden="true"), class_="axis")
    entries = [
        (f"{value}, 95 % interval", "s0", "value"),
        *((name, colour, mark) for name, (mark, colour) in marks.items()),
    ]
    return tag("figure", legend(entries), tag("ul", rows, axis, class_="accuracies"))


def plane(points: np.ndarray, circles: Mapping[str, tuple[float, str]], says: str, caption: str) -> Html:
    """Returns points of the complex plane with circles around 0.

    Args:
        points: (n,) complex.
        circles: radius and class of each circle, by name.
        says: what the picture shows, for those who do not see it.
        caption: below it.
    """
    radii = [radius for radius, _ in circles.values()]
    reach = 1.08 * max([*radii, float(np.abs(points).max(initial=0))])
    parts = [tag("path", d=f"M{-reach},0H{reach}M0,{-reach}V{reach}", class_="grid")]
    parts += [tag("circle", r=f"{radius:.4g}", class_=f"line {colour}") for radius, colour in circles.values()]
    # A line without length and with round ends is a point whose size does not depend on the scale.
    parts.append(tag("path", d="".join(f"M{z.real:.3f},{-z.imag:.3f}h0" for z in points), class_="points s1"))
    box = f"{-reach:.4g} {-reach:.4g} {2 * reach:.4g} {2 * reach:.4g}"
    picture = tag("svg", parts, viewBox=box, class_="plane", role="img", aria_label=says)
    names = legend((f"{name} {radius:.4g}", colour, "line") for name, (radius, colour) in circles.items())
    return tag("figure", tag("figcaption", caption), names, picture)


class _Scale:
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
            every = max(1, round(decades / 6))
            powers = range(math.floor(self.low), math.ceil(self.high) + 1)
            values = [digit * 10.0**power for power in powers if power % every == 0 for digit in digits]
            within = [value for value in values if self.low - 1e-9 <= math.log10(value) <= self.high + 1e-9]
            if len(within) > 1:
                return [(value, _spell(value)) for value in within]
        low, high = (10**self.low, 10**self.high) if self.log else (self.low, self.high)
        raw = (high - low) / 6
        size = 10.0 ** math.floor(math.log10(raw))
        step = next(factor * size for factor in (1, 2, 5, 10) if factor * size >= raw)
        numbers = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
        digits_after = max(0, -math.floor(math.log10(step) + 1e-9))
        return [(n * step, f"{n * step:,.{digits_after}f}" if digits_after < 4 else f"{n * step:.3g}") for n in numbers]


def _spell(value: float) -> str:
    """Returns a round number in few letters: 300, 30k, 2M, 10⁻⁵."""
    if 0.01 <= value < 1e12:
        scale, unit = next((s, u) for s, u in ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")) if value >= s or s == 1)
        return f"{value / scale:g}{unit}"
    digit, power = f"{value:.0e}".split("e")
    return f"{'' if digit == '1' else digit + '·'}10{str(int(power)).translate(SUPERSCRIPTS)}"


def _apart(references: Mapping[str, float], scale: _Scale) -> dict[str, float]:
    """Returns one label for lines that are too close to tell apart: the last of them, which says most."""
    names = list(references)
    return {
        name: references[name]
        for i, name in enumerate(names)
        if all(abs(scale(references[name]) - scale(references[other])) > 0.055 for other in names[i + 1 :])
    }


def _clear_end(value: float, series: Sequence[Series]) -> tuple[str, str]:
    """Returns where the label of a horizontal line stands, and its class: at the end from which the series are farther."""
    drawn = [each.points for each in series if not each.dots] or [each.points for each in series]
    left, right = (min(abs(points[end, 1] - value) for points in drawn) for end in (0, -1))
    return ("100%", " end") if right > left else ("4", "")


def _path(places: np.ndarray) -> str:
    return "M" + "L".join(f"{u:.1f},{v:.1f}" for u, v in places)


def _place(mark: str, colour: str, at: str, name: str, figure: float, lower: float = 0) -> Html:
    """Returns a mark at a position of a row, with what it says where a pointer rests on it.

    Args:
        lower: how far below the middle of the row it stands, in pixels.
    """
    told = tag("title", f"{name}: {figure:.1f}")
    moved = f"translate(0,{lower:g})" if lower else None
    shape = tag("g", told, MARKS[mark], class_=f"{mark} {colour}", transform=moved)
    return tag("svg", shape, x=at, y="50%", class_="mark")


def _swatch(mark: str, colour: str) -> Html:
    shape = Html('<path d="M-7,0H7"/>') if mark == "line" else MARKS[mark]
    return tag(
        "svg", tag("g", shape, class_=f"{mark} {colour}"), viewBox="-8 -8 16 16", class_="swatch", aria_hidden="true"
    )


def _percent(share: float | np.ndarray) -> str:
    return f"{100 * float(share):.2f}%"


def side_by_side(*figures: Html) -> Html:
    """Returns figures beside each other where there is room."""
    return tag("div", join(*figures), class_="beside")
