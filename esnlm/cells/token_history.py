"""The last tokens as features: so that what is trained above can look them up."""

import jax
import jax.numpy as jnp
from flax import nnx


class TokenHistory(nnx.Module):
    """A cell that remembers the last K tokens, the newest first: (K, B) float32.

    A feature is a token's id plus 1, and 0 before the sentence began. Features are float32, in which whole numbers are exact
    up to 2^24: far more than any vocabulary has.
    """

    def __init__(self, count: int) -> None:
        self.output_size = self.mask_size = count

    def initial_state(self, slots: int) -> jax.Array:
        return jnp.zeros((self.output_size, slots), jnp.float32)

    def embed(self, tokens: jax.Array, keep: jax.Array | None = None) -> jax.Array:
        return (tokens + 1).astype(jnp.float32)[None]  # (1, B)

    def advance(self, state: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.concatenate([x, state[:-1]])

    def through_time(self, x: jax.Array, positions: jax.Array) -> jax.Array:
        """Returns the last tokens after each token, (T, K, B), of what `embed` gave, (T, 1, B), and the positions (T, B).

        They are shifts of the tokens, so that no loop over time is needed.
        """
        shifts = [jnp.where(positions >= k, jnp.roll(x[:, 0], k, axis=0), 0) for k in range(self.output_size)]
        return jnp.stack(shifts, axis=1)

    def step(self, state: jax.Array, tokens: jax.Array) -> jax.Array:
        return self.advance(state, self.embed(tokens))

    def output(self, state: jax.Array) -> jax.Array:
        return state


def ids_of(features: jax.Array) -> jax.Array:
    """Returns the ids (C, K) int32 that a TokenHistory wrote as features (C, K); -1 before the sentence began."""
    return features.astype(jnp.int32) - 1
