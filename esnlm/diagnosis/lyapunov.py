"""The largest Lyapunov exponent of a driven network: the rate at which infinitely close states
part, in nats per step.

    lambda = lim 1/T ln |J_T ... J_1 v|,    J_t = dx_t / dx_(t-1) under the input of time step t

A random v turns towards the direction of fastest growth, whose logarithm is averaged (Benettin et
al. 1980).
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from esnlm.diagnosis.contraction import Cell, State


@partial(jax.jit, static_argnames="washout")
def largest_exponent(cell: Cell, inputs: jax.Array, washout: int) -> jax.Array:
    """Returns the exponents under B inputs, (B,), from the state 0: token ids (T, B), or numbers
    (T, D, B).

    The first `washout` time steps, in which v still turns, are left out. An exponent is -inf if v
    becomes 0.
    """
    read = cell.embed if inputs.ndim == 2 else cell.layers[0].read_below
    dtype = cell.layers[0].leak[...].dtype
    start = jax.tree.map(lambda x: x.astype(dtype), cell.initial_state(inputs.shape[-1]))
    v = jax.tree.map(lambda x: jax.random.normal(jax.random.key(0), x.shape, dtype), start)

    def advance(carry: tuple[State, State], u: jax.Array) -> tuple[tuple[State, State], jax.Array]:
        state, v = jax.jvp(lambda state: cell.advance(state, read(u)), carry[:1], carry[1:])
        size = jnp.sqrt(sum(jnp.square(part).sum(axis=0) for part in jax.tree.leaves(v)))  # (B,)
        return (state, jax.tree.map(lambda part: part / jnp.where(size > 0, size, 1), v)), jnp.log(
            size
        )

    return lax.scan(advance, (start, v), inputs)[1][washout:].mean(axis=0)
