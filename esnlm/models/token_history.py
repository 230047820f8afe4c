"""The last tokens as features, for trained embeddings above the frozen cells."""

import jax
import jax.numpy as jnp

from esnlm.features.recurrence import ArrayCell


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
        """Returns the last state and all outputs, (T, K, B), as ThroughTime describes
        (features/recurrence.py).

        They are shifts of the tokens, so no loop over time is needed.
        """
        steps, count = len(x), self.output_size
        tokens = jnp.concatenate([start[::-1], x[:, 0]])  # (K + T, B)
        shifts = [
            jnp.where(positions >= k, tokens[count - k : count - k + steps], 0)
            for k in range(count)
        ]
        outputs = jnp.stack(shifts, axis=1)
        return outputs[-1], outputs


def ids_of(features: jax.Array) -> jax.Array:
    """Returns the ids, (C, K) int32, from features of a TokenHistory, (C, K); -1 before the
    sentence."""
    return features.astype(jnp.int32) - 1
