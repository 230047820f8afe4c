"""The delta rule, replayed one time step and one sentence at a time."""

import jax.numpy as jnp
import numpy as np
import pytest

from esnlm.readout.base import Window
from esnlm.readout.lms import LeastMeanSquares
from tests.readout.regression_problem import N, V, problem

FORTY = [range(s, s + 1) for s in range(40)]


@pytest.mark.parametrize(
    "slots, windows",
    [
        (1, [range(40)]),
        (4, FORTY),
        pytest.param(50, [range(0, 25), range(25, 40)], marks=pytest.mark.nightly),
    ],
    ids=["one slot, one window", "four, forty", "fifty, two"],
)
def test_the_weights_are_those_of_the_delta_rule(slots, windows):
    """W(t + 1) = W(t) + mu / B sum_k e_k r_k^T, over sentences of which each begins where a slot is
    free first."""
    features, targets = problem()
    lengths = np.random.default_rng(2).integers(3, 12, 40)
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    features, targets = features[: bounds[-1]], targets[: bounds[-1]]
    config = LeastMeanSquares(batch_size=slots, learning_rate=0.001)
    # where in the buffer each token's features lie
    place = np.random.default_rng(3).permutation(len(targets))
    buffer = np.empty_like(features)
    buffer[place] = features
    sums, updates = config.start(N, V), 0
    for window in windows:  # a slot goes on from one to the next
        rows = [place[bounds[s] : bounds[s + 1]] for s in window]
        part = targets[bounds[window.start] : bounds[window.stop]]
        updates += config.accumulate(sums, Window(jnp.asarray(buffer), rows, part), "float32")
    updates += config.finish(sums, "float32")
    assert sums["waiting"].shape == (0, N) and config.finish(sums, "float32") == 0

    w, c, steps = np.zeros((V, N)), np.zeros(V), 0
    waiting, slot = list(range(40)), [[] for _ in range(slots)]
    while waiting or any(slot):
        for k in range(slots):
            if not slot[k] and waiting:
                s = waiting.pop(0)
                slot[k] = list(range(bounds[s], bounds[s + 1]))
        now = [queue.pop(0) for queue in slot if queue]
        errors = [np.eye(V)[targets[t]] - w @ features[t] - c for t in now]
        w = w + 0.001 / slots * sum(
            np.outer(e, features[t]) for e, t in zip(errors, now, strict=True)
        )
        c = c + 0.001 / slots * sum(errors)
        steps += 1
    assert updates == steps
    # Some hundred updates in float32, each with a few roundings.
    np.testing.assert_allclose(sums["w"], w, atol=1e-5 * np.abs(w).max())
    np.testing.assert_allclose(sums["bias"], c, atol=1e-5 * np.abs(c).max())
    np.testing.assert_allclose(
        sums["cross"], np.eye(V)[targets].T @ features.astype(np.float64), rtol=1e-12
    )
    np.testing.assert_array_equal(sums["counts"], np.bincount(targets, minlength=V))


def test_without_an_intercept_it_is_the_papers_own_readout():
    """y = W_out r: nothing but W_out learns, from errors that no intercept has lessened."""
    features, targets = problem()
    rows, w = [np.arange(12)], np.zeros((V, N))
    sums = LeastMeanSquares().start(N, V)
    fitter = LeastMeanSquares(batch_size=1, learning_rate=0.01, intercept=False)
    fitter.accumulate(sums, Window(jnp.asarray(features), rows, targets[:12]), "float32")
    fitter.finish(sums, "float32")
    for r, target in zip(features[:12].astype(np.float64), targets, strict=False):
        w += 0.01 * np.outer(np.eye(V)[target] - w @ r, r)
    np.testing.assert_allclose(sums["w"], w, atol=1e-5 * np.abs(w).max())
    assert not sums["bias"].any()
