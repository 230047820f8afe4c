"""Spells a mean, its standard error and the runs that it is of, for a table."""

import math
from collections.abc import Mapping, Sequence
from typing import Any


def format_mean(mean: float, error: float | None, digits: int) -> str:
    """Returns a mean with its standard error in brackets, if it has one that says anything."""
    # Most counts are the same in every run, and a mean that is infinite has no error.
    if error is None or not math.isfinite(error) or (error == 0 and digits == 0):
        return format_value(mean, digits)
    return f"{format_value(mean, digits)} ({format_value(error, digits)})"


def format_value(value: float, digits: int) -> str:
    """Returns a number with so many digits after the point, and one that is very large by its order."""
    return f"{value:,.{digits}f}" if digits == 0 or abs(value) < 1e5 else f"{value:.2e}"


def format_runs(runs: Sequence[Mapping[str, Any]], asked: int) -> str:
    """Returns how many runs of a cell are finished, of how many where some are missing, and how many diverged.

    Example:
        >>> format_runs([{"status": "finished"}, {"status": "diverged"}], asked=3)
        '2 of 3, 1 diverged'
    """
    done, diverged = len(runs), sum(run.get("status") == "diverged" for run in runs)
    return (f"{done}" if done == asked else f"{done} of {asked}") + (f", {diverged} diverged" if diverged else "")
