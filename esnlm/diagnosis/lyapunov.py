"""The largest Lyapunov exponent of a driven network: how fast two states that are infinitely close part, in nats a time step.

    lambda = lim 1/T ln |J_T ... J_1 v|,    J_t = dx_t / dx_(t-1) under the input of time step t

A random v turns towards the direction that grows most. It is scaled to length 1 after each time step, and the logarithms of what
it was scaled by are averaged (Benettin et al. 1980). Below 0 the network forgets its states, above 0 it is chaotic. Where
diagnosis/contraction.py follows two states at a distance, this follows the linearisation along one of them.

A cell is a reservoir as `for_device` returns it.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from esnlm.rng import Stream, generator

State = Any  # (N, B), or a tuple of such, one a layer


def largest_exponent(cell: Any, inputs: np.ndarray, *, washout: int = 100, seed: int = 0) -> np.ndarray:
    """Computes the exponent of B sequences, (B,), which start from the state 0.

    Args:
        cell: the network, with arrays of the precision that is wanted.
        inputs: ids (T, B), or numbers (T, D, B) for a cell that reads numbers.
        washout: time steps that are left out at the beginning, while v still turns.
        seed: of v.

    Returns:
        Nats a time step; -inf if v became 0.
    """
    start = jax.tree.map(lambda x: x.astype(cell.layers[0].leak[...].dtype), cell.initial_state(inputs.shape[-1]))
    rng = generator(seed, Stream.MEASUREMENT, 3)
    v = jax.tree.map(lambda x: jnp.asarray(rng.standard_normal(x.shape), x.dtype), start)
    growth = np.asarray(_growth(cell, start, v, jnp.asarray(inputs)), np.float64)  # (T, B)
    return growth[washout:].mean(axis=0)


@jax.jit
def _growth(cell: Any, start: State, v: State, inputs: jax.Array) -> jax.Array:
    """Returns the logarithm of how much v grew in each time step, (T, B)."""
    read = cell.embed if inputs.ndim == 2 else cell.layers[0].read_below

    def advance(carry: tuple[State, State], u: jax.Array) -> tuple[tuple[State, State], jax.Array]:
        state, v = jax.jvp(lambda state: cell.advance(state, read(u)), carry[:1], carry[1:])
        size = jnp.sqrt(sum(jnp.square(each).sum(axis=0) for each in jax.tree.leaves(v)))  # (B,)
        v = jax.tree.map(lambda each: each / jnp.where(size > 0, size, 1), v)
        return (state, v), jnp.log(size)

    return lax.scan(advance, (start, v), inputs)[1]
