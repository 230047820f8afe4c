"""Dropout whose masks depend on the token they fall on, never on the batch or slot that the token is in.

A token's key is derived from the seed, the epoch and the token's place in the corpus, which stands for its sentence and
its position in one number. So features computed ahead of the optimizer, in another order and beside other sentences,
are dropped exactly as without it.
"""

import jax
import jax.numpy as jnp

from esnlm.errors import InputError
from esnlm.rng import Stream

# Where in a recurrent model a mask falls (S2): right after the embedding, and right before the output layer.
INPUT, OUTPUT = range(2)


def check_rate(rate: float, field: str) -> None:
    """Raises InputError for a rate that no dropout can have."""
    if not 0 <= rate < 1:
        raise InputError(f"{field} is {rate}: it must be at least 0 and below 1")


def epoch_key(seed: int, epoch: int) -> jax.Array:
    """The key from which an epoch's masks are drawn."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), Stream.DROPOUT), epoch)


def token_keys(key: jax.Array, corpus_positions: jax.Array) -> jax.Array:
    """One key a token, in the shape of corpus_positions (uint32)."""
    flat = jax.vmap(lambda place: jax.random.fold_in(key, place))(corpus_positions.reshape(-1))
    return flat.reshape(corpus_positions.shape)


def mask(keys: jax.Array, site: int, width: int, rate: float) -> jax.Array:
    """0 with probability `rate`, else 1 / (1 - rate), (..., width) float32, for keys (...).

    Args:
        site: INPUT or OUTPUT, so that the two masks of a token differ.
    """

    def draw(key):
        return jax.random.bits(jax.random.fold_in(key, site), (width,)) >= jnp.uint32(rate * 2**32)

    kept = jax.vmap(draw)(keys.reshape(-1)).reshape(*keys.shape, width)
    return jnp.where(kept, jnp.float32(1 / (1 - rate)), jnp.float32(0))
