"""The recurrence: what a recurrent network makes of many sentences at once.

Each sentence is in a slot. A cell is a pytree of arrays with

    zeros(slots)           the state before any token: a pytree of (units, slots) arrays
    embed(tokens, keep)    what the input contributes, (units, slots), for tokens (slots,); keep is dropout's mask on the
                           embedding, (E, slots), or None
    step(state, x)         the state after one more token a slot, whose contribution is x
    read(state, tokens)    the two at once, without dropout
    output(state)          what the readout sees, (F, slots); input_size is E, output_size is F
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from esnlm.features import dropout
from esnlm.ops import xla


@partial(jax.jit, static_argnames="rate", donate_argnames="buffer")
def run(
    cell, tokens, parents, first_rows, steps, buffer, begin=None, corpus_positions=None, key=None, rate: float = 0.0
) -> jax.Array:
    """Runs slots of tokens and writes every output into its row of a packed buffer.

    At each step a slot reads a token from the state of its parent slot; a parent of -1 is the state 0, where a sentence
    starts. Slots that are still running come first, so that step t fills the rows first_rows[t], first_rows[t] + 1, ...
    and what it writes beyond its running slots is overwritten by the next step.

    Args:
        tokens: (T, B) int32.
        parents: (T, B) int32, or None where every slot goes on from itself and `tokens` of -1 - v starts a sentence.
        first_rows: (T,) int32.
        steps: how many of the T steps to run (a traced number: one compilation serves all).
        buffer: (rows + B, F) float32, overwritten.
        begin: () int32, a token with which all sentences begin and which `tokens` therefore leaves out. It is read once,
            its output is row 0 (the steps fill the rows after it), and where a sentence starts is the state after it. Only
            where `parents` is None and nothing is dropped.
        corpus_positions, key, rate: of dropout on the embeddings: (T, B) uint32, each token's place in the corpus, and the
            epoch's key; see features/dropout.py.

    Returns:
        The buffer.
    """
    start = cell.zeros(1)
    if begin is not None:
        start = cell.read(start, begin[None])
        buffer = lax.dynamic_update_slice(buffer, cell.output(start).T, (0, 0))

    def advance(t, carry):
        state, buffer = carry
        token = tokens[t]
        if parents is None:
            state = jax.tree.map(lambda first, x: jnp.where(token < 0, first, x), start, state)
            token = jnp.where(token < 0, -1 - token, token)
        else:
            state = jax.tree.map(lambda x: jnp.where(parents[t] < 0, 0.0, x[:, jnp.maximum(parents[t], 0)]), state)
        if rate:
            keep = dropout.mask(
                dropout.token_keys(key, corpus_positions[t]), dropout.INPUT, cell.input_size, rate
            )  # (B, E)
            state = cell.step(state, cell.embed(token, keep.T))
        else:
            state = cell.read(state, token)
        output = xla.laid_out(cell.output(state).T)  # (B, F)
        return state, lax.dynamic_update_slice(buffer, output, (first_rows[t], 0))

    return lax.fori_loop(0, steps, advance, (cell.zeros(tokens.shape[1]), buffer))[1]


def unroll(cell, tokens: jax.Array, positions: jax.Array, keep: jax.Array | None = None) -> jax.Array:
    """Every output of sentences that follow each other in slots, (T, B, F), differentiable in the cell's arrays.

    Args:
        tokens: (T, B) int32; what comes after a slot's last sentence does not matter.
        positions: (T, B) int32, of each token in its sentence; at 0 the state begins anew.
        keep: dropout's mask on the embeddings, (T, B, E).
    """
    x = jax.vmap(cell.embed)(tokens, None if keep is None else keep.mT)  # (T, units, B)

    def advance(state, inputs):
        x, position = inputs
        state = cell.step(jax.tree.map(lambda part: jnp.where(position == 0, 0.0, part), state), x)
        return state, cell.output(state)

    return lax.scan(advance, cell.zeros(tokens.shape[1]), (x, positions))[1].mT
