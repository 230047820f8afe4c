"""Whether a study bears out a sentence, judged by differences over seeds.

A difference is taken seed by seed: runs of a seed read the sentences in one order, and have the
same W_rec and W_in if these are drawn alike. Its interval is Student's t over seeds, and two seeds
never resolve anything. Most sentences are about several differences at once, such as those of all
neighbours in a sweep: all must be on the sentence's side for it to hold, so no correction is
needed. One of k on the other side is enough for it not to hold, by an interval of 100 - 5 / k
percent (Bonferroni).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from esnlm.base.console import counted
from esnlm.evaluation.statistics import FEWEST_SEEDS, LEVEL, runs_by_seed, seed_interval
from esnlm.reports.figures import FIGURES

HOLDS, DOES_NOT_HOLD, NOT_RESOLVED, NOT_TESTED = (
    "holds",
    "does not hold",
    "not resolved",
    "not tested",
)
Tree = Mapping[str, Any]


class Finding(NamedTuple):
    """What a study says of a sentence."""

    verdict: str
    here: list[str]  # our numbers, a text for each cell
    reason: str = ""  # why it is not tested or not resolved, and which runs are left out
    differences: Sequence[tuple[str, list[float]]] = ()  # name and values, one a seed


def examine(part: Tree, study: Tree | None) -> Finding:
    """Returns what a study says of a part of a claim; `study` is its table.json, or alignment.json,
    or None."""
    if "why" in part:
        return Finding(NOT_TESTED, [], part["why"].strip())
    if study is None:
        return Finding(NOT_TESTED, [], f"no study {part['study']}")
    check = next(
        key
        for key in ("falls", "rises", "below", "above", "under", "over", "flat", "steep")
        if key in part
    )
    if check in ("flat", "steep"):
        return _judge_slopes(part[check], study, check == "flat")
    selections = part[check] if isinstance(part[check], list) else [part[check]]
    chosen = [_select(selection, study) for selection in selections]
    cells, measure = [cell for its in chosen for cell in its], part["measure"]
    axis = (
        selections[0].get("along")
        if len({(one.get("along"), one.get("case")) for one in selections}) == 1
        else None
    )
    names = {
        cell["cell"]: cell["cell"] if axis is None else number(_on_axis(cell, axis))
        for cell in cells
    }
    here = [f"{names[cell['cell']]}: {_summarize(cell, measure)}" for cell in cells]
    for selection, its in zip(selections, chosen, strict=True):
        if missing := _find_missing(part, selection, its, 2 if check in ("falls", "rises") else 1):
            return Finding(NOT_TESTED, here, missing)
    if check in ("under", "over"):
        return _judge_counts(part, cells, names, part[check]["limit"], check == "over")
    if check in ("falls", "rises"):
        pairs = [(second, first) for first, second in zip(cells, cells[1:], strict=False)]
    else:
        pairs = [(one, other) for one in chosen[0] for other in chosen[1]]
    differences = []
    for one, other in pairs:
        ours, theirs = measured(one, measure), measured(other, measure)
        values = [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]
        differences.append((f"{names[one['cell']]} - {names[other['cell']]}", values))
    side, corrected = -1 if check in ("falls", "below") else 1, 1 - (1 - LEVEL) / len(differences)
    verdict = NOT_RESOLVED
    if all(_is_beyond_zero(values, side, LEVEL) for _, values in differences):
        verdict = HOLDS
    elif any(_is_beyond_zero(values, -side, corrected) for _, values in differences):
        verdict = DOES_NOT_HOLD
    return Finding(
        verdict,
        here,
        _reservations(cells, measure, min(len(values) for _, values in differences)),
        differences,
    )


def combine(verdicts: Sequence[str]) -> str:
    """Returns the verdict on a claim: of the sentences that were tested all must hold, and one that
    does not decides."""
    return next(
        (each for each in (DOES_NOT_HOLD, NOT_RESOLVED, HOLDS) if each in verdicts), NOT_TESTED
    )


def measured(cell: Tree, measure: str) -> dict[int, float]:
    """Returns {seed: value} for the runs that have a measure. A collapsed model has no accuracy."""
    run_of = runs_by_seed(cell["runs"], cell["cell"])
    return {
        seed: float(run[measure]) for seed, run in run_of.items() if run.get(measure) is not None
    }


def digits_of(measure: str) -> int:
    return FIGURES[measure].digits


def number(value: float) -> str:
    return f"{int(value):,}" if float(value).is_integer() else f"{value:.10g}"


def spell(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}" if abs(value) < 1e5 else f"{value:.2e}"


def _select(selection: Tree, study: Tree) -> list[Tree]:
    """Returns the cells that are named, or those of a case on an axis, by their values."""
    if "cells" in selection:
        by_name = {cell["cell"]: cell for cell in study["cells"]}
        return [by_name[name] for name in selection["cells"] if name in by_name]
    low, high = selection.get("from", -math.inf), selection.get("to", math.inf)
    of_case = [cell for cell in study["cells"] if cell["case"] == selection.get("case", "")]
    on_axis = [
        (value, cell)
        for cell in of_case
        if (value := _on_axis(cell, selection["along"])) is not None
    ]
    return [
        cell for value, cell in sorted(on_axis, key=lambda pair: pair[0]) if low <= value <= high
    ]


def _on_axis(cell: Tree, axis: str) -> Any:
    """Returns the value of a setting, named by its dotted key or the last part of it. YAML reads
    1e-3 as a text."""
    return next(
        (float(x) for key, x in cell["values"].items() if axis in (key, key.rpartition(".")[2])),
        None,
    )


def _find_missing(part: Tree, selection: Tree, cells: Sequence[Tree], fewest: int) -> str:
    """Returns what a check lacks, or ""."""
    known, axis = {cell["cell"] for cell in cells}, selection.get("along", "")
    if absent := [name for name in selection.get("cells", []) if name not in known]:
        return f"{part['study']} has no cell {absent[0]}"
    if len(cells) < fewest:
        bounds = "".join(
            f" {end} {number(selection[end])}" for end in ("from", "to") if end in selection
        )
        which = f"{selection['case']}, {axis}" if selection.get("case") else axis
        return f"{part['study']} has {counted(len(cells), 'cell')} of {which}{bounds}"
    others = [
        {key: x for key, x in cell["values"].items() if axis not in (key, key.rpartition(".")[2])}
        for cell in cells
    ]
    if axis and any(other != others[0] for other in others):
        return (
            f"the cells of {axis} in {part['study']} differ in other settings, too: name them with"
            " cells"
        )
    without = [cell["cell"] for cell in cells if not measured(cell, part["measure"])]
    return f"no {FIGURES[part['measure']].title} of {without[0]}" if without else ""


def _judge_counts(
    part: Tree, cells: Sequence[Tree], names: Tree, limit: float, over: bool
) -> Finding:
    """Counts the runs whose loss is finite and at most a limit, or is not. All runs of all cells
    must be as the sentence says."""
    right, here = [], []
    for cell in cells:
        values = list(measured(cell, part["measure"]).values())
        above, finite = (
            sum(not value <= limit for value in values),
            [value for value in values if math.isfinite(value)],
        )
        ends = f"{min(finite):.3g} .. {max(finite):.3g}" if finite else "none of them finite"
        here.append(f"{names[cell['cell']]}: {above} of {len(values)} over {limit:g}, {ends}")
        right.append((above if over else len(values) - above, len(values)))
    enough, verdict = [pair for pair in right if pair[1] >= FEWEST_SEEDS], NOT_RESOLVED
    if len(enough) == len(right) and all(count == runs for count, runs in right):
        verdict = HOLDS
    elif any(count == 0 for count, _ in enough):
        verdict = DOES_NOT_HOLD
    return Finding(verdict, here, _reservations(cells, part["measure"], FEWEST_SEEDS))


def _judge_slopes(check: Tree, study: Tree, flat: bool) -> Finding:
    """Returns whether all slopes of alignment against width lie between -within and within, or none
    does."""
    slopes, seeds = study["report"].get(check["case"], {}).get("alignment"), study["study"]["seeds"]
    within = check["within"]
    if not slopes:
        return Finding(NOT_TESTED, [], f"the study has no case {check['case']}")
    here = [
        f"layer {i}: {s['slope']:+.2f} [{s['low']:+.2f}, {s['high']:+.2f}]"
        for i, s in enumerate(slopes, start=1)
    ]
    inside = [-within < slope["low"] and slope["high"] < within for slope in slopes]
    outside = [slope["high"] < -within or within < slope["low"] for slope in slopes]
    right, wrong = (inside, outside) if flat else (outside, inside)
    verdict = HOLDS if all(right) else DOES_NOT_HOLD if any(wrong) else NOT_RESOLVED
    reason = f"flat is between -{within:g} and {within:g}; {seeds} seeds"
    return Finding(verdict if seeds >= FEWEST_SEEDS else NOT_RESOLVED, here, reason)


def _reservations(cells: Sequence[Tree], measure: str, shared: int) -> str:
    """Returns caveats of a verdict, or ""; two cells of a difference have at least `shared` seeds
    in common."""
    found, lacking = [], sum(len(cell["runs"]) - len(measured(cell, measure)) for cell in cells)
    if any(len(measured(cell, measure)) < FEWEST_SEEDS for cell in cells):
        found.append(f"fewer than {FEWEST_SEEDS} seeds")
    elif shared < FEWEST_SEEDS:
        found.append(f"two cells share {counted(shared, 'seed')} only")
    if lacking:
        found.append(f"{counted(lacking, 'run')} without this measure left out")
    if diverged := sum(run.get("status") == "diverged" for cell in cells for run in cell["runs"]):
        found.append(f"{counted(diverged, 'run')} diverged")
    return "; ".join(found)


def _summarize(cell: Tree, measure: str) -> str:
    """Returns mean and standard error over seeds, and of how many runs they are if not all have the
    measure."""
    values, digits = list(measured(cell, measure).values()), digits_of(measure)
    if not values:
        return "none"
    mean = math.fsum(values) / len(values)
    text = spell(mean, digits)
    if len(values) > 1 and math.isfinite(mean):
        error = math.sqrt(
            math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values)
        )
        text += f" ({spell(error, digits)})"
    return (
        text
        if len(values) == len(cell["runs"])
        else f"{text} ({len(values)} of {len(cell['runs'])} runs)"
    )


def _is_beyond_zero(values: Sequence[float], side: int, level: float) -> bool:
    interval = seed_interval(values, level)
    return interval is not None and (interval[0] > 0 if side > 0 else interval[1] < 0)
