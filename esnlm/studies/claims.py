"""Says of each part of a claim what a study has found: our numbers, and a verdict."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from esnlm.io.console import counted
from esnlm.reporting.mean_text import format_mean
from esnlm.studies import verdict
from esnlm.studies.claims_file import Part, Selection
from esnlm.studies.grid import MEASURES
from esnlm.studies.grid_table import mean_and_error
from esnlm.studies.outcomes import Cell, Outcome, is_named
from esnlm.studies.verdict import Count, Difference, Verdict


class Finding(NamedTuple):
    """What the studies say of a part."""

    part: Part
    verdict: Verdict
    here: tuple[str, ...]  # our numbers, a text for each cell
    reason: str  # why it was not tested or not resolved, and which runs are left out; "" where the numbers say all
    differences: tuple[Difference, ...]


def examine(part: Part, outcome: Outcome | None) -> Finding:
    """Returns what a study says of a part; `outcome` is None where there is no such study."""
    if not part.check:
        return Finding(part, Verdict.NOT_TESTED, (), part.why, ())
    if outcome is None:
        return Finding(part, Verdict.NOT_TESTED, (), f"no study {part.study}", ())
    if part.check in ("flat", "steep"):
        return _test_slopes(part, outcome)
    chosen = [_select(selection, outcome) for selection in part.selections]
    cells = [cell for cells in chosen for cell in cells]
    here = tuple(f"{_label(part, cell)}: {_summarize(cell, part.measure)}" for cell in cells)
    if missing := _find_missing(part, chosen, outcome):
        return Finding(part, Verdict.NOT_TESTED, here, missing, ())
    if part.check in ("under", "over"):
        return _test_limit(part, cells)
    wanted = -1 if part.check in ("falls", "below") else 1
    if part.check in ("falls", "rises"):
        pairs = [(second, first) for first, second in zip(cells, cells[1:], strict=False)]
    else:
        pairs = [(one, other) for one in chosen[0] for other in chosen[1]]
    differences = tuple(
        verdict.difference(
            f"{_label(part, one)} - {_label(part, other)}",
            one.measured(part.measure),
            other.measured(part.measure),
            wanted,
        )
        for one, other in pairs
    )
    reason = _reservations(cells, part, min(len(each.values) for each in differences))
    return Finding(part, verdict.judge_differences(differences), here, reason, differences)


def _test_limit(part: Part, cells: Sequence[Cell]) -> Finding:
    """Counts the runs of each cell whose measure is on the side of a limit that the sentence wants."""
    counts, here = [], []
    for cell in cells:
        values = list(cell.measured(part.measure).values())
        over = sum(not (math.isfinite(value) and value <= part.limit) for value in values)
        counts.append(Count(cell.name, over if part.check == "over" else len(values) - over, len(values)))
        here.append(f"{_label(part, cell)}: {over} of {len(values)} over {part.limit:g}, {_range(values)}")
    return Finding(part, verdict.judge_counts(counts), tuple(here), _reservations(cells, part), ())


def _test_slopes(part: Part, outcome: Outcome) -> Finding:
    """Looks whether the slopes of a study of alignment are flat."""
    slopes = outcome.slopes.get(part.case)
    if not slopes:
        return Finding(part, Verdict.NOT_TESTED, (), f"{part.study} has no case {part.case}", ())
    here = tuple(
        f"layer {number}: {slope.slope:+.2f} [{slope.low:+.2f}, {slope.high:+.2f}]"
        for number, slope in enumerate(slopes, start=1)
    )
    intervals, seeds = [(slope.low, slope.high) for slope in slopes], outcome.seeds or 0
    found = verdict.judge_slopes(intervals, part.limit, seeds, part.check == "flat")
    reason = f"flat is between -{part.limit:g} and {part.limit:g}; {seeds} seeds"
    return Finding(part, found, here, reason, ())


def _select(selection: Selection, outcome: Outcome) -> list[Cell]:
    """Returns the cells of a study that are there: those that are named, or those on an axis by their values."""
    if not selection.along:
        return [outcome.cells[name] for name in selection.cells if name in outcome.cells]
    found = []
    for cell in outcome.cells.values():
        value = cell.on_axis(selection.along)
        if value is not None and cell.case == selection.case and selection.first <= value <= selection.last:
            found.append((value, cell))
    return [cell for _, cell in sorted(found, key=lambda pair: pair[0])]


def _find_missing(part: Part, chosen: Sequence[Sequence[Cell]], outcome: Outcome) -> str:
    """Returns what a check lacks, or ""."""
    fewest = 2 if part.check in ("falls", "rises") else 1
    for selection, cells in zip(part.selections, chosen, strict=True):
        for name in selection.cells:
            if name not in outcome.cells:
                return f"{part.study} has no cell {name}"
        keys = {key for cell in cells for key in cell.values if is_named(selection.along, key)}
        if len(keys) > 1:
            return f"{selection.along} is the end of {' and '.join(sorted(keys))} in {part.study}: name one of them in full"
        if len(cells) < fewest:
            bounds = f" from {_number(selection.first)}" if selection.first > -math.inf else ""
            bounds += f" to {_number(selection.last)}" if selection.last < math.inf else ""
            which = f"{selection.case}, {selection.along}" if selection.case else selection.along
            of_axis = f" of {which}{bounds}" if selection.along else ", and a sentence about a sequence needs two"
            return f"{part.study} has {counted(len(cells), 'cell')}{of_axis}"
        if selection.along and (others := _find_other_axes(selection.along, cells)):
            return f"the cells of {selection.along} in {part.study} differ in {', '.join(others)}, too: name them with cells"
        for cell in cells:
            if not cell.measured(part.measure):
                return f"no {MEASURES[part.measure][0]} of {cell.name}"
    return ""


def _find_other_axes(axis: str, cells: Sequence[Cell]) -> list[str]:
    """Returns the axes, but one, on which cells have more than one value."""
    points = [cell.off_axis(axis) for cell in cells]
    keys = dict.fromkeys(key for point in points for key in point)
    return [key for key in keys if any(point.get(key) != points[0].get(key) for point in points)]


def _reservations(cells: Sequence[Cell], part: Part, shared: int = verdict.FEWEST_SEEDS) -> str:
    """Returns what a reader of the verdict has to know of the runs: too few seeds, and runs that are left out; or "".

    Args:
        cells: that the verdict is of.
        part: the sentence.
        shared: the fewest seeds that two cells of a difference have in common.
    """
    found = []
    if any(len(cell.measured(part.measure)) < verdict.FEWEST_SEEDS for cell in cells):
        found.append(f"fewer than {verdict.FEWEST_SEEDS} seeds")
    elif shared < verdict.FEWEST_SEEDS:
        found.append(f"two cells share {counted(shared, 'seed')} only")
    lacking = sum(len(cell.runs) - len(cell.measured(part.measure)) for cell in cells)
    if lacking:  # such as the accuracy of a model that has collapsed
        left_out = "run without this measure is" if lacking == 1 else "runs without this measure are"
        found.append(f"{lacking} {left_out} left out")
    diverged = sum(run.get("status") == "diverged" for cell in cells for run in cell.runs)
    if diverged:
        found.append(f"{counted(diverged, 'run')} diverged")
    return "; ".join(found)


def _label(part: Part, cell: Cell) -> str:
    """Returns a short name of a cell: its value where all of a part lie on one axis."""
    axes = {(selection.along, selection.case) for selection in part.selections}
    axis = part.selections[0].along if len(axes) == 1 else ""
    value = cell.on_axis(axis) if axis else None
    return cell.name if value is None else _number(value)


def _number(value: float) -> str:
    return f"{int(value):,}" if float(value).is_integer() else f"{value:.10g}"


def _summarize(cell: Cell, measure: str) -> str:
    """Returns mean and standard error of the seeds' values, and of how many runs they are where not all have the measure."""
    values = list(cell.measured(measure).values())
    if not values:
        return "none"
    found = mean_and_error(values)
    text = format_mean(found["mean"], found["se"], digits_of(measure))
    return text if len(values) == len(cell.runs) else f"{text} ({len(values)} of {counted(len(cell.runs), 'run')})"


def digits_of(measure: str) -> int:
    """Returns the digits after the point that tell two means of a measure apart."""
    return 2 if measure == "blimp" else MEASURES[measure][1]


def _range(values: Sequence[float]) -> str:
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return "none of them finite"
    return f"{min(finite):.3g} .. {max(finite):.3g}"
