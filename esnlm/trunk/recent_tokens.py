"""The last K tokens beside the state: the readout sees trained embeddings of them.

    z = B h + sum_k W_k E[token_{t - k}],   k = 0 .. K - 1

It gives the readout what a trained W_in gives an ESN+i (Ueda et al. 2025b), without a gradient through time. By itself it is
the input layer of Bengio et al. (2003).
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from esnlm.errors import require
from esnlm.ops.matmul import matmul
from esnlm.trunk import initial


@dataclass(frozen=True)
class RecentTokensConfig:
    """Trained embeddings of the last tokens."""

    count: int = 0  # K, the last tokens that the readout sees, the newest among them; 0: none
    width: int = 256  # e, numbers of a token's embedding

    def check(self, field: str) -> None:
        """Raises InputError, naming the setting below `field`, for what cannot be built."""
        require(self.count >= 0, f"{field}.count is {self.count}: it must not be negative")
        require(self.width >= 1, f"{field}.width is {self.width}: it must be at least 1")

    @property
    def history(self) -> int:
        """The last tokens that are needed."""
        return self.count

    def parameters(self, vocab_size: int, rank: int) -> int:
        """Returns the trained numbers."""
        return self.width * (vocab_size + rank * self.count) if self.count else 0

    def multiplied(self, rank: int) -> int:
        """Returns the entries of the matrices that a token's features are multiplied with."""
        return self.width * rank * self.count


class RecentTokens(nnx.Module):
    """`embedding` E (V, e), and `weights`: W_0, W_1, ... side by side, (r, K e)."""

    def __init__(self, config: RecentTokensConfig, vocab_size: int, rank: int, rng: np.random.Generator) -> None:
        self.count = config.count
        self.embedding = initial.normal(rng, vocab_size, config.width)
        self.weights = initial.uniform(rng, config.count * config.width, rank, config.count * config.width)

    def __call__(self, ids: jax.Array, precision: str) -> jax.Array:
        """Returns sum_k W_k E[token_{t - k}], (C, r), for ids (C, K or more), the newest first; -1 adds nothing."""
        ids = ids[:, : self.count]
        found = jnp.where(ids[..., None] < 0, 0, self.embedding[...][ids])  # (C, K, e)
        return matmul(found.reshape(len(ids), -1), self.weights[...], (1, 1), precision)
