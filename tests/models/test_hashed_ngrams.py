"""N-grams have trained embeddings, which a hash looks up."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from esnlm.models.trunk import HashedNgrams, HashedNgramsConfig, hash_ngrams, ids_of
from esnlm.reservoir.arrays import arrays_by_name
from esnlm.training.config import TrainingConfig
from esnlm.training.optimizer import make_optimizer
from tests import deep_oracle

V, RANK, SENTENCE = 20, 6, [3, 7, 7, 0, 19, 3, 7, 7]
EPS = float(np.finfo(np.float32).eps)


@pytest.mark.parametrize("multiplier", [1.0, 8.0])
def test_what_is_added_is_that_of_the_equations(multiplier):
    config = HashedNgramsConfig(orders=(2, 4), buckets=50, width=5, multiplier=multiplier)
    layer = HashedNgrams(config, RANK, np.random.default_rng(0))
    ids = ids_of(jnp.asarray(deep_oracle.history(SENTENCE, 6), jnp.float32))
    found = jax.jit(lambda ids: layer(ids, "float32"))(ids)
    expected = deep_oracle.ngrams(
        deep_oracle.float64(arrays_by_name(layer)), SENTENCE, config.orders, multiplier
    )
    np.testing.assert_allclose(
        found, expected, rtol=0, atol=multiplier * 4 * 2 * config.width * EPS
    )
    assert sum(array.size for array in arrays_by_name(layer).values()) == config.parameters(RANK)


@pytest.mark.parametrize("scale", [0.0, 0.5])
def test_tables_begin_with_numbers_of_the_scale(scale):
    layer = HashedNgrams(HashedNgramsConfig((2,), 5_000, 4, scale), RANK, np.random.default_rng(0))
    numbers = np.asarray(layer.tables[...])
    # Of n numbers the standard deviation is off by its share of 1 / sqrt(2 n), and here by at most
    # five of these.
    assert numbers.std() == pytest.approx(scale, rel=5 / np.sqrt(2 * numbers.size))


def test_what_adamw_teaches_a_row_counts_for_more_by_the_multiplier():
    """Tables begin at 0 and only rows of n-grams that were read learn. Whatever the size of a
    gradient, AdamW's step is one."""
    added, ids, optimizer = (
        [],
        jnp.array([[3, 7], [7, 3]], jnp.int32),
        make_optimizer(TrainingConfig()),
    )
    for multiplier in (1.0, 8.0):
        layer = HashedNgrams(
            HashedNgramsConfig((2,), 10_000, 4, 0.0, multiplier), RANK, np.random.default_rng(0)
        )
        graph, params, rest = nnx.split(layer, nnx.Param, ...)

        def add(params, graph=graph, rest=rest):
            return nnx.merge(graph, params, rest)(ids, "float32")

        @jax.jit
        def update(params, add=add):
            gradient = jax.grad(lambda params: add(params).sum())(params)
            step, _ = optimizer.update(
                gradient, optimizer.init(params), params, rates=(jnp.float32(0.01),)
            )
            return add(params), gradient, add(optax.apply_updates(params, step))

        before, gradient, after = update(params)
        assert not before.any()
        trained = {deep_oracle.bucket(ngram, 10_000) for ngram in ([4, 8], [8, 4])}
        assert set(np.flatnonzero(np.abs(gradient["tables"][...][0]).sum(axis=1))) == trained
        added.append(np.asarray(after))
    # The least gradient is 0.2, beside which AdamW's epsilon of 1e-8 is less than float32's
    # rounding. About ten roundings follow.
    np.testing.assert_allclose(
        added[1], 8 * added[0], rtol=0, atol=10 * EPS * np.abs(added[1]).max()
    )
    assert np.abs(added[0]).max() > 1e-3


def test_the_order_of_the_tokens_matters():
    forth, back = (deep_oracle.bucket(ngram, 10_000) for ngram in ([4, 8], [8, 4]))
    assert forth != back
    found = hash_ngrams(jnp.array([[3, 7], [7, 3]], jnp.int32), 10_000)
    np.testing.assert_array_equal(found, [forth, back])


def test_ngrams_spread_over_the_buckets_as_random_numbers_do():
    ids = (
        np.stack(np.meshgrid(np.arange(200), np.arange(200)), axis=-1)
        .reshape(-1, 2)
        .astype(np.int32)
    )
    for buckets in (64, 100):
        counts = np.bincount(hash_ngrams(jnp.asarray(ids), buckets), minlength=buckets)
        mean = len(ids) / buckets
        chi_squared = ((counts - mean) ** 2 / mean).sum()
        # Of random numbers it has the mean buckets - 1 and the variance 2 (buckets - 1). Far fewer
        # would be no harm.
        assert chi_squared < buckets - 1 + 5 * np.sqrt(2 * (buckets - 1))
