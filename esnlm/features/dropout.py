"""Dropout with masks that depend on the token, not on its batch or slot.

A token's key is derived from the seed, the epoch and the token's corpus position, one number for
its sentence and its position in it. So precomputed features, made in another order, get the same
masks as features inside the gradient.
"""

import jax
import jax.numpy as jnp

from esnlm.base.rng import Stream

# Sites of the masks in a recurrent model (Ueda et al. 2025b): right after the input, and right
# before the readout.
INPUT, OUTPUT = range(2)


def epoch_key(seed: int, epoch: int) -> jax.Array:
    """Returns the key for the masks of an epoch."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), Stream.DROPOUT), epoch)


def token_keys(key: jax.Array, corpus_positions: jax.Array) -> jax.Array:
    """Returns one key per token, in the shape of `corpus_positions` (uint32)."""
    flat = jax.vmap(lambda position: jax.random.fold_in(key, position))(
        corpus_positions.reshape(-1)
    )
    return flat.reshape(corpus_positions.shape)


def mask(keys: jax.Array, site: int | jax.Array, width: int, rate: float) -> jax.Array:
    """Returns 0 with probability `rate`, else 1 / (1 - rate): (..., width) float32, for keys (...).

    Args:
        keys: one per token, from `token_keys`.
        site: INPUT, OUTPUT or another number. Masks of one token differ between sites.
        width: size of a mask.
        rate: probability of a 0.
    """

    def is_kept(key: jax.Array) -> jax.Array:
        return jax.random.bits(jax.random.fold_in(key, site), (width,)) >= jnp.uint32(rate * 2**32)

    keep = jax.vmap(is_kept)(keys.reshape(-1)).reshape(*keys.shape, width)
    return jnp.where(keep, jnp.float32(1 / (1 - rate)), jnp.float32(0))
