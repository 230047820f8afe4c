"""One product behind every kernel, against NumPy in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from esnlm.reservoir import sparse
from esnlm.reservoir.cell import TrainedInput
from esnlm.reservoir.weights import ReservoirConfig, initialize_reservoir
from tests import oracle

EPSILON = np.finfo(np.float32).eps


def reservoir(**settings):
    return initialize_reservoir(
        ReservoirConfig(**{"state_size": 150, "mean_degree": 9.0} | settings), vocab_size=41, seed=3
    ).reservoir


@pytest.mark.parametrize("columns", [1, 7])
@pytest.mark.parametrize("kernel", sparse.KERNELS)
def test_matmul_agrees_with_numpy(kernel, columns):
    w_rec = reservoir().w_rec
    h = np.random.default_rng(0).normal(size=(150, columns)).astype(np.float32)
    dense = oracle.dense(w_rec)
    product = jax.jit(sparse.matmul)(sparse.prepare(w_rec, kernel), jnp.asarray(h))
    # Each sum has at most 30 terms, so it errs by at most 30 roundings of its terms' total size.
    bound = 30 * EPSILON * (np.abs(dense) @ np.abs(h))
    assert (np.abs(np.asarray(product, np.float64) - dense @ h) <= bound + 1e-12).all()


@pytest.mark.parametrize("settings", [{}, {"mean_degree": 1.0}, {"connectivity": 0.5}])
def test_add_columns_adds_the_token_s_column(settings):
    w_in = reservoir(**settings)
    h = np.random.default_rng(0).normal(size=(150, 6)).astype(np.float32)
    tokens = np.array([0, 40, 7, 7, 0, 13], np.int32)
    expected = h + oracle.dense(w_in.w_in)[:, tokens]
    found = jax.jit(sparse.add_columns)(h, sparse.prepare_columns(w_in.stored_w_in), tokens)
    np.testing.assert_allclose(found, expected, rtol=2 * EPSILON, atol=2 * EPSILON)


@pytest.mark.parametrize(
    "rows, nonzeros, backend, kernel",
    [
        (65_536, 65_536 * 32, "cpu", "csr"),
        (4096, 4096**2, "cpu", "dense"),
        (1024, 32_768, "gpu", "dense"),
        (65_536, 2**21, "gpu", "fused"),
        (4096, 4096 * 32, "gpu", "fused"),
        (4096, 4096**2 // 20, "gpu", "dense"),
        (8192, 8192 * 32, "tpu", "dense"),
        (65_536, 2**21, "tpu", "bcoo"),
    ],
)
def test_the_kernel_is_chosen_for_the_backend(rows, nonzeros, backend, kernel):
    assert sparse.choose_kernel(rows, nonzeros, backend) == kernel


@pytest.mark.parametrize(
    "settings, kernel",
    [*(({}, kernel) for kernel in sparse.KERNELS), ({"connectivity": 0.5}, "csr")],
)
def test_gradients_flow_back_through_the_transpose(settings, kernel):
    """dL/dh = W^T dL/d(W h), and W h is what it was; a matrix stored dense stays so."""
    w_rec = reservoir(**settings)
    h, g = np.random.default_rng(0).normal(size=(2, 150, 7)).astype(np.float32)
    operator = sparse.prepare_differentiable(w_rec.stored_w_rec, kernel)

    @jax.jit
    def product_and_gradient(h, g):
        product, back = jax.vjp(lambda h: sparse.matmul(operator, h), h)
        return product, back(g)[0]

    product, gradient = product_and_gradient(h, g)
    dense = np.asarray(w_rec.stored_w_rec if settings else oracle.dense(w_rec.w_rec), np.float64)
    for found, matrix, x in ((product, dense, h), (gradient, dense.T, g)):
        terms = np.count_nonzero(matrix, axis=1).max()
        assert (
            np.abs(np.asarray(found, np.float64) - matrix @ x)
            <= terms * EPSILON * (np.abs(matrix) @ np.abs(x)) + 1e-12
        ).all()


@pytest.mark.parametrize("settings", [{}, {"mean_degree": 1.0}, {"connectivity": 0.5}])
def test_column_values_go_back_to_where_they_came_from(settings):
    """Other values in the trained table of W_in, the same positions; padding is not looked at."""
    w_in = reservoir(**settings).stored_w_in
    trained = TrainedInput(w_in)
    padding = False if trained.rows is None else trained.rows[...] == 150
    trained.values = nnx.Param(jnp.where(padding, jnp.nan, 2 * trained.values[...]))
    if trained.rows is None:
        assert np.array_equal(trained.matrix(), 2 * w_in)
    else:
        assert np.array_equal(trained.matrix().data, 2 * w_in.data)
        assert np.array_equal(trained.matrix().indices, w_in.indices)
