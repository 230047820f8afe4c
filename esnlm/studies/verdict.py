"""What differences over seeds say of a sentence: it holds, it does not hold, or the seeds do not resolve it.

A difference is taken seed by seed: both runs of a seed read the sentences in one order, and have one W_rec and W_in where
these are drawn alike. Its interval is Student's t over seeds. Two seeds never resolve anything: their interval has one degree
of freedom.

Most sentences are about several differences at once, such as those of all neighbours in a sweep.

- The sentence holds if the 95 % interval of every difference is on its side of 0. All of them are needed, so that no correction is:
  the chance that all fall there by accident is no larger than that of one.
- It does not hold if the interval of any difference is on the other side of 0. One of k is enough here, so each interval is
  then Bonferroni's, of 100 - 5 / k percent.
- Otherwise it is not resolved.
"""

import enum
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import t as student_t

from esnlm.evaluation.statistics import LEVEL

FEWEST_SEEDS = 3


class Verdict(enum.StrEnum):
    HOLDS = "holds"
    DOES_NOT_HOLD = "does not hold"
    NOT_RESOLVED = "not resolved"
    NOT_TESTED = "not tested"


class Difference(NamedTuple):
    """A measure of one cell of a study minus that of another, which the sentence wants above or below 0."""

    name: str  # such as "512 - 256"
    wanted: int  # its sign: 1 or -1
    values: np.ndarray  # (n,) float64, one a seed

    @property
    def mean(self) -> float:
        return float(self.values.mean()) if len(self.values) else math.nan

    def interval(self, level: float = LEVEL) -> tuple[float, float] | None:
        """Returns Student's t interval of the mean; None of too few seeds, or where a value is not finite."""
        n = len(self.values)
        if n < FEWEST_SEEDS or not np.isfinite(self.values).all():
            return None
        half = float(student_t.ppf(0.5 + level / 2, n - 1) * self.values.std(ddof=1) / math.sqrt(n))
        return self.mean - half, self.mean + half


class Count(NamedTuple):
    """How many runs of a cell are as the sentence wants them."""

    name: str  # of the cell
    right: int
    runs: int


def difference(name: str, one: Mapping[int, float], other: Mapping[int, float], wanted: int) -> Difference:
    """Returns `one` minus `other`, each {seed: value}, for the seeds that both have."""
    with np.errstate(invalid="ignore"):  # the losses of diverged runs may be infinite
        values = np.array([one[seed] - other[seed] for seed in sorted(one.keys() & other.keys())], np.float64)
    return Difference(name, wanted, values)


def judge_differences(differences: Sequence[Difference]) -> Verdict:
    """Returns what at least one difference says, by the rules at the top of this file."""
    assert differences, "there is no difference to judge"
    if all(_is_beyond_zero(each.interval(), each.wanted) for each in differences):
        return Verdict.HOLDS
    level = 1 - (1 - LEVEL) / len(differences)
    if any(_is_beyond_zero(each.interval(level), -each.wanted) for each in differences):
        return Verdict.DOES_NOT_HOLD
    return Verdict.NOT_RESOLVED


def judge_counts(counts: Sequence[Count]) -> Verdict:
    """Returns what runs that are counted say: holds if all of them are right, does not hold if all of a cell are wrong."""
    enough = [count for count in counts if count.runs >= FEWEST_SEEDS]
    if len(enough) == len(counts) and all(count.right == count.runs for count in counts):
        return Verdict.HOLDS
    return Verdict.DOES_NOT_HOLD if any(count.right == 0 for count in enough) else Verdict.NOT_RESOLVED


def judge_slopes(intervals: Sequence[tuple[float, float]], within: float, seeds: int, flat: bool) -> Verdict:
    """Returns whether slopes are flat, or are not, by their intervals.

    Args:
        intervals: of 95 %, one a slope.
        within: a slope between minus this and this counts as flat.
        seeds: how many the intervals are over.
        flat: whether the sentence wants them flat.
    """
    inside = [-within < low and high < within for low, high in intervals]
    outside = [high < -within or within < low for low, high in intervals]
    right, wrong = (inside, outside) if flat else (outside, inside)
    if seeds < FEWEST_SEEDS:
        return Verdict.NOT_RESOLVED
    return Verdict.HOLDS if all(right) else Verdict.DOES_NOT_HOLD if any(wrong) else Verdict.NOT_RESOLVED


def combine(verdicts: Sequence[Verdict]) -> Verdict:
    """Returns the verdict on a claim from those on its parts.

    Of those that were tested, all must hold for it to hold, and one that does not hold is enough for it not to.
    """
    tested = set(verdicts) - {Verdict.NOT_TESTED}
    for decisive in (Verdict.DOES_NOT_HOLD, Verdict.NOT_RESOLVED, Verdict.HOLDS):
        if decisive in tested:
            return decisive
    return Verdict.NOT_TESTED


def _is_beyond_zero(interval: tuple[float, float] | None, side: int) -> bool:
    if interval is None:
        return False
    return interval[0] > 0 if side > 0 else interval[1] < 0
