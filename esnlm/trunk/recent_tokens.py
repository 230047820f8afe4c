"""The last K tokens beside the state: the readout sees trained embeddings of them.

    z = B h + sum_k W_k E[token_{t - k}] + sum_j V_j sum_m d_j^m E[token_{t - m}],   k = 0 .. K - 1,   m = 0 .. M - 1

It gives the readout what a trained W_in gives an ESN+i (Ueda et al. 2025b), without a gradient through time. The first sum is the
input layer of Bengio et al. 2003, with weights for each place. The second has one V_j for all places, and fixed decays d_j; each of
its sums is divided by the root of the sum of d_j^(2 m), so that it is as large as an embedding. Each head of attention
(esnlm/cells/attention.py) adds one more sum, with its weights in place of the d_j^m.

E is trained by itself, or tied to the last matrix (Press and Wolf 2017): E = sqrt(r) A. The factor is that of Vaswani et al. 2017: A's
entries begin at about 1 / sqrt(r), and other embeddings' at about 1.
"""

from functools import partial
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax
from pydantic import Field

from esnlm.ops.matmul import einsum, matmul
from esnlm.settings import Count, Natural, settings
from esnlm.trunk import initial

Decay = Annotated[float, Field(gt=0, le=1)]


@settings
class RecentTokensConfig:
    """Trained embeddings of the last tokens."""

    count: Natural = 0  # K, number of last tokens that the readout reads, the current one included; 0: none
    width: Count = 256  # e, size of a token's embedding
    # Use the rows of the last matrix A as embeddings (Press and Wolf 2017); width must then equal the rank.
    tied: bool = False
    decays: tuple[Decay, ...] = ()  # d_j, the decay per token of each fading sum of embeddings; []: no sums
    window: Count = 16  # M, number of last tokens in a fading sum

    def vectors(self, heads: int) -> int:
        """Returns how many vectors of an embedding's width the readout sees: last tokens, fading sums, and heads of attention."""
        return self.count + len(self.decays) + heads

    @property
    def history(self) -> int:
        """The last tokens that are needed."""
        return max(self.count, self.window if self.decays else 0)

    def parameters(self, vocab_size: int, rank: int, heads: int) -> int:
        """Returns the trained numbers."""
        vectors = self.vectors(heads)
        own = 0 if self.tied else vocab_size
        return self.width * (own + rank * vectors) if vectors else 0


class RecentTokens(nnx.Module):
    """`embedding` E (V, e), and `weights`: those of the last tokens, fading sums and heads side by side, (r, vectors e)."""

    def __init__(
        self, config: RecentTokensConfig, heads: int, vocab_size: int, rank: int, rng: np.random.Generator
    ) -> None:
        self.config, self.heads = config, heads
        width = config.vectors(heads) * config.width
        self.embedding = None if config.tied else initial.normal(rng, vocab_size, config.width)
        self.weights = initial.uniform(rng, width, rank, width)

    def __call__(self, ids: jax.Array, attention: jax.Array, a: jax.Array, precision: str) -> jax.Array:
        """Returns what the last tokens add to z, (C, r).

        Their ids (C, K or more), the newest first, are -1 before the sentence began, which adds nothing. The weights of the heads are
        (C, heads L), and a (V, r), whose rows are tied embeddings.
        """
        config, window = self.config, attention.shape[1] // max(self.heads, 1)  # L
        ids = ids[:, : max(config.history, window)]
        embedding, scale = (a, config.width**0.5) if self.embedding is None else (self.embedding[...], 1.0)
        found = jnp.where(ids[..., None] < 0, 0, scale * embedding[ids])  # (C, K or M or L, e)
        vectors = [found[:, : config.count]]
        if config.decays:
            powers = jnp.array(config.decays, jnp.float32)[:, None] ** jnp.arange(config.window)  # (J, M)
            scale = jnp.sqrt((powers**2).sum(axis=1, keepdims=True))  # (J, 1)
            vectors.append(_fading_sums(found[:, : config.window], powers / scale, precision))
        if self.heads:
            by_head = attention.reshape(len(ids), self.heads, -1)  # (C, heads, L)
            vectors.append(einsum("chl,cle->che", by_head, found[:, :window], precision))
        return matmul(jnp.concatenate(vectors, axis=1).reshape(len(ids), -1), self.weights[...], (1, 1), precision)


def _fading_sums(vectors: jax.Array, weights: jax.Array, precision: str) -> jax.Array:
    """Returns sums over M of weights (J, M) times vectors (C, M, e), (C, J, e). A GPU gathers and sums in one kernel."""
    by_product = partial(einsum, "jm,cme->cje", precision=precision)
    return lax.platform_dependent(weights, vectors, cuda=sums_of_products, default=by_product)


def sums_of_products(weights: jax.Array, vectors: jax.Array) -> jax.Array:
    """Does it in float32 without a product of matrices, which takes a CPU ten times as long."""
    return (weights[:, :, None] * vectors[:, None]).sum(axis=2)
