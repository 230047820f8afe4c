"""Attention with frozen keys: similarities of the state to earlier states, as features.

    k_t = P h_t / |P h_t|   for each head, with a frozen random P (d, N), N(0, 1)
    a_{t,m} = exp(beta k_t . k_{t - m}) / sum over m' = 1 .. L within the sentence,   m = 1 .. L

Queries and keys are the same, so that a state attends to similar states. The token t - m + 1
followed the state t - m: the trunk adds up trained embeddings of these tokens, with the weights a,
and multiplies each head's sum by a matrix of its own. Frozen keys with trained values are [ours].
"""

from dataclasses import field

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from esnlm.base.settings import Count, Natural, NonNegative, settings
from esnlm.features.recurrence import State
from esnlm.machine.matmul import einsum, matmul
from esnlm.models.deep_readout import SideBySide
from esnlm.models.trunk import RecentTokens, RecentTokensConfig
from esnlm.reservoir.arrays import Frozen

TINY = 1e-12  # added to the square of |P h|, so that a state of zeros has keys of zeros


@settings
class AttentionConfig:
    """Attention over past states with frozen random keys."""

    heads: Natural = 0  # number of heads, each with its own projection; 0: none
    window: Count = 16  # L, number of past states that a head attends to
    width: Count = 32  # d, size of a key
    sharpness: NonNegative = 8.0  # beta, factor of the scores in the softmax; 0: equal weights

    @property
    def weights(self) -> int:
        """Number of features."""
        return self.heads * self.window

    @property
    def keys(self) -> int:
        """Number of entries of the keys of all heads."""
        return self.heads * self.width

    def initialize(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """Returns P of all heads, (heads d, N), for states of size N."""
        return rng.standard_normal((self.keys, size), np.float32)


@settings
class AttendedTokensConfig(RecentTokensConfig):
    """Trained embeddings of the last tokens, also weighted by attention."""

    attention: AttentionConfig = field(default_factory=AttentionConfig)

    @property
    def input_count(self) -> int:
        return super().input_count + self.attention.heads

    @property
    def titles(self) -> list[str]:
        heads, tied = self.attention.heads, "tied " if self.tied else ""
        attended = [f"attention {heads} to {tied}tokens of {self.width}"] if heads else []
        return attended + super().titles

    @property
    def history(self) -> int:
        return max(super().history, self.attention.window if self.attention.heads else 0)

    def initialize(self, vocab_size: int, rank: int, rng: np.random.Generator) -> "AttendedTokens":
        return AttendedTokens(self, vocab_size, rank, rng)


class AttendedTokens(RecentTokens):
    """Recent tokens with a further vector for each head of attention."""

    config: AttendedTokensConfig

    def input_vectors(
        self, ids: jax.Array, others: jax.Array, a: jax.Array, precision: str
    ) -> jax.Array:
        inputs, attention = super().input_vectors(ids, others, a, precision), self.config.attention
        if not attention.heads:
            return inputs
        weights = others.reshape(-1, attention.heads, attention.window)  # (C, heads, L)
        embeddings = self.embed(ids[:, : attention.window], a)  # (C, L, e)
        attended = einsum("chl,cle->che", weights, embeddings, precision)
        return jnp.concatenate([inputs, attended], axis=1)


class Attention(nnx.Module):
    """A cell above other cells. Its features are theirs, followed by the weights a, head by head,
    (F + heads L, B).

    The state is the state of these cells, the keys of the last L + 1 states, newest first, and the
    number of tokens read. `projection` is P, (heads d, N), and reads the first N features of the
    cells.
    """

    def __init__(
        self, cells: SideBySide, projection: jax.typing.ArrayLike, config: AttentionConfig
    ) -> None:
        self.cells, self.projection, self.config = cells, Frozen(jnp.asarray(projection)), config

    @property
    def output_size(self) -> int:
        return self.cells.output_size + self.config.weights

    @property
    def mask_size(self) -> int:
        return self.cells.mask_size

    @property
    def nonzeros(self) -> int:
        """Number of frozen nonzeros."""
        return self.cells.nonzeros + self.projection[...].size

    def for_device(self, kernel: str, *, state_precision: str = "float32") -> "Attention":
        cells = self.cells.for_device(kernel, state_precision=state_precision)
        return Attention(cells, self.projection[...], self.config)

    def initial_state(self, slots: int) -> State:
        keys = jnp.zeros(((self.config.window + 1) * len(self.projection[...]), slots), jnp.float32)
        return self.cells.initial_state(slots), keys, jnp.zeros((1, slots), jnp.float32)

    def embed(self, tokens: jax.Array, keep: jax.Array | None = None) -> tuple:
        return self.cells.embed(tokens, keep)

    def advance(self, state: State, x: tuple) -> State:
        return self._remember(self.cells.advance(state[0], x), state)

    def step(self, state: State, tokens: jax.Array) -> State:
        return self._remember(self.cells.step(state[0], tokens), state)

    def output(self, state: State) -> jax.Array:
        inner, keys, read = state
        heads, window = self.config.heads, self.config.window
        keys = keys.reshape(window + 1, heads, self.config.width, -1)
        likeness = (keys[:1] * keys[1:]).sum(axis=2)  # (L, heads, B)
        # The state t - m exists if the sentence has more than m tokens so far. After its first
        # token all weights are 0.
        is_there = jnp.arange(1, window + 1)[:, None, None] < read
        most = jnp.max(likeness, axis=0, where=is_there, initial=-1.0)
        weights = jnp.where(is_there, jnp.exp(self.config.sharpness * (likeness - most)), 0)
        # With any states the sum is at least exp(0).
        weights = weights / jnp.maximum(weights.sum(axis=0), 1)
        return jnp.concatenate(
            [self.cells.output(inner), weights.swapaxes(0, 1).reshape(heads * window, -1)]
        )

    def _remember(self, inner: State, state: State) -> State:
        """Returns the state after one more token, given the new state `inner` of the cells."""
        _, keys, read = state
        projection, heads = self.projection[...], self.config.heads
        h = self.cells.output(inner)[: projection.shape[1]]
        key = matmul(projection, h, (1, 0), "float32").reshape(heads, self.config.width, -1)
        key = key * jax.lax.rsqrt((key**2).sum(axis=1, keepdims=True) + TINY)
        key = key.reshape(len(projection), -1)
        return inner, jnp.concatenate([key, keys[: -len(key)]]), read + 1
