"""A stack of gated networks between B and A.

    z' = z + W_down (silu(W_gate n(z)) * W_up n(z)),   n(z) = g * z / sqrt(mean(z^2))

This is the gated unit of Shazeer 2020 in a residual block, with the norm of Zhang and Sennrich
2019. After the last block z is normalized once more.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from esnlm.base.settings import Count, Natural, settings
from esnlm.machine.matmul import matmul
from esnlm.models.trunk import initial

EPSILON = 1e-6  # added to the mean square, so that a z of zeros gives zeros


@settings
class GatedMlpConfig:
    """Gated networks between B and A."""

    blocks: Natural = 0  # number of stacked blocks; 0: none
    width: Count = 1024  # width of the hidden layer in each block

    def parameters(self, rank: int) -> int:
        """Returns the trained numbers."""
        return self.blocks * rank * (3 * self.width + 1) + (rank if self.blocks else 0)


class GatedMlp(nnx.Module):
    """The blocks, and the last norm (`norm`)."""

    def __init__(self, config: GatedMlpConfig, rank: int, rng: np.random.Generator) -> None:
        self.blocks = nnx.List([GatedBlock(config.width, rank, rng) for _ in range(config.blocks)])
        self.norm = Norm(rank)

    def __call__(self, z: jax.Array, precision: str) -> jax.Array:
        """Returns the input of the last matrix, (C, r), for z (C, r)."""
        for block in self.blocks:
            z = block(z, precision)
        return self.norm(z)


class GatedBlock(nnx.Module):
    """One block: `norm`, W_gate and W_up (width, r), W_down (r, width)."""

    def __init__(self, width: int, rank: int, rng: np.random.Generator) -> None:
        self.norm = Norm(rank)
        self.gate, self.up = (initial.uniform(rng, rank, width, rank) for _ in range(2))
        self.down = initial.uniform(rng, width, rank, width)

    def __call__(self, z: jax.Array, precision: str) -> jax.Array:
        """Returns z', (C, r)."""
        normed = self.norm(z)
        gate = jax.nn.silu(matmul(normed, self.gate[...], (1, 1), precision))  # (C, width)
        hidden = gate * matmul(normed, self.up[...], (1, 1), precision)
        return z + matmul(hidden, self.down[...], (1, 1), precision)


class Norm(nnx.Module):
    """n(z), with trained gains g (r,)."""

    def __init__(self, rank: int) -> None:
        self.gains = nnx.Param(jnp.ones(rank, jnp.float32))

    def __call__(self, z: jax.Array) -> jax.Array:
        return self.gains[...] * z * jax.lax.rsqrt((z**2).mean(axis=1, keepdims=True) + EPSILON)
