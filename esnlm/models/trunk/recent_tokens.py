"""Trained embeddings of the last K tokens, which the readout reads beside the state.

    z = B h + sum_k W_k E[token_{t - k}] + sum_j V_j sum_m d_j^m E[token_{t - m}],   k = 0 .. K - 1,
    m = 0 .. M - 1

It gives the readout what a trained W_in gives an ESN+i (Ueda et al. 2025b), without a gradient
through time. The first sum is the input layer of Bengio et al. 2003, with weights for each
position. The second has one V_j for all positions, and fixed decays d_j; its inner sums are divided
by the root of the sum of d_j^(2 m), to make them as large as an embedding. Each head of attention
(esnlm/models/cells/attention.py) adds a further sum, with its weights instead of d_j^m.

E is a separate trained array, or tied to the last matrix (Press and Wolf 2017): E = sqrt(r) A. The
factor is from Vaswani et al. 2017: A begins with entries of about 1 / sqrt(r), and other embeddings
with about 1.
"""

from functools import partial
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax
from pydantic import Field

from esnlm.base.settings import Count, Natural, settings
from esnlm.machine.matmul import einsum, matmul
from esnlm.models.trunk import initial

Decay = Annotated[float, Field(gt=0, le=1)]


@settings
class RecentTokensConfig:
    """Trained embeddings of the last tokens."""

    # K, number of last tokens that the readout reads, the current one included; 0: none
    count: Natural = 0
    width: Count = 256  # e, size of a token's embedding
    # Use the rows of the last matrix A as embeddings (Press and Wolf 2017); width must then equal
    # the rank.
    tied: bool = False
    # d_j, the decay per token of each fading sum of embeddings; []: no sums
    decays: tuple[Decay, ...] = ()
    window: Count = 16  # M, number of last tokens in a fading sum

    def vectors(self, heads: int) -> int:
        """Returns the number of embedding-sized inputs of the readout: last tokens, fading sums and
        attention heads."""
        return self.count + len(self.decays) + heads

    @property
    def history(self) -> int:
        """Number of last tokens needed."""
        return max(self.count, self.window if self.decays else 0)

    def parameters(self, vocab_size: int, rank: int, heads: int) -> int:
        """Returns the number of trained entries."""
        vectors = self.vectors(heads)
        own = 0 if self.tied else vocab_size
        return self.width * (own + rank * vectors) if vectors else 0


class RecentTokens(nnx.Module):
    """`embedding` E (V, e), and `weights`, for the last tokens, fading sums and heads side by side,
    (r, vectors e)."""

    def __init__(
        self,
        config: RecentTokensConfig,
        heads: int,
        vocab_size: int,
        rank: int,
        rng: np.random.Generator,
    ) -> None:
        self.config, self.heads = config, heads
        width = config.vectors(heads) * config.width
        self.embedding = None if config.tied else initial.normal(rng, vocab_size, config.width)
        self.weights = initial.uniform(rng, width, rank, width)

    def __call__(
        self, ids: jax.Array, attention: jax.Array, a: jax.Array, precision: str
    ) -> jax.Array:
        """Returns the contribution of the last tokens to z, (C, r).

        Their ids (C, K or more), newest first, are -1 before the sentence and then add nothing.
        `attention` are the weights of the heads, (C, heads L). The rows of `a` (V, r) are the
        embeddings if these are tied.
        """
        config, window = self.config, attention.shape[1] // max(self.heads, 1)  # L
        ids = ids[:, : max(config.history, window)]
        embedding, scale = (
            (a, config.width**0.5) if self.embedding is None else (self.embedding[...], 1.0)
        )
        found = jnp.where(ids[..., None] < 0, 0, scale * embedding[ids])  # (C, K or M or L, e)
        vectors = [found[:, : config.count]]
        if config.decays:
            # (J, M)
            powers = jnp.array(config.decays, jnp.float32)[:, None] ** jnp.arange(config.window)
            scale = jnp.sqrt((powers**2).sum(axis=1, keepdims=True))  # (J, 1)
            vectors.append(_fading_sums(found[:, : config.window], powers / scale, precision))
        if self.heads:
            by_head = attention.reshape(len(ids), self.heads, -1)  # (C, heads, L)
            vectors.append(einsum("chl,cle->che", by_head, found[:, :window], precision))
        return matmul(
            jnp.concatenate(vectors, axis=1).reshape(len(ids), -1),
            self.weights[...],
            (1, 1),
            precision,
        )


def _fading_sums(vectors: jax.Array, weights: jax.Array, precision: str) -> jax.Array:
    """Returns sums over M of weights (J, M) times vectors (C, M, e), (C, J, e). A GPU gathers and
    sums in one kernel."""
    by_product = partial(einsum, "jm,cme->cje", precision=precision)
    return lax.platform_dependent(weights, vectors, cuda=sums_of_products, default=by_product)


def sums_of_products(weights: jax.Array, vectors: jax.Array) -> jax.Array:
    """Computes the sums in float32 without a matrix product, which takes a CPU ten times as
    long."""
    return (weights[:, :, None] * vectors[:, None]).sum(axis=2)
