"""Attention with frozen keys weighs past states by how alike they are to the present one."""

import jax.numpy as jnp
import numpy as np

from esnlm.models.deep_readout import SideBySide
from esnlm.models.trunk import TokenHistory
from experiments.frozen_cells.attention import Attention, AttentionConfig
from experiments.frozen_cells.diagonal import Diagonal
from tests import deep_oracle
from tests.models.running import features, in_two_steps

V, N, SENTENCE = 20, 24, [3, 7, 7, 0, 19, 3, 7, 5, 11, 3, 7]
EPS = float(np.finfo(np.float32).eps)


def attention(**settings):
    config = AttentionConfig(**({"heads": 2, "window": 4, "width": 8, "sharpness": 5.0} | settings))
    codes = np.random.default_rng(0).standard_normal((V, N), np.float32)
    diagonal = Diagonal(codes, np.geomspace(1, 64, N).astype(np.float32))
    projection = config.initialize(N, np.random.default_rng(1))
    return (
        Attention(SideBySide([diagonal, TokenHistory(4)]), projection, config),
        diagonal,
        projection,
    )


def test_the_weights_are_those_of_the_equations():
    cell, diagonal, projection = attention()
    h = features(diagonal, SENTENCE).astype(np.float64)
    expected = deep_oracle.attention(projection.astype(np.float64), 2, 4, 5.0, h).reshape(
        len(SENTENCE), -1
    )
    for run in (features, in_two_steps):
        found = run(cell, SENTENCE)
        np.testing.assert_array_equal(found[:, N : N + 4], deep_oracle.history(SENTENCE, 4))
        # A scalar product of keys of length 1, of sums of N numbers; the sharpness multiplies its
        # error.
        np.testing.assert_allclose(found[:, N + 4 :], expected, rtol=0, atol=5 * 4 * N * EPS)


def test_a_state_attends_to_the_one_that_is_like_it():
    cell, _, _ = attention(heads=1, sharpness=50.0, window=8, width=64)
    weights = features(cell, SENTENCE)[:, N + 4 :]
    # After ... 3 7 as at t = 1 and t = 6; the latter lies within the window, 4 states back.
    last = weights[-1]
    assert last.argmax() == 3 and last[3] > 0.5
    assert weights[0].sum() == 0  # Before the first token there is no state.


def test_any_sharpness_gives_weights_that_add_up_to_one():
    """With a sharpness of 500 the weight of an unlike state is below the smallest float32."""
    cell, _, _ = attention(sharpness=500.0)
    weights = features(cell, SENTENCE)[1:, N + 4 :].reshape(-1, 2, 4)
    np.testing.assert_allclose(weights.sum(axis=2), 1, rtol=0, atol=4 * EPS)


def test_a_state_of_zeros_has_equal_weights():
    cell, _, _ = attention()
    state = cell.initial_state(1)
    state = (state[0], state[1], jnp.full((1, 1), 3.0))
    weights = np.asarray(cell.output(state))[N + 4 :, 0].reshape(2, 4)
    np.testing.assert_allclose(weights, [[0.5, 0.5, 0, 0]] * 2, rtol=0, atol=4 * EPS)
