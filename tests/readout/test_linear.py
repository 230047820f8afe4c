"""The readout: nn.Linear's initialisation, and a packed cross-entropy whose gradient is the textbook's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from esnlm.readout import linear
from esnlm.readout.linear import ReadoutConfig
from tests import oracle

N, V, C = 40, 77, 25
EPSILON = float(np.finfo(np.float32).eps)


def problem(rank, scale=1.0):
    rng = np.random.default_rng(0)
    readout = linear.initialize(ReadoutConfig(rank), N, V, seed=2)
    names = ("w", "bias") if rank is None else ("a", "b", "bias")
    params = {name: scale * getattr(readout, name)[...] for name in names}
    return params, rng.normal(size=(C, N)).astype(np.float32), rng.integers(0, V, C).astype(np.int32)


def relative(found, expected):
    return np.linalg.norm(np.asarray(found, np.float64) - expected) / np.linalg.norm(expected)


@pytest.mark.parametrize("scale", [1.0, 30.0])
@pytest.mark.parametrize("rank", [None, 7])
def test_loss_and_gradient_are_the_textbook_s(rank, scale):
    """At scale 30 the logits span hundreds of nats, where an exponential that is not shifted would overflow."""
    params, features, targets = problem(rank, scale)
    weights = np.full(C, 1 / C, np.float32)
    loss, gradient = jax.value_and_grad(linear.weighted_nll)(params, features, targets, weights, "float32")
    expected_loss, expected = oracle.mean_nll_and_gradient(params, features.astype(np.float64), targets)
    # Logits are sums of at most 47 products, each rounded: the error of exp and of the gradient grows with their size.
    tolerance = 50 * EPSILON * max(1.0, np.abs(oracle.logits(params, features)).max())
    assert loss == pytest.approx(expected_loss, rel=tolerance)
    for name in expected:
        assert relative(gradient[name], expected[name]) < tolerance


@pytest.mark.parametrize("rank", [None, 7])
def test_features_get_their_gradient_too(rank):
    params, features, targets = problem(rank)
    weights = np.random.default_rng(1).uniform(size=C).astype(np.float32)

    def plain(features):
        log_probs = jax.nn.log_softmax(linear.logits(params, features, "float32"))
        return -jnp.vdot(weights, log_probs[jnp.arange(C), targets])

    found = jax.grad(lambda features: linear.weighted_nll(params, features, targets, weights, "float32"))(features)
    assert relative(found, np.asarray(jax.grad(plain)(features), np.float64)) < 50 * EPSILON


def test_a_weight_of_zero_takes_no_part():
    """Padding, whatever lies in it, changes neither loss nor gradient."""
    params, features, targets = problem(7)
    weights = np.full(C, 1 / C, np.float32)
    padded = (
        np.vstack([features, 1e3 * features[:5]]),
        np.append(targets, targets[:5]),
        np.append(weights, np.zeros(5, np.float32)),
    )
    one = jax.value_and_grad(linear.weighted_nll)(params, features, targets, weights, "float32")
    two = jax.value_and_grad(linear.weighted_nll)(params, *padded, "float32")
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        assert relative(b, np.asarray(a, np.float64)) < 20 * EPSILON


@pytest.mark.parametrize("scale", [1.0, 30.0])
@pytest.mark.parametrize("rank", [None, 7])
def test_several_predictions_from_one_row_are_as_if_each_had_its_own(rank, scale):
    params, features, targets = problem(rank, scale)
    again = np.array([0, 3, 0, 0, 24])  # rows that are read once more, each with another target
    rows = np.concatenate([np.arange(C), again]).astype(np.int32)
    rng = np.random.default_rng(3)
    targets, weights = np.concatenate([targets, rng.integers(0, V, 5)]), np.full(C + 5, 1 / (C + 5), np.float32)
    loss, gradient = jax.value_and_grad(linear.weighted_nll)(params, features, targets, weights, "float32", rows)
    expected_loss, expected = oracle.mean_nll_and_gradient(params, features[rows].astype(np.float64), targets)
    tolerance = 50 * EPSILON * max(1.0, np.abs(oracle.logits(params, features)).max())
    assert loss == pytest.approx(expected_loss, rel=tolerance)
    for name in expected:
        assert relative(gradient[name], expected[name]) < tolerance
    found = jax.grad(linear.weighted_nll, argnums=1)(params, features, targets, weights, "float32", rows)
    apart = jax.grad(linear.weighted_nll, argnums=1)(params, features[rows], targets, weights, "float32")
    expected = np.zeros((C, N))
    np.add.at(expected, rows, np.asarray(apart, np.float64))
    assert relative(found, expected) < tolerance


@pytest.mark.parametrize("scale", [1.0, 30.0])
@pytest.mark.parametrize("rank", [None, 7])
def test_pairs_get_the_log_softmax(rank, scale):
    """Some rows have several targets, some none; at scale 30 some targets are hundreds of nats below the likeliest."""
    params, features, _ = problem(rank, scale)
    rng = np.random.default_rng(6)
    sources, targets = rng.integers(0, C, 40).astype(np.int32), rng.integers(0, V, 40).astype(np.int32)
    assert 0 < len(set(sources)) < C
    logits = oracle.logits(params, features.astype(np.float64))
    found = linear.pair_log_probs(params, features, sources, targets, "float32")
    # As above, but absolute: a log-probability near 0 is the difference of two large logits.
    np.testing.assert_allclose(
        found, oracle.log_softmax(logits)[sources, targets], rtol=0, atol=50 * EPSILON * max(1.0, np.abs(logits).max())
    )


def test_bf16_is_coarser_and_close():
    params, features, targets = problem(7)
    exact, rounded = (
        linear.pair_log_probs(params, features, np.arange(C), targets, precision) for precision in ("float32", "bf16")
    )
    assert not np.array_equal(exact, rounded)
    np.testing.assert_allclose(rounded, exact, rtol=5e-3)


@pytest.mark.parametrize("rank, bounds", [(16, {"a": 16, "bias": 16, "b": 200}), (None, {"w": 200, "bias": 200})])
def test_initialisation_is_nn_linear_s(rank, bounds):
    """Uniform between -1/sqrt(fan in) and 1/sqrt(fan in), the bias of W_out = A B with A's fan in, r."""
    readout = linear.initialize(ReadoutConfig(rank), 200, 3000, seed=0)
    for name, fan_in in bounds.items():
        values, bound = np.asarray(getattr(readout, name)), 1 / np.sqrt(fan_in)
        assert np.abs(values).max() <= bound
        assert abs(values.mean()) < 5 * bound / np.sqrt(3 * values.size)
        assert values.std() == pytest.approx(bound / np.sqrt(3), rel=5 / np.sqrt(values.size))
