"""The recurrence: what a recurrent network makes of many sentences at once.

Each sentence is in a batch slot. What runs is a `Cell`, a Flax module that reads one token a slot.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax import lax

from esnlm.features import dropout
from esnlm.ops import xla

State = Any  # a pytree of (units, slots) arrays


class Cell(Protocol):
    """One time step of a recurrent network for B slots, laid out (units, B), which is the fast layout."""

    @property
    def output_size(self) -> int:
        """F, the features that the readout sees."""

    @property
    def mask_size(self) -> int:
        """E, the width of dropout's mask on the input."""

    def initial_state(self, slots: int) -> State:
        """Returns the state before any token: zeros, to which a slot is set back where a sentence starts."""

    def embed(self, tokens: jax.Array, keep: jax.Array | None = None) -> Any:
        """Returns what tokens (B,) contribute, with dropout's mask `keep` (E, B) on it where there is one."""

    def advance(self, state: State, x: Any) -> State:
        """Returns the state after one more token a slot, of which `x` is what `embed` gave."""

    def step(self, state: State, tokens: jax.Array) -> State:
        """Returns the state after one more token a slot, (B,), without dropout: `embed` and `advance` at once."""

    def output(self, state: State) -> jax.Array:
        """Returns the features after the last token, (F, B)."""


@partial(jax.jit, static_argnames="rate", donate_argnames="buffer")
def run(
    cell: Cell,
    tokens: jax.Array,
    starts: Any,
    parents: Any,
    first_rows: jax.Array,
    steps: int,
    buffer: jax.Array,
    first_token: jax.Array | None = None,
    corpus_positions: Any = None,
    key: Any = None,
    rate: float = 0.0,
) -> jax.Array:
    """Runs slots of tokens and writes every output into its row of a packed buffer.

    At each time step a slot reads one token. With `starts` it goes on from its own state, or begins a sentence; with
    `parents` it goes on from the state of another slot. Slots that are still running come first, so that time step t fills
    the rows first_rows[t], first_rows[t] + 1, ...; what it writes beyond them is overwritten by the next time step.

    Args:
        cell: ready for the device. Two cells of one structure share one compiled program.
        tokens: (T, B) int32.
        starts: (T, B) bool, whether a sentence starts with the token; None where `parents` is given.
        parents: (T, B) int32, the slot from whose state a slot goes on, -1 where a sentence starts; None where `starts` is.
        first_rows: (T,) int32.
        steps: how many of the T time steps to run (a traced number: one compilation serves all).
        buffer: (rows + B, F) float32, overwritten.
        first_token: () int32, the token with which all sentences begin and which `tokens` therefore leaves out. It is read
            once, its output is row 0, and sentences start from the state after it. It needs `starts`, and no dropout.
        corpus_positions: (T, B) uint32, where each token stands in the corpus, for dropout on the input.
        key: the epoch's, of dropout; see features/dropout.py.
        rate: of dropout; 0: nothing is dropped.

    Returns:
        The buffer.
    """
    start = cell.initial_state(1)
    if first_token is not None:
        start = cell.step(start, first_token[None])
        buffer = lax.dynamic_update_slice(buffer, cell.output(start).T, (0, 0))

    def dropped_input(t: jax.Array) -> Any:
        keys = dropout.token_keys(key, corpus_positions[t])
        keep = dropout.mask(keys, dropout.INPUT, cell.mask_size, rate)  # (B, E)
        return cell.embed(tokens[t], keep.T)

    fusing: Any = cell
    if getattr(cell, "fuses_steps", False):
        begins, sentence_start = None if starts is None else starts.astype(jnp.int32), fusing.start_of(start)

        def write(t: jax.Array, carry: tuple[State, jax.Array]) -> tuple[State, jax.Array]:
            x = dropped_input(t) if rate else None
            return fusing.write_step(*carry, t, first_rows, tokens, begins, sentence_start, parents, x)

        return lax.fori_loop(0, steps, write, (fusing.first_carry(tokens.shape[1]), buffer))[1]

    def advance(t: jax.Array, carry: tuple[State, jax.Array]) -> tuple[State, jax.Array]:
        state, buffer = carry
        token = tokens[t]
        if parents is None:
            state = jax.tree.map(lambda first, x: jnp.where(starts[t], first, x), start, state)
        else:
            state = jax.tree.map(lambda x: jnp.where(parents[t] < 0, 0.0, x[:, jnp.maximum(parents[t], 0)]), state)
        state = cell.advance(state, dropped_input(t)) if rate else cell.step(state, token)
        output = xla.laid_out(cell.output(state).T)  # (B, F)
        return state, lax.dynamic_update_slice(buffer, output, (first_rows[t], 0))

    return lax.fori_loop(0, steps, advance, (cell.initial_state(tokens.shape[1]), buffer))[1]


def unroll(cell: Cell, tokens: jax.Array, positions: jax.Array, keep: jax.Array | None = None) -> jax.Array:
    """Returns every output of sentences that follow each other in slots, (T, B, F), differentiable in the cell's arrays.

    A cell may have a method `through_time(x, positions)`, which then takes the place of the scan: it returns the same outputs, (T, F, B),
    with a faster gradient (features/through_time.py).

    Args:
        cell: ready for the device.
        tokens: (T, B) int32; what comes after a slot's last sentence does not matter.
        positions: (T, B) int32, of each token in its sentence; at 0 the state begins anew.
        keep: dropout's mask on the input, (T, B, E).
    """
    # All tokens at once: inside `jax.vmap` a matrix of the cell would have a gradient for each time step (ops/matmul.py).
    every = cell.embed(tokens.reshape(-1), None if keep is None else keep.reshape(-1, keep.shape[2]).T)  # (units, T B)

    def by_step(leaf: jax.Array) -> jax.Array:
        return jnp.moveaxis(leaf.reshape(*leaf.shape[:-1], *tokens.shape), -2, 0)  # (T, units, B)

    x = jax.tree.map(by_step, every)
    through_time = getattr(cell, "through_time", None)
    if through_time is not None:
        return through_time(x, positions).mT

    def advance(state: State, x: Any) -> tuple[State, jax.Array]:
        state = cell.advance(state, x)
        return state, cell.output(state)

    return scan_sentences(advance, cell.initial_state(tokens.shape[1]), x, positions).mT


def scan_sentences(
    advance: Callable[[State, Any], tuple[State, jax.Array]], start: State, x: Any, positions: jax.Array
) -> jax.Array:
    """Returns every output of sentences that follow each other in slots, (T, F, B).

    Args:
        advance: from a state and an input to the next state and the output after it.
        start: the state to begin with.
        x: the inputs, with T in front.
        positions: (T, B) int32, of each token in its sentence; at 0 the state is set to zeros before the token is read.
    """

    def step(state: State, inputs: tuple[Any, jax.Array]) -> tuple[State, jax.Array]:
        x, position = inputs
        return advance(jax.tree.map(lambda part: jnp.where(position == 0, 0.0, part), state), x)

    return lax.scan(step, start, (x, positions))[1]


@jax.jit
def drive(cell: Any, inputs: jax.Array, start: State) -> tuple[jax.Array, State]:
    """Returns every output of a reservoir that reads numbers and no tokens, (T, B, F), and the state that it ends in.

    Args:
        cell: a Reservoir or a Stack whose first layer is ready for numbers (`for_device(reads_tokens=False)`).
        inputs: (T, D, B), in the precision of the cell's arrays.
        start: the state to begin with.
    """

    def advance(state: State, u: jax.Array) -> tuple[State, jax.Array]:
        state = cell.advance(state, cell.layers[0].read_below(u))
        return state, cell.output(state)

    end, outputs = lax.scan(advance, start, inputs)
    return outputs.mT, end
