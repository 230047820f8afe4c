"""Ridge regression from sums over pieces, against least squares on the rows themselves."""

import numpy as np
import pytest

from esnlm.regression.solvers import FOLDS, RidgeSums, folds

RNG = np.random.default_rng(0)
H = RNG.normal(size=(300, 12)) @ RNG.normal(size=(12, 12)) + 1e4  # means far above the deviations
Y = H @ RNG.normal(size=(12, 2)) + RNG.normal(size=(300, 2)) + 1e3
FOLD = np.arange(300) * FOLDS // 300


def summed():
    sums = RidgeSums(2)
    for part in np.array_split(np.arange(300), 7):
        sums.add(H[part], Y[part], FOLD[part])
    return sums


def ridge(h, y, penalty):
    """By least squares of the centred rows with sqrt(level) I below them."""
    centred = h - h.mean(axis=0)
    level = penalty * np.square(centred).sum() / h.shape[1]
    rows = np.vstack([centred, np.sqrt(level) * np.eye(h.shape[1])])
    w = np.linalg.lstsq(rows, np.vstack([y - y.mean(axis=0), np.zeros((h.shape[1], 2))]))[0].T
    return w, y.mean(axis=0) - w @ h.mean(axis=0)


@pytest.mark.parametrize("penalty", [1e-8, 1e-3, 1.0])
def test_sums_give_the_solution_of_all_rows(penalty):
    (w, intercept), (expected, other) = summed().solve(penalty), ridge(H, Y, penalty)
    # The condition, of some 1e4 here, and of h - shift the means, cost as many digits.
    np.testing.assert_allclose(w, expected, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(H @ w.T + intercept, H @ expected.T + other, rtol=1e-9)


def test_the_penalty_and_the_moments_are_those_of_rows_that_a_fit_has_not_seen():
    penalties, errors = (1e-6, 1e-2, 0.1, 1.0, 10.0), []
    for penalty in penalties:
        fits = [ridge(H[k != FOLD], Y[k != FOLD], penalty) for k in range(FOLDS)]
        found = np.concatenate([H[k == FOLD] @ w.T + b for k, (w, b) in enumerate(fits)])
        errors.append(np.square(found - Y).sum())
        m = np.hstack([np.ones((300, 1)), found, Y])
        np.testing.assert_allclose(summed().held_out_moments(penalty), m.T @ m, rtol=1e-8)
    assert summed().choose(penalties) == penalties[int(np.argmin(errors))]


def test_constant_features_have_no_weight():
    sums = RidgeSums(1)
    sums.add(np.full((9, 3), 0.1), np.arange(9.0)[:, None], np.zeros(9, int))
    w, intercept = sums.solve(0.0)
    assert not w.any() and intercept == pytest.approx(4)


def test_folds_are_of_whole_sequences_or_of_quarters():
    rng = np.random.default_rng(0)
    assert folds([8], rng).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    found = np.split(folds([3, 1, 2, 5, 4], rng), [3, 4, 6, 11])
    assert all(len(set(each)) == 1 for each in found) and {each[0] for each in found} == {0, 1, 2, 3}
