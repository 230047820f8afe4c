"""The kernel that makes a cross-entropy without logits, in Pallas's interpreter: it is the plain one, and the textbook's."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from esnlm.compute import ComputeConfig, choose_compute
from esnlm.errors import InputError
from esnlm.models.echo_state import EchoStateConfig
from esnlm.readout import cross_entropy, fused_cross_entropy, linear
from esnlm.readout.linear import ReadoutConfig
from tests import oracle

EPSILON = {
    "float32": 2.0**-23,
    "tf32": 2.0**-10,
    "bf16": 2.0**-7,
}  # between a number and the next, as products see them
AGAIN = np.array([0, 3, 0, 0, 20])  # rows that are read once more, each with another target


def problem(columns=20, vocab_size=77, rows=27, scale=1.0):
    rng = np.random.default_rng(0)
    z, w = rng.normal(size=(rows, columns)), scale * rng.normal(size=(vocab_size, columns)) / np.sqrt(columns)
    sources = np.concatenate([np.arange(rows), AGAIN])
    weights = rng.uniform(size=len(sources))
    weights[[2, 5, -1]] = 0
    arrays = (z, w, rng.normal(size=vocab_size), rng.integers(0, vocab_size, len(sources)), weights, sources)
    return tuple(jnp.asarray(array, jnp.int32 if array.dtype == int else jnp.float32) for array in arrays)


def textbook(z, w, bias, targets, weights, sources):
    """Returns the loss and its gradient in z, w and bias, in float64."""
    z, w, bias, weights = (np.asarray(array, np.float64) for array in (z, w, bias, weights))
    targets, sources = np.asarray(targets), np.asarray(sources)
    log_probs = oracle.log_softmax(z[sources] @ w.T + bias)
    slope = weights[:, None] * (np.exp(log_probs) - np.eye(len(w))[targets])  # (P, V)
    dz = np.zeros_like(z)
    np.add.at(dz, sources, slope @ w)
    picked = log_probs[np.arange(len(targets)), targets]
    return -weights @ picked, (dz, slope.T @ z[sources], slope.sum(axis=0)), picked


def relative(found, expected):
    return np.linalg.norm(np.asarray(found, np.float64) - expected) / np.linalg.norm(expected)


def loss_and_gradient(kernel, precision, *arrays):
    function = jax.value_and_grad(cross_entropy.weighted_nll, argnums=(0, 1, 2))
    return jax.jit(function, static_argnums=(6, 7))(*arrays, precision, kernel)


@pytest.mark.parametrize("precision", ["float32", pytest.param("tf32", marks=pytest.mark.slow), "bf16"])
@pytest.mark.parametrize("scale", [pytest.param(1.0, marks=pytest.mark.slow), 40.0])
def test_it_is_the_textbook_s_in_float64(scale, precision):
    """77 tokens and 27 rows fill no tile. At scale 40 losses pass 100 nats, and exponentials are relative to the maximum."""
    arrays = problem(scale=scale)
    expected_loss, expected, picked = textbook(*arrays)
    if scale > 1:
        assert picked.min() < -70  # beyond LARGEST_SUM
    loss, found = loss_and_gradient("fused", precision, *arrays)
    # A logit is a sum of rounded products, and exp makes its absolute error a relative one.
    tolerance = 4 * EPSILON[precision] * max(1, scale)
    assert loss == pytest.approx(expected_loss, rel=tolerance)
    for part, its in zip(found, expected, strict=True):
        assert part.shape == its.shape
        assert relative(part, its) < tolerance


@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
@pytest.mark.parametrize(
    ("columns", "vocab_size", "rows"), [(16, 128, 64), pytest.param(7, 300, 130, marks=pytest.mark.slow)]
)
def test_it_is_the_plain_one_up_to_the_order_of_sums(columns, vocab_size, rows, precision):
    """Both round the same factors, but scale and E to the rows of Z in another order: one more rounding of a product."""
    arrays = problem(columns, vocab_size, rows)
    (plain_loss, plain), (loss, found) = (
        loss_and_gradient(kernel, precision, *arrays) for kernel in ("plain", "fused")
    )
    tolerance = 0.5 * EPSILON[precision] if precision != "float32" else 20 * EPSILON["float32"]
    assert loss == pytest.approx(float(plain_loss), rel=tolerance)
    for part, its in zip(found, plain, strict=True):
        assert relative(part, np.asarray(its, np.float64)) < tolerance


@pytest.mark.parametrize("precision", ["float32", pytest.param("bf16", marks=pytest.mark.slow)])
@pytest.mark.parametrize("scale", [pytest.param(1.0, marks=pytest.mark.slow), 40.0])
def test_log_probs_of_pairs_are_the_textbook_s(scale, precision):
    z, w, bias, targets, weights, sources = problem(scale=scale)
    keep = np.asarray(sources) != 4  # a row that nothing is predicted from
    expected = textbook(z, w, bias, targets, weights, sources)[2][keep]
    found = cross_entropy.pair_log_probs(z, w, bias, sources[keep], targets[keep], precision, "fused")
    np.testing.assert_allclose(found, expected, atol=8 * EPSILON[precision] * max(1, scale))


@pytest.mark.slow
def test_rows_that_are_padding_change_nothing():
    arrays = problem()
    z, w, bias, *rest = arrays
    padded = z, jnp.pad(w, ((0, 51), (0, 0))), jnp.pad(bias, (0, 51), constant_values=-1e30), *rest
    loss, (dz, dw, dbias) = loss_and_gradient("fused", "float32", *arrays)
    also_loss, (also_dz, also_dw, also_dbias) = loss_and_gradient("fused", "float32", *padded)
    assert also_loss == pytest.approx(float(loss), rel=1e-6)
    for found, expected in ((also_dz, dz), (also_dw[:77], dw), (also_dbias[:77], dbias)):
        assert relative(found, np.asarray(expected, np.float64)) < 1e-6
    assert not np.any(also_dw[77:]) and not np.any(also_dbias[77:])


def test_what_is_not_a_number_is_seen():
    z, *rest = problem()
    loss, gradient = loss_and_gradient("fused", "float32", z.at[3, 4].set(jnp.nan), *rest)
    assert not np.isfinite(loss) and not np.isfinite(gradient[1]).all()


def test_the_readout_hands_it_on():
    readout = linear.initialize(ReadoutConfig(5), 12, 77, seed=2)
    params = {name: getattr(readout, name)[...] for name in ("a", "b", "bias")}
    features = np.random.default_rng(0).normal(size=(9, 12)).astype(np.float32)
    targets, weights = np.arange(9, dtype=np.int32), np.ones(9, np.float32)
    plain, fused = (
        linear.weighted_nll(params, features, targets, weights, "float32", None, kernel)
        for kernel in ("plain", "fused")
    )
    assert fused == pytest.approx(float(plain), rel=1e-6)
    pairs = (linear.pair_log_probs(params, features, jnp.arange(9), targets, "float32", "fused").sum(), -plain)
    assert pairs[0] == pytest.approx(float(pairs[1]), rel=1e-6)


# ---- which one a run chooses


def test_the_bound_is_worked_out_by_hand():
    """An update of the papers in bf16: the cache bounds both launches of the fused one, and memory all that plain does."""
    m, n, r = 656, 50_257, 512
    # W is converted. Logits are written, read, written as E in bf16, which is read twice, and read for the bias.
    plain = (4 + 2 + 2 + 2 + 4) * n * r + (4 + 4 + 2 + 2 + 2 + 4) * m * n
    assert fused_cross_entropy.bound("plain", m, n, r, "bf16") == pytest.approx(plain / 3.35e12)
    tiles_read = 2 * m * n * r / 64  # by each launch, beside W, and in the second the gradient
    expected = (4 + 2) * n * r / 3.35e12 + (2 * tiles_read + (2 + 2 + 4) * n * r) / 5.5e12
    assert fused_cross_entropy.bound("fused", m, n, r, "bf16") == pytest.approx(expected)


def test_auto_is_decided_by_the_bound_and_plain_off_a_gpu():
    def chosen(backend, precision, rank):
        model = EchoStateConfig(readout=ReadoutConfig(rank))
        return choose_compute(ComputeConfig(precision=precision), model, backend).cross_entropy

    assert [chosen("gpu", precision, 512) for precision in ("float32", "tf32", "bf16")] == ["plain", "plain", "fused"]
    assert chosen("gpu", "tf32", 64) == "fused"
    assert chosen("gpu", "bf16", None) == "plain"  # 4,096 features: too wide for a tile
    assert {chosen(backend, "bf16", 512) for backend in ("cpu", "tpu")} == {"plain"}


@pytest.mark.parametrize(
    ("backend", "rank", "line"),
    [
        ("cpu", 512, "compute.cross_entropy is fused: it is for GPUs, and JAX computes on a cpu here; choose auto"),
        (
            *("gpu", 513),
            "compute.cross_entropy is fused: the readout of this model has 513 columns, and the kernel takes at most 512;"
            " choose auto",
        ),
    ],
)
def test_a_kernel_that_cannot_be_had_is_refused(backend, rank, line):
    model = EchoStateConfig(readout=ReadoutConfig(rank))
    with pytest.raises(InputError) as refusal:
        choose_compute(ComputeConfig(cross_entropy="fused"), model, backend)
    assert str(refusal.value) == line


def test_an_unknown_name_is_refused():
    with pytest.raises(InputError, match="^compute.cross_entropy is 'flash': choose auto, plain, fused$"):
        ComputeConfig(cross_entropy="flash").check()


@pytest.mark.slow
def test_pallas_is_imported_by_the_kernel_alone():
    program = "import sys, esnlm.training.loop; sys.exit('jax.experimental.pallas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
