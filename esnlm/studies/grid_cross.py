"""A grid of several lines as small tables: a row for each line, a column for each value on the numeric axis."""

import math
from typing import Any

from esnlm.reporting.mean_text import format_mean
from esnlm.reporting.tables import markdown_table
from esnlm.studies.grid import MEASURES, Grid, short_names
from esnlm.studies.grid_lines import Point, find_axis, make_lines, read_mean

BEST = {"val_nll": min, "blimp": max}  # the measures that have such a table, and which value of a row is the best one


def cross_tables(grid: Grid, cells: list[dict[str, Any]]) -> list[str]:
    """Returns lines of Markdown: for each measure of BEST a title and a table of the means, where the best of a row is bold.

    There is none where fewer than two lines have two values or more.

    Args:
        grid: the study.
        cells: from `grid_table.collect_cells`.
    """
    key = find_axis(cells)
    if key is None:
        return []
    title = short_names([key])[key].replace("_", " ")
    found: list[str] = []
    for name, best in BEST.items():
        counts = [cell["means"][name]["n"] for cell in cells]
        lines = make_lines(cells, key, [read_mean(cell, name) for cell in cells], counts)
        lines = {line: points for line, points in lines.items() if len(points) > 1 and not math.isnan(points[0].x)}
        if len(lines) < 2 or name not in grid.columns:
            continue
        values = sorted({point.x for points in lines.values() for point in points})
        rows = []
        for line, points in lines.items():
            # A mean of fewer runs than others may be that of the seeds that did well.
            most = max(point.measured for point in points)
            whole = [point.mean for point in points if point.measured == most and math.isfinite(point.mean)]
            chosen = best(whole, default=math.nan)
            texts = {
                point.x: _format(point, point.mean == chosen and point.measured == most, most, MEASURES[name][1])
                for point in points
            }
            rows.append([line, *(texts.get(value, "") for value in values)])
        header = ["", *(f"{title} {value:.10g}" for value in values)]
        found += [
            "",
            f"## {MEASURES[name][0]} by {title}",
            "",
            "The best mean of each row is bold. Only means of the largest number of runs are compared.",
            "",
        ]
        found += markdown_table(header, rows, align="lr")
    return found


def _format(point: Point, best: bool, most: int, digits: int) -> str:
    """Returns a mean, with the number of its runs where others of its row are of more."""
    text = format_mean(point.mean, point.error or None, digits) + f" of {point.measured}" * (point.measured < most)
    return f"**{text}**" if best else text
