"""The readout reads embeddings of the last tokens: each, in fading sums, and in a user's sums."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from esnlm.models.trunk import RecentTokensConfig, ids_of, sums_of_products
from esnlm.reservoir.arrays import arrays_by_name
from experiments.frozen_cells.attention import AttendedTokensConfig, AttentionConfig
from tests import deep_oracle

V, RANK, SENTENCE = 20, 6, [3, 7, 7, 0, 19, 3, 5]
EPS = float(np.finfo(np.float32).eps)
ATTENTION = AttentionConfig(heads=2, window=3)


TOKENS = {"count": 2, "decays": (0.9,), "window": 6}


@pytest.mark.parametrize(
    "config",
    [
        RecentTokensConfig(count=3, width=5),
        RecentTokensConfig(width=5, decays=(0.5, 1.0), window=4),
        AttendedTokensConfig(width=5, attention=ATTENTION, **TOKENS),
        AttendedTokensConfig(width=RANK, tied=True, attention=ATTENTION, **TOKENS),
    ],
)
def test_what_is_added_is_that_of_the_equations(config):
    layer = config.initialize(V, RANK, np.random.default_rng(0))
    heads = ATTENTION.heads if isinstance(config, AttendedTokensConfig) else 0
    weights = np.random.default_rng(1).random((len(SENTENCE), heads, 3)).astype(np.float32)
    ids = ids_of(jnp.asarray(deep_oracle.history(SENTENCE, 6), jnp.float32))
    others = weights.reshape(len(SENTENCE), -1)
    a = np.random.default_rng(2).normal(size=(V, RANK)).astype(np.float32)
    found = jax.jit(lambda *inputs: layer(*inputs, "float32"))(ids, others, a)
    params = deep_oracle.float64(arrays_by_name(layer))
    expected = deep_oracle.recent_tokens(
        *(params, SENTENCE, config.count, config.decays, config.window, weights if heads else None),
        a=np.float64(a) if config.tied else None,
    )
    # of a sum, of numbers of order 1
    terms = config.input_count * config.width * (np.sqrt(RANK) if config.tied else 1)
    np.testing.assert_allclose(found, expected, rtol=0, atol=4 * terms * EPS)
    trained = sum(array.size for array in arrays_by_name(layer).values())
    assert trained == config.parameters(V, RANK)


def test_a_gpu_s_sums_are_the_product_of_matrices():
    rng = np.random.default_rng(0)
    weights, vectors = rng.random((2, 5)), rng.normal(size=(7, 5, 3))
    expected = np.einsum("jm,cme->cje", weights, vectors)
    found = sums_of_products(*(jnp.asarray(x, jnp.float32) for x in (weights, vectors)))
    np.testing.assert_allclose(found, expected, rtol=0, atol=2 * 5 * EPS * np.abs(vectors).max())
