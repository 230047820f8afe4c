"""Verdicts from differences over seeds: the four of them, intervals beside SciPy's, and what several comparisons need."""

import math

import numpy as np
import pytest
from scipy import stats

from esnlm.studies import verdict
from esnlm.studies.verdict import Count, Verdict, combine, judge_counts, judge_differences, judge_slopes

HOLDS, DOES_NOT_HOLD, NOT_RESOLVED = Verdict.HOLDS, Verdict.DOES_NOT_HOLD, Verdict.NOT_RESOLVED


def below(*values):
    """A difference that the sentence wants below 0."""
    return verdict.difference("a - b", dict(enumerate(values)), dict.fromkeys(range(len(values)), 0.0), -1)


CLEAR, NOISY, AGAINST = below(-0.10, -0.11, -0.12), below(-0.10, 0.05, -0.02), below(0.10, 0.11, 0.12)


def test_a_difference_is_paired_by_seed():
    found = verdict.difference("a - b", {0: 1.0, 1: 2.0, 3: 9.0}, {3: 4.0, 1: 1.5, 2: 7.0}, 1)
    np.testing.assert_array_equal(found.values, [0.5, 5.0])  # of seeds 1 and 3, which both have


@pytest.mark.parametrize("level", [0.95, 0.99])
def test_the_interval_is_students(level):
    values = np.random.default_rng(0).normal(size=4)
    expected = stats.ttest_1samp(values, 0).confidence_interval(level)
    assert below(*values).interval(level) == pytest.approx(tuple(expected), rel=1e-12)


def test_pairing_sees_through_what_seeds_share():
    """Both cells vary by 1 from seed to seed, and their difference by nothing to speak of."""
    shared = [0.0, 1.0, -1.0]
    one, other = ({seed: value + add for seed, value in enumerate(shared)} for add in (0.0, 0.1))
    assert judge_differences([verdict.difference("a - b", one, other, -1)]) == HOLDS


@pytest.mark.parametrize(
    "differences, expected",
    [
        ([CLEAR], HOLDS),
        ([CLEAR, CLEAR, CLEAR], HOLDS),
        ([CLEAR, NOISY], NOT_RESOLVED),
        ([NOISY], NOT_RESOLVED),
        ([AGAINST], DOES_NOT_HOLD),
        ([CLEAR, NOISY, AGAINST], DOES_NOT_HOLD),
        ([below(-5.0, -5.1)], NOT_RESOLVED),  # two seeds never resolve anything
        ([CLEAR, below(-5.0, -5.1)], NOT_RESOLVED),
        ([below(5.0)], NOT_RESOLVED),
        ([below()], NOT_RESOLVED),
        ([below(-math.inf, -0.1, -0.1)], NOT_RESOLVED),  # a diverged run has no interval
        ([below(-7.0, -7.0, -7.0)], HOLDS),  # counts, which no seed changes
        ([below(0.0, 0.0, 0.0)], NOT_RESOLVED),
    ],
)
def test_the_verdict_of_differences(differences, expected):
    assert judge_differences(differences) == expected


def test_one_of_many_differences_contradicts_at_a_level_for_many_only():
    """It is 0.1 above 0 with p = 0.02: enough against a sentence of one difference, and not against one of ten."""
    spread = np.array([-1.0, 0.0, 1.0])
    t = stats.t.ppf(0.99, 2)
    against = below(*(0.1 + spread * 0.1 * math.sqrt(3) / t))
    assert judge_differences([against]) == DOES_NOT_HOLD
    assert judge_differences([against, *[CLEAR] * 9]) == NOT_RESOLVED


def test_sentences_about_nothing_contradict_seldom():
    """Of 400 sentences on five differences that are nothing but noise, at most a few are contradicted or hold."""
    rng = np.random.default_rng(0)
    found = [judge_differences([below(*rng.normal(size=3)) for _ in range(5)]) for _ in range(400)]
    assert found.count(HOLDS) == 0
    # Each is contradicted with a chance of at most 2.5 %; 20 of 400 are more than three deviations above that.
    assert found.count(DOES_NOT_HOLD) < 20


@pytest.mark.parametrize(
    "counts, expected",
    [
        ([(4, 4), (4, 4)], HOLDS),
        ([(4, 4), (0, 4)], DOES_NOT_HOLD),
        ([(4, 4), (1, 4)], NOT_RESOLVED),
        ([(2, 2)], NOT_RESOLVED),
        ([(0, 2)], NOT_RESOLVED),
    ],
)
def test_the_verdict_of_counted_runs(counts, expected):
    assert judge_counts([Count("a", *count) for count in counts]) == expected


@pytest.mark.parametrize(
    "intervals, seeds, flat, steep",
    [
        ([(-0.05, 0.02), (0.01, 0.09)], 10, HOLDS, DOES_NOT_HOLD),
        ([(-0.9, -0.8), (0.2, 0.3)], 10, DOES_NOT_HOLD, HOLDS),
        ([(-0.2, 0.02), (-0.2, 0.05)], 10, NOT_RESOLVED, NOT_RESOLVED),
        ([(-0.05, 0.02)], 2, NOT_RESOLVED, NOT_RESOLVED),
    ],
)
def test_the_verdict_of_slopes(intervals, seeds, flat, steep):
    assert judge_slopes(intervals, 0.1, seeds, flat=True) == flat
    assert judge_slopes(intervals, 0.1, seeds, flat=False) == steep


@pytest.mark.parametrize(
    "verdicts, expected",
    [
        ([HOLDS, HOLDS], HOLDS),
        ([HOLDS, DOES_NOT_HOLD, NOT_RESOLVED], DOES_NOT_HOLD),
        ([HOLDS, NOT_RESOLVED], NOT_RESOLVED),
        ([HOLDS, Verdict.NOT_TESTED], HOLDS),
        ([NOT_RESOLVED, Verdict.NOT_TESTED, HOLDS], NOT_RESOLVED),
        ([Verdict.NOT_TESTED, DOES_NOT_HOLD], DOES_NOT_HOLD),
        ([Verdict.NOT_TESTED, Verdict.NOT_TESTED], Verdict.NOT_TESTED),
    ],
)
def test_the_verdict_of_a_claim(verdicts, expected):
    assert combine(verdicts) == expected
