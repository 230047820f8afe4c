"""The blocks of plain data that make up a page. The macro `show` of page.html has a branch for each
kind.

Charts hold positions, which page.html draws as inline SVG. Positions are percentages, so that a
chart fits any width while text and lines keep their size. Colours are the classes s0 to s7, which
page.css defines for light and dark pages.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from esnlm.reports.blimp_text import entry_of, readable
from esnlm.reports.plots import apart

COLOURS = 8
DIVERGED = 1000  # nats per token; above this, the axis of the losses is logarithmic
# the paradigm table has all
PUBLISHED = {"gpt2": ("GPT-2", "ring", 1), "human": ("people", "diamond", 4)}
BASELINES = (3, 5, 6, 2)  # colours, in turn

Block: TypeAlias = dict[str, Any]
Section: TypeAlias = tuple[str, list[Block]]  # a heading and the blocks below it


def block(kind: str, **content: Any) -> Block:
    """Returns a block of one of the kinds in page.html, such as block("samples", texts=[...])."""
    return {"kind": kind, **content}


def note(text: str, command: str | None = None) -> Block:
    """Returns a line of explanation, or a line about something missing, with the command that makes
    it."""
    return block("note", text=text, command=command)


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], align: str = "lr", rows_are: str = "rows"
) -> Block:
    """Returns a table without its empty columns. With JavaScript, readers can sort it, and filter
    it if it is long.

    Args:
        align: one letter per column, l (left) or r (right, for figures); the last letter applies to
            further columns.
        rows_are: the plural name of the rows, such as "paradigms".
    """
    kept = [i for i in range(len(header)) if any(row[i] for row in rows)]
    letters = align.ljust(len(header), align[-1])
    first, *others = ([(line[i], letters[i]) for i in kept] for line in (header, *rows))
    return block("table", header=first, rows=others, rows_are=rows_are)


class Series(NamedTuple):
    """Losses as a line or as dots."""

    name: str  # "": not in the legend
    points: np.ndarray  # (n, 2): million tokens read, NLL
    colour: int = 0
    dots: bool = False


def loss_chart(
    series: Sequence[Series], says: str, references: Mapping[str, float] | None = None
) -> list[Block]:
    """Returns the losses by tokens read, with lines at the NLL of references; empty without losses.

    Args:
        says: a description of the chart for screen readers.
    """
    series, references = [each for each in series if len(each.points)], references or {}
    if not series:
        return []
    points = np.concatenate([each.points for each in series])
    along = Scale(points[:, 0], log=True)
    up = Scale(
        np.append(points[:, 1], list(references.values())),
        log=points[:, 1].max() > DIVERGED,
        margin=0.04,
    )
    lines: list[tuple[int, str]] = []
    dots: list[tuple[int, list[tuple[str, str]]]] = []
    for each in series:
        places = np.column_stack([along(each.points[:, 0]), 1 - up(each.points[:, 1])])
        if each.dots:
            dots.append((each.colour, [(percent(u), percent(v)) for u, v in places]))
        else:
            lines.append(
                (each.colour, "M" + "L".join(f"{u:.1f},{v:.1f}" for u, v in 1000 * places))
            )
    heights = {name: 1 - float(up(nll)) for name, nll in references.items()}
    chart = block(
        "losses",
        says=says,
        legend=[
            (each.name, each.colour, "dots" if each.dots else "line")
            for each in series
            if each.name
        ],
        across=[(percent(along(value)), f"{value:g}") for value in along.ticks()],
        upwards=[(percent(1 - up(value)), f"{value:g}") for value in up.ticks()],
        references=[percent(height) for height in heights.values()],
        labels=[(name, percent(heights[name])) for name in apart(heights, 0.055)],
        lines=lines,
        dots=dots,
    )
    return [chart]


def accuracy_chart(report: dict) -> Block:
    """Returns a chart with one row per phenomenon (or paradigm, if there is only one), the best
    first, with intervals.

    It also shows the accuracies of baselines and, on BLiMP, of published models.
    """
    level = "phenomena" if report["data"]["phenomena"] > 1 else "paradigms"
    known = {
        name: entry["accuracy"]
        for name, entry in report[level].items()
        if entry["accuracy"] is not None
    }
    baselines = report["baselines"]
    beside = {f"{name} only": (its, "accuracy") for name, its in baselines.items()}
    # by name: shape, colour, and vertical offset in pixels, since baselines often coincide
    marks = {}
    for i, name in enumerate(beside):
        marks[name] = ("tick", BASELINES[i % len(BASELINES)], 5 * (i - (len(baselines) - 1) / 2))
    if report["anchors"]:
        beside |= {title: (report["anchors"], model) for model, (title, _, _) in PUBLISHED.items()}
        marks |= {title: (shape, colour, 0) for title, shape, colour in PUBLISHED.values()}
    rows: list[dict[str, Any]] = []
    for name in ["overall", *sorted(known, key=lambda name: -known[name])]:
        others = {title: entry_of(tree, level, name)[key] for title, (tree, key) in beside.items()}
        rows.append(
            {"name": readable(name), "entry": entry_of(report, level, name), "others": others}
        )
    chance = report.get("chance", 50)  # reports on pairs leave it out
    # Positions are readable without a zero, so the axis begins at the multiple of ten below the
    # lowest value.
    lowest = min(
        figure
        for row in rows
        for figure in (50, chance, row["entry"]["interval"][0], *row["others"].values())
    )
    low = max(0, 10 * math.floor((lowest - 2) / 10))
    ticks = [tick for tick in range(0, 101, 10 if low >= 40 else 20) if tick >= low]
    return block("accuracies", rows=rows, marks=marks, chance=chance, low=low, ticks=ticks)


class Scale:
    """Maps values to 0 .. 1."""

    def __init__(self, values: np.ndarray, log: bool, margin: float = 0.0) -> None:
        self.log = log
        low, high = (float(np.log10(end) if log else end) for end in (values.min(), values.max()))
        extra = margin * (high - low) or (0 if high > low else 0.5)
        self.low, self.high = low - extra, high + extra

    def __call__(self, value: float | np.ndarray) -> np.ndarray:
        return (np.asarray(np.log10(value) if self.log else value) - self.low) / (
            self.high - self.low
        )

    def ticks(self) -> list[float]:
        """Returns a few round values."""
        from matplotlib.ticker import LogLocator, MaxNLocator

        decades, ends = (
            self.high - self.low,
            (10**self.low, 10**self.high) if self.log else (self.low, self.high),
        )
        digits = (1.0, 2.0, 5.0) if decades < 1.6 else (1.0, 3.0) if decades < 3 else (1.0,)
        by_decade = self.log and decades >= 1
        locator = LogLocator(subs=digits) if by_decade else MaxNLocator(6, steps=(1, 2, 5, 10))
        positive = [
            float(value) for value in locator.tick_values(*ends) if value > 0 or not self.log
        ]
        return [value for value in positive if -1e-9 <= self(value) <= 1 + 1e-9]


def percent(share: float | np.ndarray) -> str:
    """Formats a share of the width or height of a chart."""
    return f"{100 * float(share):.2f}%"
