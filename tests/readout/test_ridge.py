"""Ridge regression against least squares in float64: sums, every regularisation, the best of a
rank, what is singular."""

import numpy as np
import pytest

from esnlm.base.errors import InputError
from esnlm.readout import ridge
from esnlm.readout.calibration import HeldOut
from esnlm.readout.ridge import Ridge
from tests.readout.regression_problem import TOKENS, N, V, least_squares, problem, window

LOG_P = np.log((np.bincount(problem()[1], minlength=V) + 1) / (TOKENS + V))


def summed(features, targets):
    """Sums over tokens that come in three windows, their rows out of order."""
    sums = Ridge().start(N, V)
    for part in np.array_split(np.arange(len(targets)), 3):
        shuffled = np.random.default_rng(1).permutation(len(part))
        buffer = np.empty((len(part), N), np.float32)
        buffer[shuffled] = features[part]
        assert Ridge().accumulate(sums, window(buffer, shuffled, targets[part]), "float32") == 1
    return sums


def made(rank=None, **settings):
    """(readout, record) of the problem, under the literal rule: its logits are the linear
    scores."""
    held_out = HeldOut(*problem(seed=1))
    return Ridge(log_probs="softmax", **settings).solve(summed(*problem()), rank, held_out, LOG_P)


def relative_penalty(features, regularization):
    """lambda: so many mean eigenvalues of the centred G."""
    centred = features.astype(np.float64) - features.mean(0, dtype=np.float64)
    return regularization * np.trace(centred.T @ centred) / N


def test_the_sums_are_those_of_one_hot_targets(monkeypatch):
    """In blocks of whatever size: the tail too."""
    features, targets = problem()
    whole = summed(features, targets)
    monkeypatch.setattr(
        ridge, "row_blocks", lambda count, width: [slice(i, i + 37) for i in range(0, count, 37)]
    )
    for sums in (whole, summed(features, targets)):
        h = features.astype(np.float64)
        # Sums of 400 products in float64, in another order.
        np.testing.assert_allclose(np.triu(sums["gram"]), np.triu(h.T @ h), rtol=1e-12, atol=1e-10)
        np.testing.assert_allclose(sums["cross"], np.eye(V)[targets].T @ h, rtol=1e-12, atol=1e-10)
        np.testing.assert_array_equal(sums["counts"], np.bincount(targets, minlength=V))


@pytest.mark.parametrize("regularization", [0.0, 1e-3, 0.3])
def test_ridge_is_least_squares_with_a_penalty_on_all_but_the_intercept(regularization):
    features, targets = problem()
    readout, _ = made(regularizations=(regularization,))
    w, intercept = least_squares(
        features, targets, [relative_penalty(features, regularization)] * N + [0]
    )
    # The arrays are float32; the intercept takes up the rounding of N products.
    np.testing.assert_allclose(readout["w"], w, atol=1e-6 * np.abs(w).max())
    np.testing.assert_allclose(readout["bias"], intercept, atol=1e-6 * N)
    assert readout["w"].dtype == readout["bias"].dtype == np.float32


def test_the_regularisation_with_the_best_held_out_nll_is_taken():
    grid = (1e-6, 1e-2, 1.0, 100.0)
    readout, record = made(regularizations=grid)
    features, targets = problem(seed=1)
    for regularization in grid:
        alone, _ = made(regularizations=(regularization,))
        scores = features @ alone["w"].T + alone["bias"]
        nll = (np.log(np.exp(scores).sum(1)) - scores[np.arange(TOKENS), targets]).mean()
        assert record["held_out_nll"][f"{regularization:g}"] == pytest.approx(nll, rel=1e-5)
    best = min(grid, key=lambda one: record["held_out_nll"][f"{one:g}"])
    assert record["regularization"] == best
    np.testing.assert_array_equal(readout["w"], made(regularizations=(best,))[0]["w"])


@pytest.mark.parametrize("rule", ["softmax", "calibrated"])
@pytest.mark.parametrize("rank", [2, 5])
def test_a_reduced_rank_is_the_best_of_that_rank(rank, rule):
    """No other W of the rank fits the scaled targets better, penalty included: the SVD of the
    stacked problem in NumPy."""
    features, targets = problem()
    regularization = 0.01
    config = Ridge(regularizations=(regularization,), log_probs=rule)
    readout, record = config.solve(
        summed(features, targets), rank, HeldOut(*problem(seed=1)), LOG_P
    )
    assert readout["a"].shape == (V, rank) and readout["b"].shape == (rank, N)
    penalty = relative_penalty(features, regularization)
    w, _ = least_squares(features, targets, [penalty] * N + [0])
    scale, beta = np.ones(V), 1.0
    if rule == "calibrated":
        scale, beta = np.exp(-record["gamma"] * LOG_P), record["beta"]
    centred = features.astype(np.float64) - features.mean(0, dtype=np.float64)
    # (tokens + N, N): |stacked W^T|^2 is the fit with its penalty
    stacked = np.vstack([centred, np.sqrt(penalty) * np.eye(N)])
    u, s, vt = np.linalg.svd(stacked @ (w * scale[:, None]).T, full_matrices=False)
    fitted = (u[:, :rank] * s[:rank]) @ vt[:rank]
    expected = beta * np.linalg.lstsq(stacked, fitted, rcond=None)[0].T
    np.testing.assert_allclose(
        readout["a"] @ readout["b"], expected, atol=2e-6 * np.abs(expected).max()
    )


def test_states_that_depend_on_each_other_need_a_regularisation():
    features, targets = problem()
    features[:, 3] = 2 * features[:, 5]
    with pytest.raises(InputError, match="training.regularizations"):
        Ridge(regularizations=(0.0,)).solve(
            summed(features, targets), None, HeldOut(*problem(1)), LOG_P
        )
    _, record = Ridge(regularizations=(0.0, 1.0)).solve(
        summed(features, targets), None, HeldOut(*problem(1)), LOG_P
    )
    assert record["singular"] == 1 and list(record["held_out_nll"]) == ["1"], (
        "a pass over all text is not thrown away for one of them"
    )


def test_states_that_never_change_are_refused():
    still = Ridge(regularizations=(1.0,))
    sums = summed(np.zeros((50, N), np.float32), np.arange(50) % V)
    with pytest.raises(InputError, match="all states are equal"):
        still.solve(
            sums, None, HeldOut(np.zeros((5, N), np.float32), np.arange(5)), np.full(V, -np.log(V))
        )
