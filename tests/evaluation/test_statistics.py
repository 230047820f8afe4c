"""Accuracies, intervals and comparisons, against hand counts, SciPy and exact probabilities."""

import numpy as np
import pytest
import scipy.stats

from esnlm.evaluation import statistics


def paradigms(**sizes):
    """{name: indices} of paradigms that lie one after the other."""
    ends = np.cumsum(list(sizes.values()))
    return {
        name: np.arange(end - size, end)
        for (name, size), end in zip(sizes.items(), ends, strict=True)
    }


def test_outcomes():
    good = np.array([-1.0, -2.0, -3.0, -np.inf, -np.inf, np.nan, -1.0, np.inf])
    bad = np.array([-2.0, -2.0, -2.0, -np.inf, -9.0, -1.0, np.nan, -1.0])
    np.testing.assert_array_equal(
        statistics.outcomes(good, bad), [1, 0.5, 0, 0.5, 0, np.nan, np.nan, np.nan]
    )


@pytest.mark.parametrize("tie_credit, a, b", [(0, 50.0, 0.0), (0.5, 62.5, 25.0), (1, 75.0, 50.0)])
def test_every_paradigm_counts_the_same_and_ties_count_as_asked(tie_credit, a, b):
    outcome = np.array([1, 1, 0.5, 0, 0, 0.5])
    identical = np.array([False] * 5 + [True])
    found = statistics.accuracies(
        outcome, identical, paradigms(a=4, b=2), {"a": "binding", "b": "ellipsis"}, tie_credit
    )
    assert found["paradigms"]["a"]["accuracy"] == found["phenomena"]["binding"]["accuracy"] == a
    assert found["paradigms"]["b"]["accuracy"] == b
    assert found["overall"]["accuracy"] == (a + b) / 2  # not the mean over the six pairs
    assert found["overall"]["accuracy_ties_half"] == (62.5 + 25) / 2
    assert found["overall"]["accuracy_without_identical"] == (a + 0) / 2
    counts = {key: found["overall"][key] for key in statistics.COUNTS}
    assert counts == {"pairs": 6, "right": 2, "wrong": 2, "ties": 1, "identical": 1, "undefined": 0}


def test_an_undefined_pair_takes_the_accuracy_of_every_mean_it_is_in():
    outcome = np.array([1, np.nan, 1, 0])
    found = statistics.accuracies(
        outcome,
        np.zeros(4, bool),
        paradigms(a=2, b=2),
        {"a": "binding", "b": "ellipsis"},
        tie_credit=0,
    )
    for entry in (found["overall"], found["phenomena"]["binding"], found["paradigms"]["a"]):
        assert (entry["accuracy"], entry["interval"], entry["undefined"]) == (None, None, 1)
    assert found["phenomena"]["ellipsis"]["accuracy"] == found["paradigms"]["b"]["accuracy"] == 50


@pytest.mark.parametrize("right, n", [(0, 5), (3, 7), (573, 1000), (1000, 1000)])
def test_wilson_interval(right, n):
    expected = scipy.stats.binomtest(right, n).proportion_ci(0.95, method="wilson")
    np.testing.assert_allclose(
        statistics.wilson(100 * right / n, n), [100 * x for x in expected], rtol=0, atol=1e-10
    )


def test_resampled_means_have_the_bootstrap_distribution():
    # Of 0, 0, 1 three draws are made with replacement: the mean is k / 3 with binomial probability
    # (1/3 for the 1).
    resamples = 100_000
    means = statistics.resampled_means(
        np.array([0.0, 0.0, 1.0]), np.random.default_rng(0), resamples
    )
    for k in range(4):
        p = scipy.stats.binom.pmf(k, 3, 1 / 3)
        frequency = np.mean(np.abs(means - k / 3) < 1e-12)
        assert abs(frequency - p) < 5 * np.sqrt(p * (1 - p) / resamples)


def test_resampled_means_of_several_values_agree_with_drawing_pairs():
    values = np.array([0, 0.5, 0.5, 1, 1, 1, 0, 1.0])
    resamples = 20_000
    drawn = np.random.default_rng(1).choice(values, (resamples, len(values))).mean(axis=1)
    means = statistics.resampled_means(values, np.random.default_rng(2), resamples)
    # Two samples of one distribution: their distribution functions differ by more than this once in
    # 10,000 times.
    threshold = np.sqrt(-np.log(1e-4 / 2) / 2) * np.sqrt(2 / resamples)
    assert scipy.stats.ks_2samp(drawn, means).statistic < threshold


def test_overall_interval_is_stratified_by_paradigm():
    # Paradigms at 90, 10 and 10 %: within each a pair varies by p (1 - p) = 0.09, over all pairs
    # together by 0.232.
    n = 1000
    outcome = np.concatenate([np.arange(n) < 900, np.arange(n) < 100, np.arange(n) < 100]).astype(
        float
    )
    members, phenomenon_of = paradigms(a=n, b=n, c=n), dict.fromkeys("abc", "binding")
    found = statistics.accuracies(
        outcome, np.zeros(3 * n, bool), members, phenomenon_of, tie_credit=0
    )["overall"]
    centre, half_width = 110 / 3, 100 * 1.96 * np.sqrt(3 * 0.09 / n) / 3
    # 10,000 resamples place a 2.5 % quantile to 0.027 standard deviations (sqrt(q (1 - q) / R) over
    # the density there); accuracies come in steps of 1 / 30 points.
    tolerance = 4 * 0.027 * half_width / 1.96 + 1 / 30
    np.testing.assert_allclose(
        found["interval"], [centre - half_width, centre + half_width], atol=tolerance, rtol=0
    )
    assert half_width + tolerance < 100 * 1.96 * np.sqrt(0.232 / (3 * n))


@pytest.mark.parametrize("ties, collapsed", [(4, True), (2, True), (1, False), (0, False)])
def test_a_collapsed_model_ties_at_least_half_of_the_pairs_that_differ(ties, collapsed):
    outcome = np.array([0.5] * ties + [1.0] * (4 - ties) + [0.5] * 9)
    identical = np.array([False] * 4 + [True] * 9)
    assert statistics.has_collapsed(outcome, identical) == collapsed


@pytest.mark.parametrize(
    "only_this, only_other", [(0, 0), (1, 0), (5, 5), (3, 11), (40, 20), (612, 540)]
)
def test_mcnemar(only_this, only_other):
    n = only_this + only_other
    expected = scipy.stats.binomtest(only_this, n).pvalue if n else 1.0
    assert statistics.mcnemar(only_this, only_other) == pytest.approx(expected, rel=1e-9)


def test_comparison_counts_by_hand():
    this = np.array([1, 1, 1, 0, 1, 0, 1], bool)
    other = np.array([1, 0, 0, 1, 1, 0, 0], bool)
    phenomenon_of = {"a": "binding", "b": "ellipsis", "c": "ellipsis"}
    found = statistics.compare(this, other, paradigms(a=4, b=2, c=1), phenomenon_of)
    assert found["paradigms"]["a"]["difference"] == 25  # 3 of 4 against 2 of 4
    alike = {
        "difference": 0,
        "interval": [0, 0],
        "only_this": 0,
        "only_other": 0,
        "p_value": 1,
        "p_value_holm": 1,
    }
    assert found["paradigms"]["b"] == alike
    assert found["phenomena"]["ellipsis"]["difference"] == (0 + 100) / 2
    assert found["overall"]["difference"] == pytest.approx((25 + 0 + 100) / 3)
    assert (found["overall"]["only_this"], found["overall"]["only_other"]) == (3, 1)
    assert found["overall"]["p_value"] == pytest.approx(10 / 16)  # 0, 1, 3 or 4 heads of 4


def test_holms_correction_by_hand():
    # Sorted .01 .02 .03 .04: times 4, 3, 2, 1, and never below the one before.
    np.testing.assert_allclose(
        statistics.holm([0.04, 0.01, 0.03, 0.02]), [0.06, 0.04, 0.06, 0.06], rtol=1e-12
    )
    np.testing.assert_array_equal(statistics.holm([0.7, 0.9]), [1, 1])
    assert len(statistics.holm([])) == 0


def test_a_comparison_corrects_phenomena_and_paradigms_apart():
    n = 40
    this, other = np.ones(3 * n, bool), np.ones(3 * n, bool)
    other[:8], other[n : n + 7] = False, False  # 8 and 7 pairs in which only this model is right
    phenomenon_of = {"a": "binding", "b": "binding", "c": "ellipsis"}
    found = statistics.compare(this, other, paradigms(a=n, b=n, c=n), phenomenon_of)
    p = {name: entry["p_value"] for name, entry in found["paradigms"].items()}
    corrected = {name: entry["p_value_holm"] for name, entry in found["paradigms"].items()}
    assert p == {"a": pytest.approx(2**-7), "b": pytest.approx(2**-6), "c": 1}
    assert corrected == {"a": pytest.approx(3 * 2**-7), "b": pytest.approx(2 * 2**-6), "c": 1}
    assert found["phenomena"]["binding"]["p_value_holm"] == pytest.approx(2 * 2**-14)


def test_comparison_is_paired():
    # Both models at 50 %, right on the same pairs but for 20: unpaired, the interval would be five
    # times as wide.
    n = 1000
    this, other = np.arange(n) < 500, (np.arange(n) >= 10) & (np.arange(n) < 510)
    found = statistics.compare(this, other, paradigms(a=n), {"a": "binding"})["overall"]
    half_width = 100 * 1.96 * np.sqrt(20 / n / n)
    # as above; differences come in steps of 0.1 points
    tolerance = 4 * 0.027 * half_width / 1.96 + 0.1
    np.testing.assert_allclose(found["interval"], [-half_width, half_width], atol=tolerance, rtol=0)


def test_the_interval_of_a_mean_of_differences_is_stratified_by_paradigm():
    # Paradigm a is decided: this model is right on all of its pairs, the other one on none. In b
    # they differ on a tenth each way. So within a no pair varies, and within b by 0.2; over all
    # pairs together they vary by (1 + 0.2) / 2 - 0.5^2 = 0.35.
    n = 1000
    this, other = np.ones(2 * n, bool), np.zeros(2 * n, bool)
    this[n:], other[n:] = np.arange(n) < 100, (np.arange(n) >= 100) & (np.arange(n) < 200)
    found = statistics.compare(this, other, paradigms(a=n, b=n), dict.fromkeys("ab", "binding"))
    assert found["paradigms"]["a"]["interval"] == [100, 100]
    half_width = 100 * 1.96 * np.sqrt(0.2 / n) / 2
    # as above; means of the two come in steps of 0.05 points
    tolerance = 4 * 0.027 * half_width / 1.96 + 0.05
    for entry in (found["phenomena"]["binding"], found["overall"]):
        np.testing.assert_allclose(
            entry["interval"], [50 - half_width, 50 + half_width], atol=tolerance, rtol=0
        )
    assert half_width + tolerance < 100 * 1.96 * np.sqrt(0.35 / (2 * n))
