"""The ways around XLA compute what they would without it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from esnlm.machine import xla


@pytest.mark.parametrize("done", [jnp.full(3, jnp.nan), jnp.full((2, 2), jnp.inf)], ids=str)
def test_what_waits_and_what_is_laid_out_is_not_changed(done):
    x = np.array([jnp.nan, 1.0, 2.0], np.float32)
    np.testing.assert_array_equal(jax.jit(xla.after)(x, done), x)
    np.testing.assert_array_equal(jax.jit(lambda x: xla.laid_out(x[None].T))(x), x[:, None])


@pytest.mark.parametrize("width", [1, 3, 1001])
def test_row_sums(width):
    x = np.random.default_rng(0).uniform(size=(5, width)).astype(np.float32)
    np.testing.assert_allclose(xla.row_sums(x), x.sum(axis=1, dtype=np.float64), rtol=1e-6)


@pytest.mark.parametrize("good", [True, False])
def test_a_fallback_is_taken_only_where_it_is_needed(good):
    value, other = (jnp.zeros(2), jnp.int32(1)), (jnp.ones(2), jnp.int32(2))
    found = jax.jit(lambda good: xla.or_else(value, good, lambda: other))(jnp.bool(good))
    assert jax.tree.all(jax.tree.map(np.array_equal, found, value if good else other))
