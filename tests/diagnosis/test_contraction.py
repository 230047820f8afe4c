"""Distances of two states that read the same text, against float64 NumPy and on networks whose
answer is known."""

import numpy as np
import pytest

from esnlm.diagnosis import contraction
from esnlm.reservoir.cell import ReservoirLayer, Stack
from esnlm.reservoir.topology import Orthogonal
from tests import oracle
from tests.diagnosis.small import EPSILON, V, prepare, reservoir, text


def test_distances_are_those_of_the_oracle_and_forgetting_is_input_forgetting():
    """Two histories and the same 20 tokens: over 40 steps float32 stays within a few hundred
    roundings of float64."""
    frozen = reservoir()
    history, other, tokens = text(12, 3, 1), text(15, 3, 2), text(20, 3, 3)
    found = contraction.input_forgetting(prepare(frozen), history, other, tokens)
    for slot in range(3):
        one, two = (
            oracle.states(*oracle.matrices(frozen), np.concatenate([past, tokens])[:, slot])[-21:]
            for past in (history, other)
        )
        np.testing.assert_allclose(
            found.distance[:, slot],
            np.linalg.norm(one - two, axis=1),
            atol=300 * EPSILON * 90**0.5,
            rtol=0,
        )


def test_distances_are_of_membrane_potentials_and_of_all_layers():
    """W_rec = 0 and W_in = 0: a potential keeps 1 - a of itself a step, whatever it outputs."""
    layer = ReservoirLayer(
        np.zeros((40, 40), np.float32), np.zeros((40, V), np.float32), np.full(40, 0.25, np.float32)
    )
    upper = ReservoirLayer(
        np.zeros((40, 40), np.float32),
        np.zeros((40, 40), np.float32),
        np.full(40, 0.25, np.float32),
    )
    curve = contraction.state_contraction(
        prepare(Stack([layer, upper]), rule="leaky_membrane"), text(9, 4)
    )
    np.testing.assert_allclose(
        curve.distance, curve.distance[0] * 0.75 ** np.arange(10)[:, None], rtol=20 * EPSILON
    )
    np.testing.assert_allclose(curve.distance[0] ** 2 / 80, 2 / 3, atol=5 * np.sqrt(28 / 45 / 80))


def test_the_rate_of_a_linear_network_is_the_logarithm_of_its_radius():
    """Small states are a linear network's: with W = 0.8 Q, Q orthogonal, the distance is multiplied
    by 0.8 a step."""
    row, column, value = Orthogonal(degree=4).connect(64, 0.0, np.random.default_rng(0))
    w = np.zeros((64, 64), np.float32)
    w[row, column] = 0.8 * value
    curve = contraction.state_contraction(
        prepare(ReservoirLayer(w, np.zeros((64, V), np.float32), np.ones(64, np.float32))),
        text(60, 4),
    )
    assert curve.distance.shape == (61, 4)
    assert curve.fitted == (30, 60)
    # From step 30 on |h| is below 64^0.5 0.8^30 = 0.01, and tanh(x) = x (1 - x^2 / 3) nearly x
    # within 1e-4 / 3.
    assert curve.rate == pytest.approx(np.log(0.8), abs=1e-4)
    assert curve.rate_before == pytest.approx(np.log(0.8), abs=1e-2)


def test_start_states_are_spread_over_the_allowed_set():
    """Uniform in [-1, 1]^N: the expected squared distance of two is 2 N / 3."""
    frozen = reservoir(state_size=2000)
    start = contraction.state_contraction(prepare(frozen), text(2, 8)).distance[0]
    np.testing.assert_allclose(start**2 / 2000, 2 / 3, atol=5 * np.sqrt(28 / 45 / 2000))
    relu = contraction.state_contraction(prepare(frozen, "relu"), text(2, 8)).distance[0]
    np.testing.assert_allclose(relu**2 / 2000, 1 / 6, atol=5 * np.sqrt(7 / 180 / 2000))


def test_leaks_down_to_zero_forget_by_a_power_of_time():
    """W = 0 and a_i evenly spread in (0, 1): the mean of (1 - a)^(2 t) is 1 / (2 t + 1), no
    exponential."""
    leak = ((np.arange(2000) + 0.5) / 2000).astype(np.float32)
    cell = prepare(
        ReservoirLayer(np.zeros((2000, 2000), np.float32), np.zeros((2000, V), np.float32), leak)
    )
    curve = contraction.state_contraction(cell, text(100, 4))
    t = np.arange(101)[:, None]
    # Squared differences of two uniforms have mean 2 / 3 and relative variance 7 / 5; at step t, (2
    # t + 1)^2 / (4 t + 1) times fewer units than 2000 still count.
    spread = np.sqrt(7 / 5 * (2 * t + 1) ** 2 / (4 * t + 1) / 2000)
    assert (np.abs(curve.distance**2 / (2 / 3 * 2000 / (2 * t + 1)) - 1) < 4.5 * spread).all()
    assert curve.rate_before == pytest.approx(2 * curve.rate, rel=0.2)


@pytest.mark.parametrize("rho, contracts", [(0.4, True), (2.0, False)])
def test_contraction_is_told_from_none(rho, contracts):
    frozen = reservoir(
        state_size=300, mean_degree=10.0, spectral_radius=rho, input_scale=0.01, leak_min=1.0
    )
    curve = contraction.state_contraction(prepare(frozen), text(100, 4))
    assert (curve.rate < -0.05) == contracts
    assert (curve.distance[-1] > 1).all() != contracts


def test_a_distance_of_zero_ends_the_fit():
    """A nilpotent network forgets everything in three steps, and exactly."""
    w = np.diag(np.full(3, 0.5, np.float32), 1)
    chain = prepare(ReservoirLayer(w, np.full((4, V), 0.1, np.float32), np.ones(4, np.float32)))
    curve = contraction.state_contraction(chain, text(8, 2))
    assert (curve.distance[:4] > 0).all() and not curve.distance[4:].any()
    assert curve.fitted == (1, 3) and np.isfinite(curve.rate)
    reset = contraction.state_contraction(
        prepare(ReservoirLayer(0 * w, np.full((4, V), 0.1, np.float32), np.ones(4, np.float32))),
        text(8, 2),
    )
    assert reset.rate == -np.inf and reset.fitted == (0, 0)


def test_a_relu_network_that_overflows_is_still_reported():
    growing = prepare(
        ReservoirLayer(
            4 * np.eye(2, dtype=np.float32), np.ones((2, 1), np.float32), np.ones(2, np.float32)
        ),
        "relu",
    )
    curve = contraction.state_contraction(growing, np.zeros((80, 2), np.int32))
    assert (
        curve.rate == pytest.approx(np.log(4), rel=1e-3)
        and not np.isfinite(curve.distance[-1]).all()
    )
