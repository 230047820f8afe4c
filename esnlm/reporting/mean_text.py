"""Spells a mean, its standard error and the runs that it is of, for a table."""

import math
from collections.abc import Mapping, Sequence
from typing import Any


def format_mean(mean: float, error: float | None, digits: int) -> str:
    """Returns a mean with its standard error in brackets, if it has one that says anything."""
    if error is None or not math.isfinite(error) or (error == 0 and digits == 0):
        return format_value(mean, digits)
    return f"{format_value(mean, digits)} ({format_value(error, digits)})"


def format_value(value: float, digits: int) -> str:
    """Returns a number with so many digits after the point, or its order of magnitude if it is very large."""
    return f"{value:,.{digits}f}" if digits == 0 or abs(value) < 1e5 else f"{value:.2e}"


def format_runs(runs: Sequence[Mapping[str, Any]], asked: int) -> str:
    """Returns how many runs of a cell are finished and how many of these diverged, such as "2 of 3, 1 diverged"."""
    done, diverged = len(runs), sum(run.get("status") == "diverged" for run in runs)
    return (f"{done}" if done == asked else f"{done} of {asked}") + (f", {diverged} diverged" if diverged else "")
