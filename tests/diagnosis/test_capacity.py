"""What states hold, against dense float64 NumPy and on networks whose answer is known."""

import numpy as np
import pytest
import scipy.linalg

from esnlm.base.errors import InputError
from esnlm.diagnosis import capacity
from esnlm.reservoir.cell import ReservoirLayer, Stack
from tests import oracle
from tests.diagnosis.small import EPSILON, V, prepare, reservoir, text


@pytest.mark.parametrize("leak", [1.0, 0.6])
def test_memory_capacity_of_a_linear_network_is_the_known_one(leak):
    """h(n) = sum_k M^k b u(n - k), so states have covariance S = sum_k c_k c_k^T, c_k = M^k b, and
    c_k with u(n - k).

    Ridge regression then has the weights w_k = (S + lambda I)^-1 c_k, and r_k^2 = (w_k c_k)^2 /
    (w_k S w_k).
    """
    size, ridge = 24, 1e-5
    w = np.random.default_rng(0).standard_normal((size, size))
    w = (0.8 * w / np.abs(np.linalg.eigvals(w)).max()).astype(np.float32)
    cell = prepare(
        ReservoirLayer(w, np.zeros((size, 1), np.float32), np.full(size, leak, np.float32))
    )
    found = capacity.memory_capacity(cell, delays=40, samples=16_000, input_scale=0.01, ridge=ridge)

    m, b = (
        (1 - leak) * np.eye(size) + leak * w.astype(np.float64),
        leak * capacity.driving_vector(cell, 0.01, 0).astype(np.float64),
    )
    s = scipy.linalg.solve_discrete_lyapunov(m, np.outer(b, b))
    c = np.array([np.linalg.matrix_power(m, k) @ b for k in range(1, 41)])
    weights = np.linalg.solve(s + ridge * np.trace(s) / size * np.eye(size), c.T).T
    expected = (weights * c).sum(1) ** 2 / np.einsum("ki,ij,kj->k", weights, s, weights)
    # A squared correlation r^2 over n samples has a standard error of 2 r (1 - r^2) / sqrt n, at
    # most 0.77 / sqrt n.
    np.testing.assert_allclose(found.by_delay, expected, atol=4.5 * 0.77 / np.sqrt(4000), rtol=0)
    assert found.total == pytest.approx(found.by_delay.sum())


def test_memory_capacity_of_a_ring():
    """A ring of N units with weight r holds N inputs: delays 0 .. N - 1 with r^2 = 1 - r^(2 N), and
    what wraps around.

    The input enters everywhere, through a vector whose Fourier transform has no zero, so that the
    delays can be told apart.
    """
    size, r = 12, 0.7
    w = np.zeros((size, size), np.float32)
    w[np.arange(size), np.arange(size) - 1] = r
    cell = prepare(ReservoirLayer(w, np.zeros((size, 1), np.float32), np.ones(size, np.float32)))
    found = capacity.memory_capacity(cell, delays=30, samples=8000, input_scale=0.01)
    assert (found.by_delay[: size - 1] > 0.99).all() and (found.by_delay[size:] < 0.02).all()
    assert found.total == pytest.approx(size - 1 + found.chance, abs=0.1)


def test_the_memory_of_a_small_network_is_measured_within_a_twentieth_and_is_below_its_units():
    """Slow units make the errors of neighbouring delays alike, so that they do not cancel in the
    sum."""
    cell = prepare(reservoir(state_size=64, mean_degree=32.0))
    totals = [capacity.memory_capacity(cell, seed=seed).total for seed in range(3)]
    assert np.std(totals, ddof=1) < 0.05 * np.mean(totals) and max(totals) < 64
    tiny = prepare(reservoir(state_size=4, mean_degree=4.0, leak_min=1.0))
    assert max(capacity.memory_capacity(tiny, seed=seed).total for seed in range(3)) < 4


@pytest.mark.parametrize(
    "size, samples", [(4, 16_384), (1024, 16_384), (4096, 32_768), (65_536, 2048)]
)
def test_samples_are_many_times_the_units_as_far_as_half_a_gigabyte_goes(size, samples):
    assert capacity.default_samples(size) == samples and 4 * size * samples <= 1 << 29


def test_both_forms_of_the_ridge_regression_are_the_same():
    rng = np.random.default_rng(0)
    x, y, test = rng.normal(size=(80, 60)) + 3, rng.normal(size=(80, 4)), np.arange(80) % 4 == 0
    # at most as many units as the 60 fitted samples: primal; with 30 samples: dual
    for columns in (59, 60):
        features = x[:, :columns]
        for kept in (slice(None), slice(0, 40)):
            xs, ys, ts = features[kept], y[kept], test[kept]
            train, mean = xs[~ts], xs[~ts].mean(0)
            centred, target = train - mean, ys[~ts] - ys[~ts].mean(0)
            smaller = centred.T @ centred if columns <= len(train) else centred @ centred.T
            level = 0.1 * np.trace(smaller) / len(smaller)
            weights = np.linalg.solve(
                centred.T @ centred + level * np.eye(columns), centred.T @ target
            )
            expected = (xs[ts] - mean) @ weights + ys[~ts].mean(0)
            np.testing.assert_allclose(
                capacity.predict_ridge(xs, ys, ts, 0.1), expected, atol=1e-10
            )


@pytest.mark.parametrize("value", [0.1, np.linspace(0, 1, 9)[:, None] * 1e-16 + 0.1])
@pytest.mark.parametrize("features", [3, 9])  # primal and dual form
def test_ridge_predicts_the_mean_if_features_are_equal_up_to_rounding(value, features):
    x, y, test = np.broadcast_to(value, (9, features)), np.arange(9.0)[:, None], np.arange(9) > 6
    predicted = capacity.predict_ridge(x, y, test, 0.0)
    assert predicted == pytest.approx(np.full((2, 1), 3.0))


def test_memory_capacity_with_fewer_samples_than_units():
    frozen = reservoir(state_size=400, mean_degree=10.0, leak_min=1.0)
    found = capacity.memory_capacity(prepare(frozen), delays=60, samples=320)
    assert found.chance == 60 / 80 and found.by_delay.shape == (60,)
    assert found.by_delay[:3].min() > 0.9 > 0.3 > found.by_delay[-10:].mean()


@pytest.mark.parametrize("decay", [1.0, 0.6])
def test_samples_are_the_states_and_saturation_is_that_of_the_activation(decay):
    frozen, tokens = reservoir(input_scale=3.0), text(30, 4)
    states_found, saturated = capacity.sample_states(prepare(frozen, decay=decay), tokens, 10)
    w, w_in, a = oracle.matrices(frozen)
    h, states, outputs = np.zeros((4, 90)), [], []
    for token in tokens:
        outputs.append(np.tanh(h @ w.T + w_in.T[token]))
        h = (1 - decay * a) * h + a * outputs[-1]
        states.append(h)
    np.testing.assert_allclose(
        states_found, np.concatenate(states[10:]), atol=300 * EPSILON, rtol=0
    )
    sizes = np.abs(outputs[10:])
    low, high = ((sizes > 0.99 + close).mean() for close in (300 * EPSILON, -300 * EPSILON))
    assert 0.005 < low * (1 - 1e-6) <= saturated <= high * (1 + 1e-6) < 1.05 * low


def test_samples_and_saturation_of_membranes_and_of_several_layers():
    """What is seen of a membrane is f's output itself; of a stack all layers count, each with its
    own leak outside of f."""
    frozen, tokens = reservoir(input_scale=9.0, layers=2), text(30, 4)
    layers = [oracle.matrices(layer) for layer in frozen.layers]
    for rule in ("leaky_output", "leaky_membrane"):
        states_found, saturated = capacity.sample_states(prepare(frozen, rule=rule), tokens, 10)
        states = np.stack(
            [oracle.stacked_states(layers, np.eye(V)[slot], rule) for slot in tokens.T], axis=1
        )  # (T, B, 2 N)
        np.testing.assert_allclose(
            states_found, np.concatenate(states[10:]), atol=300 * EPSILON, rtol=0
        )
        outputs = states
        if rule == "leaky_output":
            before, given = (
                np.concatenate([0 * states[:1], states[:-1]]),
                [np.eye(V)[tokens], states[..., :90]],
            )
            parts = zip(layers, np.split(before, 2, axis=-1), given, strict=True)
            outputs = np.concatenate(
                [np.tanh(h @ w_rec.T + d @ w_in.T) for (w_rec, w_in, _), h, d in parts], axis=-1
            )
        low, high = (
            (np.abs(outputs[10:]) > 0.99 + close).mean()
            for close in (300 * EPSILON, -300 * EPSILON)
        )
        assert 0.005 < low * (1 - 1e-6) <= saturated <= high * (1 + 1e-6) < 1.05 * low


def test_the_memory_of_a_stack_is_that_of_all_its_layers():
    """A second layer that hears nothing adds nothing, but halves the mean diagonal that the ridge
    is relative to."""
    one = reservoir()
    deaf = ReservoirLayer(one.stored_w_rec, np.zeros((90, 90), np.float32), one.leak[...])
    alone = capacity.memory_capacity(prepare(one), samples=512, ridge=1e-6)
    both = capacity.memory_capacity(prepare(Stack([one, deaf])), samples=512, ridge=2e-6)
    assert both.total == pytest.approx(alone.total, rel=1e-6)


@pytest.mark.parametrize("shape", [(30, 50), (50, 30), (20, 5000)])
def test_effective_rank_is_that_of_the_singular_values(shape):
    states = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    p = np.linalg.svd(states.astype(np.float64), compute_uv=False)
    p /= p.sum()
    assert capacity.effective_rank(states) == pytest.approx(
        np.exp(-(p * np.log(p)).sum()), rel=1e-9
    )


def test_effective_rank_of_known_states():
    assert capacity.effective_rank(np.eye(7, 11)) == pytest.approx(7)
    assert capacity.effective_rank(np.ones((7, 11))) == pytest.approx(1, abs=1e-5)
    with pytest.raises(InputError, match="all states are 0"):
        capacity.effective_rank(np.zeros((3, 4)))


def test_states_that_overflow_hold_nothing():
    growing = prepare(reservoir(spectral_radius=9.0, leak_min=1.0), "relu")
    with pytest.raises(
        InputError,
        match="memory capacity: the states grow beyond float32; lower the spectral radius",
    ):
        capacity.memory_capacity(growing, samples=64)
    with pytest.raises(
        InputError,
        match="effective rank: the states grow beyond float32; lower the spectral radius",
    ):
        capacity.effective_rank(np.asarray(capacity.sample_states(growing, text(200, 2))[0]))
