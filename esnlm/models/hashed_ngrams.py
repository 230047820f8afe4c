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
from esnlm.features.recurrence import ArrayCell
from esnlm.machine.matmul import matmul
from esnlm.models import initial

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
    """`tables` (orders, buckets, e), and the `weights` of all side by side, (r, orders e)."""

    def __init__(self, config: HashedNgramsConfig, rank: int, rng: np.random.Generator) -> None:
        self.orders, self.multiplier = config.orders, config.multiplier
        tables, width = len(config.orders), len(config.orders) * config.width
        self.tables = initial.normal(
            rng, tables, config.buckets, config.width, scale=config.initial_scale
        )
        self.weights = initial.uniform(rng, width, rank, width)

    def __call__(self, ids: jax.Array, precision: str) -> jax.Array:
        """Returns the sum over n-grams that end with the newest token, (C, r), for ids (C, K)."""
        tables = self.tables[...]
        embeddings = [
            tables[i, hash_ngrams(ids[:, :n], tables.shape[1])] for i, n in enumerate(self.orders)
        ]
        vectors = self.multiplier * jnp.concatenate(embeddings, axis=1)
        return matmul(vectors, self.weights[...], (1, 1), precision)


def hash_ngrams(ids: jax.Array, buckets: int) -> jax.Array:
    """Returns the bucket of each n-gram, (C,) int32, for ids (C, n), -1 before the sentence.

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


class TokenHistory(ArrayCell):
    """A cell that remembers the last K tokens, the newest first: (K, B) float32.

    A feature is a token's id plus 1, or 0 before the sentence. Features are float32, which
    represents integers exactly up to 2^24, far beyond any vocabulary.
    """

    def __init__(self, count: int) -> None:
        self.output_size = count

    def embed(self, tokens: jax.Array, keep: jax.Array | None = None) -> jax.Array:
        return (tokens + 1).astype(jnp.float32)[None]  # (1, B)

    def advance(self, state: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.concatenate([x, state[:-1]])

    def through_time(
        self, x: jax.Array, positions: jax.Array, start: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Returns the last state and all outputs, (T, K, B), which are shifts of the tokens."""
        steps, count = len(x), self.output_size
        tokens = jnp.concatenate([start[::-1], x[:, 0]])  # (K + T, B)
        shifts = [
            jnp.where(positions >= k, tokens[count - k : count - k + steps], 0)
            for k in range(count)
        ]
        outputs = jnp.stack(shifts, axis=1)
        return outputs[-1], outputs


def ids_of(history: jax.Array) -> jax.Array:
    """Returns ids, (C, K) int32, from a TokenHistory's features; -1 before the sentence."""
    return history.astype(jnp.int32) - 1
