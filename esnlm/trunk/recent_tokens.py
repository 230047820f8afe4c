"""The last K tokens beside the state: the readout sees trained embeddings of them.

    z = B h + sum_k W_k E[token_{t - k}] + sum_j V_j sum_m d_j^m E[token_{t - m}],   k = 0 .. K - 1,   m = 0 .. M - 1

It gives the readout what a trained W_in gives an ESN+i (Ueda et al. 2025b), without a gradient through time. The first sum is the
input layer of Bengio et al. (2003), with weights for each place. The second has one V_j for all places, and fixed decays d_j: what
is learnt of a token at one place serves at all others.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from esnlm.errors import require
from esnlm.ops.matmul import einsum, matmul
from esnlm.trunk import initial


@dataclass(frozen=True)
class RecentTokensConfig:
    """Trained embeddings of the last tokens."""

    count: int = 0  # K, the last tokens that the readout sees, the newest among them; 0: none
    width: int = 256  # e, numbers of a token's embedding
    decays: tuple[float, ...] = ()  # d_j, each in (0, 1], of fading sums of embeddings; none: there are no such sums
    window: int = 16  # M, the last tokens that a fading sum adds up

    def check(self, field: str) -> None:
        """Raises InputError, naming the setting below `field`, for what cannot be built."""
        require(self.count >= 0, f"{field}.count is {self.count}: it must not be negative")
        require(self.width >= 1, f"{field}.width is {self.width}: it must be at least 1")
        require(self.window >= 1, f"{field}.window is {self.window}: it must be at least 1")
        line = f"{field}.decays is {list(self.decays)}: each must be above 0 and at most 1"
        require(all(0 < decay <= 1 for decay in self.decays), line)

    @property
    def vectors(self) -> int:
        """How many vectors of the width of an embedding the readout sees: the last tokens, and the fading sums."""
        return self.count + len(self.decays)

    @property
    def history(self) -> int:
        """The last tokens that are needed."""
        return max(self.count, self.window if self.decays else 0)

    def parameters(self, vocab_size: int, rank: int) -> int:
        """Returns the trained numbers."""
        return self.width * (vocab_size + rank * self.vectors) if self.vectors else 0

    def multiplied(self, rank: int) -> int:
        """Returns the entries of the matrices that a token's features are multiplied with."""
        return self.width * rank * self.vectors


class RecentTokens(nnx.Module):
    """`embedding` E (V, e), and `weights`: all W_k and then all V_j side by side, (r, (K + J) e)."""

    def __init__(self, config: RecentTokensConfig, vocab_size: int, rank: int, rng: np.random.Generator) -> None:
        self.count, self.decays, self.window = config.count, config.decays, config.window
        width = config.vectors * config.width
        self.embedding = initial.normal(rng, vocab_size, config.width)
        self.weights = initial.uniform(rng, width, rank, width)

    def __call__(self, ids: jax.Array, precision: str) -> jax.Array:
        """Returns what the last tokens add to z, (C, r), for ids (C, K or more), the newest first; -1 adds nothing."""
        found = jnp.where(ids[..., None] < 0, 0, self.embedding[...][ids])  # (C, K or M, e)
        vectors = found[:, : self.count]
        if self.decays:
            powers = jnp.array(self.decays, jnp.float32)[:, None] ** jnp.arange(self.window)  # (J, M)
            scale = jnp.sqrt(
                (powers**2).sum(axis=1, keepdims=True)
            )  # so that sums of independent numbers keep their size
            sums = einsum("jm,cme->cje", powers / scale, found[:, : self.window], precision)
            vectors = jnp.concatenate([vectors, sums], axis=1)
        return matmul(vectors.reshape(len(ids), -1), self.weights[...], (1, 1), precision)
