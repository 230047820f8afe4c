"""Ridge regression from sums over pieces, against least squares on the rows."""

from copy import copy

import numpy as np
import pytest

from esnlm.readout.least_squares import FOLDS, RidgeSums, merge_all

RNG = np.random.default_rng(0)
H = RNG.normal(size=(300, 12)) @ RNG.normal(size=(12, 12)) + 1e4  # means far above the deviations
Y = H @ RNG.normal(size=(12, 2)) + RNG.normal(size=(300, 2)) + 1e3
FOLD = np.repeat(np.arange(FOLDS), [64, 64, 128, 44])  # quarters of 300 rows, from segments of 64
VARIANCE = H.var(axis=0).mean()


def solved(sums, *penalties):
    sums = copy(sums)  # never solved itself
    sums.relative_penalties = penalties
    return sums.solution


def summed(pieces=7, penalties=(1.0,)):
    sums = RidgeSums(2, np.random.default_rng(0), penalties)
    for part in np.array_split(np.arange(300), pieces):
        sums.add(H[part], Y[part], begins=part[0] == 0)
    return sums


def ridge(h, y, penalty):
    """By least squares of the centred rows with sqrt(level) I below them."""
    centred = h - h.mean(axis=0)
    level = penalty * VARIANCE * len(h)
    rows = np.vstack([centred, np.sqrt(level) * np.eye(h.shape[1])])
    w = np.linalg.lstsq(rows, np.vstack([y - y.mean(axis=0), np.zeros((h.shape[1], 2))]))[0].T
    return w, y.mean(axis=0) - w @ h.mean(axis=0)


@pytest.mark.parametrize("penalty", [1e-8, 1e-3, 1.0])
def test_sums_give_the_solution_of_all_rows(penalty):
    (_, w, intercept), (expected, other) = (
        summed(penalties=[penalty]).solution,
        ridge(H, Y, penalty),
    )
    # The condition, of some 1e4 here, and of h - shift the means, cost as many digits.
    np.testing.assert_allclose(w, expected, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(H @ w.T + intercept, H @ expected.T + other, rtol=1e-9)


def test_the_penalty_and_the_moments_are_those_of_rows_that_a_fit_has_not_seen():
    penalties, errors = (1e-6, 1e-2, 0.1, 1.0, 10.0), []
    for penalty in penalties:
        fits = [ridge(H[k != FOLD], Y[k != FOLD], penalty) for k in range(FOLDS)]
        found = np.concatenate([H[k == FOLD] @ w.T + b for k, (w, b) in enumerate(fits)])
        errors.append(np.square(found - Y).sum())
        m = np.hstack([found, Y])
        moments = summed().held_out_moments(penalty)
        assert moments.n_rows == 300
        np.testing.assert_allclose(moments.mean, m.mean(axis=0), rtol=1e-10)
        np.testing.assert_allclose(moments.scatter, 300 * np.cov(m.T, bias=True), rtol=1e-8)
    assert (
        summed(penalties=penalties).solution.relative_penalty == penalties[int(np.argmin(errors))]
    )


@pytest.mark.parametrize("pieces", [1, 2, 7, 299, 300])
def test_moments_do_not_depend_on_the_pieces(pieces):
    rows = np.hstack([H, Y])
    moments = merge_all(summed(pieces).segments)
    assert moments.n_rows == 300
    np.testing.assert_allclose(moments.mean, rows.mean(axis=0), rtol=1e-14)
    deviations = (rows - rows.astype(np.longdouble).mean(axis=0)).astype(float)
    # A float64 deviation is exact to 1e-16 times its row.
    rounding = 1e-16 * np.abs(rows).max() * np.abs(deviations).max() * 300
    np.testing.assert_allclose(moments.scatter, deviations.T @ deviations, rtol=0, atol=rounding)
    assert [part.n_rows for part in summed(pieces).segments] == [64, 64, 64, 64, 44]


@pytest.mark.parametrize("value", [0.1, np.linspace(0, 1, 9)[:, None] * 1e-16 + 0.1])
def test_features_that_are_equal_up_to_rounding_have_no_weight(value):
    x, y = np.broadcast_to(value, (9, 3)), np.arange(9.0)[:, None]
    sums = RidgeSums(1, np.random.default_rng(0), ())
    sums.add(x, y, begins=True)
    for penalties in ((0.0,), (1e-9, 1.0)):
        _, w, intercept = solved(sums, *penalties)
        assert not w.any() and intercept == pytest.approx(4)


def test_penalties_that_rounding_would_lose_are_no_candidates():
    """The second of two equal columns makes the Gram matrix singular; noise of the target asks for
    a large penalty."""
    h = np.repeat(RNG.normal(size=(40, 1)), 2, axis=1)
    sums = RidgeSums(1, np.random.default_rng(0), ())
    sums.add(h, h[:, :1], begins=True)
    assert solved(sums, 0.0, 1e-15, 1e-6, 1e-3).relative_penalty == 1e-6
    assert solved(sums, 0.0, 1e-15).relative_penalty == 1e-15
    _, w, _ = solved(sums, 0.0)
    assert w.sum() == pytest.approx(1)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rows", [1, 2])
def test_without_a_fold_to_hold_out_the_largest_penalty_is_chosen(rows, seed):
    """And of two sequences of one row, because after a fit to either all errors are equal."""
    sums = RidgeSums(2, np.random.default_rng(seed), ())
    for row in range(rows):
        sums.add(H[row : row + 1], Y[row : row + 1], begins=True)
    assert solved(sums, 1e-3, 1.0, 1e-6).relative_penalty == 1.0
    _, w, intercept = solved(sums, 1e9)
    np.testing.assert_allclose(
        H[:rows] @ w.T + intercept, np.tile(Y[:rows].mean(axis=0), (rows, 1)), rtol=1e-6
    )
    assert sums.held_out_moments(1.0).n_rows == rows


def test_each_four_sequences_are_in_four_folds_and_those_of_a_series_are_merged_when_another_begins():
    sums, lengths = RidgeSums(2, np.random.default_rng(7), ()), [20, 1, 2, 5, 4, 3]
    counts = np.zeros(FOLDS, int)
    rng = np.random.default_rng(7)
    for i, fold in enumerate([*rng.permutation(FOLDS), *rng.permutation(FOLDS)[:2]]):
        for row in range(lengths[i]):
            sums.add(H[row : row + 1], Y[row : row + 1], begins=row == 0)
        counts[fold] += lengths[i]
        if i:
            assert {k: part.n_rows for k, part in sums.folds.items()} == {
                k: counts[k] for k in np.flatnonzero(counts)
            }
