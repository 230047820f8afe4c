"""Initial values of trained arrays, as of torch.nn.Linear and, at scale 1, torch.nn.Embedding."""

import jax
import numpy as np
from flax import nnx


def uniform(rng: np.random.Generator, fan_in: int, *shape: int) -> nnx.Param:
    """Draws numbers between -1 / sqrt(fan_in) and 1 / sqrt(fan_in)."""
    bound = np.float32(1 / np.sqrt(fan_in))
    return nnx.Param(jax.device_put(rng.uniform(-bound, bound, shape).astype(np.float32)))


def normal(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> nnx.Param:
    """Draws numbers from N(0, scale^2)."""
    return nnx.Param(jax.device_put(np.float32(scale) * rng.standard_normal(shape, np.float32)))
