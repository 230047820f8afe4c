"""An n-gram residual: trained embeddings of the last n tokens, in hashed tables.

In a deep readout (in an LSTM h replaces B h), for some n, with c the `multiplier`:

    z = B h + c sum_n W_n G_n[hash(token_{t - n + 1}, ..., token_t)]

Different n-grams may share a row: a table is far smaller than the number of n-grams, and frequent
ones dominate their rows. Most n-grams of new text are rare or unseen; with `initial_scale` 0 their
rows add no noise. Rows that begin at 0 stay small for long, since AdamW moves a number by about the
learning rate per update; a `multiplier` above 1 helps.
"""

from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from pydantic import Field

from esnlm.base.settings import Count, NonNegative, Positive, settings
from esnlm.machine.matmul import matmul
from esnlm.models.trunk import initial

LONGEST = 8  # maximum tokens of an n-gram
Order = Annotated[int, Field(ge=2, le=LONGEST)]
FIRST_FACTOR, LAST_FACTOR = 0x9E3779B1, 0x85EBCA6B  # odd numbers with well-mixed bits


@settings
class HashedNgramsConfig:
    """Trained embeddings of n-grams."""

    orders: tuple[Order, ...] = ()  # values of n, each with its own table; []: no n-grams
    buckets: Count = 65536  # rows per table
    width: Count = 64  # size of an embedding
    # Initial standard deviation of the embeddings; 0: an n-gram with an untrained row adds nothing.
    initial_scale: NonNegative = 1.0
    # Factor on each embedding, initial value included; above 1 it enlarges the effect of an AdamW
    # step on a row.
    multiplier: Positive = 1.0

    @property
    def title(self) -> str:
        """The n-grams in a few words; `orders` must not be empty."""
        return f"{'-, '.join(map(str, self.orders))}-grams"

    @property
    def history(self) -> int:
        """Number of last tokens needed."""
        return max(self.orders, default=0)

    def parameters(self, rank: int) -> int:
        """Returns the number of trained entries."""
        return len(self.orders) * self.width * (self.buckets + rank)


class HashedNgrams(nnx.Module):
    """`tables` (orders, buckets, e), and `weights`, the weights of all tables side by side, (r,
    orders e)."""

    def __init__(self, config: HashedNgramsConfig, rank: int, rng: np.random.Generator) -> None:
        self.orders, self.multiplier, count = config.orders, config.multiplier, len(config.orders)
        self.tables = initial.normal(
            rng, count, config.buckets, config.width, scale=config.initial_scale
        )
        self.weights = initial.uniform(rng, count * config.width, rank, count * config.width)

    def __call__(self, ids: jax.Array, precision: str) -> jax.Array:
        """Returns the sum over n-grams that end with the newest token, (C, r), for ids (C, K),
        newest first."""
        tables = self.tables[...]
        found = [
            tables[i, buckets_of(ids[:, :n], tables.shape[1])] for i, n in enumerate(self.orders)
        ]
        return matmul(
            self.multiplier * jnp.concatenate(found, axis=1), self.weights[...], (1, 1), precision
        )


def buckets_of(ids: jax.Array, buckets: int) -> jax.Array:
    """Returns the bucket of each n-gram, (C,) int32, for ids (C, n), which are -1 before the
    sentence.

    It mixes each id in turn into 32 bits: exclusive or, a product, and a shift of the better mixed
    high bits downwards.
    """
    mixed = jnp.zeros(len(ids), jnp.uint32)
    for column in ids.T:
        mixed = (mixed ^ (column + 1).astype(jnp.uint32)) * jnp.uint32(FIRST_FACTOR)
        mixed ^= mixed >> 15
    mixed *= jnp.uint32(LAST_FACTOR)
    mixed ^= mixed >> 13
    return (mixed % jnp.uint32(buckets)).astype(jnp.int32)
