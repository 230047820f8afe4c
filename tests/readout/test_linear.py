"""The readout: nn.Linear's initialisation, and a packed cross-entropy whose gradient is the
textbook's."""

import jax
import numpy as np
import pytest

from esnlm.readout import cross_entropy, linear
from esnlm.readout.linear import ReadoutConfig
from tests import oracle

N, V, C = 40, 77, 25
EPSILON = float(np.finfo(np.float32).eps)
# some rows are read more than once, each time with another target
ROWS = np.array([*range(C), 0, 3, 0, 0, 24], np.int32)


@jax.jit
def loss_and_gradients(params, features, targets, weights, rows=None):
    """The loss, and its gradient in the readout and in the features."""
    nll = jax.value_and_grad(linear.weighted_nll, argnums=(0, 1))
    return nll(params, features, targets, weights, "float32", rows)


def problem(rank, scale=1.0):
    """A readout, features (C, N), and targets and weights of a prediction from each of ROWS."""
    rng = np.random.default_rng(0)
    readout = linear.initialize(ReadoutConfig(rank), N, V, seed=2)
    names = ("w", "bias") if rank is None else ("a", "b", "bias")
    params = {name: np.asarray(scale * getattr(readout, name)[...]) for name in names}
    features, targets = (
        rng.normal(size=(C, N)).astype(np.float32),
        rng.integers(0, V, len(ROWS)).astype(np.int32),
    )
    return params, features, targets, np.full(len(ROWS), 1 / len(ROWS), np.float32)


def tolerance(params, features):
    """Logits are sums of at most 47 products, each rounded: the error of exp and of the gradient
    grows with their size."""
    return 50 * EPSILON * max(1.0, np.abs(oracle.logits(params, features)).max())


def relative(found, expected):
    return np.linalg.norm(np.asarray(found, np.float64) - expected) / np.linalg.norm(expected)


@pytest.mark.parametrize(
    "rank, scale, device", [(None, 30.0, "cpu"), (7, 1.0, "cpu"), (7, 1.0, "gpu")]
)
def test_loss_and_gradients_are_the_textbook_s(rank, scale, device, monkeypatch):
    """At scale 30 the logits span hundreds of nats, where an exponential that is not shifted would
    overflow."""
    params, features, targets, weights = problem(rank, scale)
    if device == "gpu":  # which computes what a CPU falls back to
        monkeypatch.setattr(cross_entropy, "LARGEST_SUM", 0.0)
    traced_now = jax.jit(lambda *given: loss_and_gradients.__wrapped__(*given))
    loss, (gradient, of_features) = traced_now(params, features, targets, weights, ROWS)
    h = features[ROWS].astype(np.float64)
    expected_loss, expected = oracle.mean_nll_and_gradient(params, h, targets)
    assert loss == pytest.approx(expected_loss, rel=tolerance(params, features))
    for name in expected:
        assert relative(gradient[name], expected[name]) < tolerance(params, features)
    p = np.exp(oracle.log_softmax(oracle.logits(params, h)))
    p[np.arange(len(targets)), targets] -= 1
    w_out = params["w"] if rank is None else params["a"].astype(np.float64) @ params["b"]
    expected = np.zeros((C, N))
    np.add.at(expected, ROWS, p @ w_out / len(targets))
    assert relative(of_features, expected) < tolerance(params, features)


@pytest.mark.parametrize("rank", [7])
def test_a_weight_of_zero_takes_no_part(rank):
    """Padding, whatever lies in it, changes neither loss nor gradient; without rows each prediction
    has its own."""
    params, features, targets, weights = problem(rank)
    one = loss_and_gradients(params, features[ROWS], targets, weights)
    garbage, padding = 1e3 * features[:5], np.zeros(5, np.float32)
    padded = (
        np.vstack([features[ROWS], garbage]),
        np.append(targets, targets[:5]),
        np.append(weights, padding),
    )
    loss, (gradient, of_features) = loss_and_gradients(params, *padded)
    for a, b in zip(
        jax.tree.leaves(one),
        jax.tree.leaves((loss, (gradient, np.asarray(of_features)[:-5]))),
        strict=True,
    ):
        assert relative(b, np.asarray(a, np.float64)) < 20 * EPSILON
    assert not np.asarray(of_features)[-5:].any()


@pytest.mark.parametrize("rank, scale", [(None, 1.0), (7, 30.0)])
def test_pairs_get_the_log_softmax(rank, scale, monkeypatch):
    """Some rows have several targets, some none; at scale 30 some targets are hundreds of nats
    below the likeliest."""
    params, features, _, _ = problem(rank, scale)
    rng = np.random.default_rng(6)
    sources, targets = (
        rng.integers(0, C, 40).astype(np.int32),
        rng.integers(0, V, 40).astype(np.int32),
    )
    assert 0 < len(set(sources)) < C
    exact = oracle.log_softmax(oracle.logits(params, features.astype(np.float64)))[sources, targets]
    found = jax.jit(linear.pair_log_probs, static_argnums=4)(
        params, features, sources, targets, "float32"
    )
    # Absolute: a log-probability near 0 is the difference of two large logits.
    np.testing.assert_allclose(found, exact, rtol=0, atol=tolerance(params, features))
    if scale == 1:  # where a GPU computes what a CPU falls back to at scale 30
        monkeypatch.setattr(cross_entropy, "LARGEST_SUM", 0.0)
        as_on_gpu = jax.jit(lambda *given: linear.pair_log_probs(*given, "float32"))(
            params, features, sources, targets
        )
        np.testing.assert_allclose(as_on_gpu, exact, rtol=0, atol=tolerance(params, features))
        rounded = jax.jit(linear.pair_log_probs, static_argnums=4)(
            params, features, sources, targets, "bf16"
        )
        assert not np.array_equal(found, rounded)
        np.testing.assert_allclose(rounded, found, rtol=5e-3)


@pytest.mark.parametrize(
    "rank, bounds", [(16, {"a": 16, "bias": 16, "b": 200}), (None, {"w": 200, "bias": 200})]
)
def test_initialisation_is_nn_linear_s(rank, bounds):
    """Uniform between -1/sqrt(fan in) and 1/sqrt(fan in), the bias of W_out = A B with A's fan in,
    r."""
    readout = linear.initialize(ReadoutConfig(rank), 200, 3000, seed=0)
    for name, fan_in in bounds.items():
        values, bound = np.asarray(getattr(readout, name)), 1 / np.sqrt(fan_in)
        assert np.abs(values).max() <= bound
        assert abs(values.mean()) < 5 * bound / np.sqrt(3 * values.size)
        assert values.std() == pytest.approx(bound / np.sqrt(3), rel=5 / np.sqrt(values.size))
