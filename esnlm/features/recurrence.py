"""The recurrence: what the frozen reservoir makes of many sentences at once."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from esnlm.reservoir import sparse
from esnlm.reservoir.weights import Reservoir

ACTIVATIONS = {"tanh": jnp.tanh, "relu": jax.nn.relu}


class Dynamics(NamedTuple):
    """A reservoir made ready for one backend: what `step` needs, and nothing that is trained."""

    w_rec: sparse.Operator
    w_in: sparse.Columns | jax.Array
    leak: jax.Array  # (N,)

    @property
    def state_size(self) -> int:
        return self.leak.shape[0]


def prepare(reservoir: Reservoir, kernel: str = "auto") -> Dynamics:
    """Dynamics of a reservoir, with the product's kernel chosen by `sparse.choose_kernel` unless it is named."""
    w_rec = reservoir.stored_w_rec
    if kernel == "auto":
        nonzeros = w_rec.nse if hasattr(w_rec, "nse") else w_rec.size
        kernel = sparse.choose_kernel(reservoir.state_size, nonzeros, jax.default_backend())
    return Dynamics(sparse.prepare(w_rec, kernel), sparse.prepare_columns(reservoir.stored_w_in), reservoir.leak[...])


def step(dynamics: Dynamics, activation: str, h: jax.Array, tokens: jax.Array) -> jax.Array:
    """One step of S1, eq. 1: h' = (1 - a) * h + a * f(W_rec h + W_in u).

    Args:
        h: states, (N, B) float32.
        tokens: the tokens read, (B,) int32.
    """
    a = dynamics.leak[:, None]  # (N, 1)
    drive = sparse.add_columns(sparse.matmul(dynamics.w_rec, h), dynamics.w_in, tokens)  # (N, B)
    return (1 - a) * h + a * ACTIVATIONS[activation](drive)


@partial(jax.jit, static_argnames="activation", donate_argnames="buffer")
def run(dynamics: Dynamics, activation: str, tokens, parents, first_rows, steps, buffer) -> jax.Array:
    """Runs lanes of tokens and writes every state into its row of a packed buffer.

    A lane is a column of h. At each step it reads a token from the state of its parent lane; a parent of -1 is the
    state 0, where a sentence starts. Lanes that are still running come first, so that step t fills the rows
    first_rows[t], first_rows[t] + 1, ... and what it writes beyond its running lanes is overwritten by the next step.

    Args:
        tokens: (T, B) int32.
        parents: (T, B) int32, or None where every lane goes on from itself and `tokens` of -1 - v starts a sentence.
        first_rows: (T,) int32.
        steps: how many of the T steps to run (a traced number: one compilation serves all).
        buffer: (rows + B, N) float32, overwritten.

    Returns:
        The buffer.
    """
    lanes = tokens.shape[1]

    def advance(t, carry):
        h, buffer = carry
        token = tokens[t]
        if parents is None:
            h = jnp.where(token < 0, 0.0, h)  # (N, B)
            token = jnp.where(token < 0, -1 - token, token)
        else:
            h = jnp.where(parents[t] < 0, 0.0, h[:, jnp.maximum(parents[t], 0)])
        h = step(dynamics, activation, h, token)
        return h, lax.dynamic_update_slice(buffer, h.T, (first_rows[t], 0))

    h = jnp.zeros((dynamics.state_size, lanes), jnp.float32)
    return lax.fori_loop(0, steps, advance, (h, buffer))[1]
