"""The recurrence: runs a recurrent network over many sentences at once.

Each sentence is in a batch slot. A network is a `Cell`, a Flax module that reads one token per
slot.
"""

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, Self, runtime_checkable

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from esnlm.features import dropout
from esnlm.features.batching import PackedSteps
from esnlm.machine import xla
from esnlm.machine.mesh import ALL, REPLICATED

BY_DEVICE = PartitionSpec(ALL)

State = Any  # a pytree of (units, slots) arrays


class Cell(Protocol):
    """One time step of a recurrent network for B slots, laid out (units, B), which is the fast
    layout."""

    @property
    def output_size(self) -> int:
        """F, the number of features for the readout."""

    @property
    def mask_size(self) -> int:
        """E, the width of dropout's mask on the input."""

    def initial_state(self, slots: int) -> State:
        """Returns the state before the first token: zeros. A slot is reset to it when a sentence
        starts."""

    def embed(self, tokens: jax.Array, keep: jax.Array | None = None) -> Any:
        """Returns the input of `advance` for tokens (B,), with dropout's mask `keep` (E, B) if
        given."""

    def advance(self, state: State, x: Any) -> State:
        """Returns the state after one more token per slot, given the result `x` of `embed`."""

    def step(self, state: State, tokens: jax.Array) -> State:
        """Returns the state after one more token per slot, (B,), without dropout: `embed` and
        `advance` in one."""

    def output(self, state: State) -> jax.Array:
        """Returns the features after the last token, (F, B)."""


class ArrayCell(nnx.Module):
    """A frozen cell whose features are its state, one array. A subclass sets `output_size`, `embed`
    and `advance`.

    Its input has no dropout.
    """

    output_size: int

    @property
    def mask_size(self) -> int:
        return self.output_size

    @property
    def nonzeros(self) -> int:
        """Number of frozen entries."""
        return sum(array.size for array in jax.tree.leaves(nnx.state(self)))

    def for_device(self, kernel: str, *, state_precision: str = "float32") -> Self:
        """Returns the same cell with the operands of a kernel of reservoir/sparse.py."""
        return self

    def initial_state(self, slots: int) -> jax.Array:
        return jnp.zeros((self.output_size, slots), jnp.float32)

    @abstractmethod
    def embed(self, tokens: jax.Array, keep: jax.Array | None = None) -> Any: ...

    @abstractmethod
    def advance(self, state: jax.Array, x: Any) -> jax.Array: ...

    def step(self, state: jax.Array, tokens: jax.Array) -> jax.Array:
        return self.advance(state, self.embed(tokens))

    def output(self, state: jax.Array) -> jax.Array:
        return state


@runtime_checkable
class ThroughTime(Protocol):
    """A cell with a gradient through time that is faster than autodiff's, such as an LSTM."""

    def through_time(self, x: Any, positions: jax.Array, start: State) -> tuple[State, jax.Array]:
        """Returns the last state and all outputs, (T, F, B).

        Args:
            x: the results of `embed`, with T in front.
            positions: (T, B), of each token in its sentence; 0 resets the state.
            start: the state before the first token.
        """


@partial(jax.jit, static_argnames="rate", donate_argnames="buffer")
def run(
    cell: Cell,
    steps: PackedSteps,
    buffer: jax.Array,
    key: Any = None,
    state: State | None = None,
    *,
    rate: float = 0.0,
) -> tuple[State, jax.Array]:
    """Returns the last state of the slots, and a buffer with their outputs after each time step.

    Args:
        cell: ready for the device. Cells with the same structure share one compiled program.
        steps: the tokens that the slots read.
        buffer: (rows + B, F) float32, overwritten. A time step may write up to B rows too many; the
            next one overwrites them.
        key: dropout key of the epoch; see features/dropout.py.
        state: the state of the slots before `steps`; None: the initial one.
        rate: dropout rate on the input; 0: no dropout.
    """
    start = cell.initial_state(1)
    if steps.first_token is not None:
        start = cell.step(start, steps.first_token[None])
        buffer = lax.dynamic_update_slice(buffer, cell.output(start).T, (0, 0))

    def dropped_input(t: jax.Array) -> Any:
        keys = dropout.token_keys(key, steps.corpus_positions[t])
        keep = dropout.mask(keys, dropout.INPUT, cell.mask_size, rate)  # (B, E)
        return cell.embed(steps.tokens[t], keep.T)

    def advance(t: jax.Array, carry: tuple[State, jax.Array]) -> tuple[State, jax.Array]:
        state, buffer = carry
        if steps.parents is None:
            begins = steps.positions[t] == 0
            state = jax.tree.map(lambda first, x: jnp.where(begins, first, x), start, state)
        else:
            parents = steps.parents[t]
            state = jax.tree.map(
                lambda x: jnp.where(parents < 0, 0.0, x[:, jnp.maximum(parents, 0)]), state
            )
        state = cell.advance(state, dropped_input(t)) if rate else cell.step(state, steps.tokens[t])
        output = xla.laid_out(cell.output(state).T)  # (B, F)
        return state, lax.dynamic_update_slice(buffer, output, (steps.first_rows[t], 0))

    if state is None:
        state = cell.initial_state(steps.tokens.shape[1])
    return lax.fori_loop(0, steps.count, advance, (state, buffer))


@partial(jax.jit, static_argnames=("mesh", "rate"), donate_argnames="buffer")
def run_on_mesh(
    cell: Cell,
    steps: PackedSteps,
    buffer: jax.Array,
    key: jax.Array | None,
    mesh: Mesh,
    rate: float,
) -> jax.Array:
    """Returns the buffer of `run`, with slots and rows of its own for each device of a mesh.

    `steps` has a leading axis for the device, and the devices share the rows of the buffer; the
    other arguments are replicated. Without shard_map XLA would gather the whole buffer at each time
    step, since its rows begin anywhere.
    """

    def on_device(
        cell: Cell, steps: PackedSteps, buffer: jax.Array, key: jax.Array | None
    ) -> jax.Array:
        return run(cell, jax.tree.map(lambda part: part[0], steps), buffer, key, rate=rate)[1]

    specs = (REPLICATED, BY_DEVICE, BY_DEVICE, REPLICATED)
    divided = jax.shard_map(
        on_device, mesh=mesh, in_specs=specs, out_specs=BY_DEVICE, check_vma=False
    )
    return divided(cell, steps, buffer, key)


def unroll(
    cell: Cell,
    tokens: jax.Array,
    positions: jax.Array,
    keep: jax.Array | None = None,
    start: State | None = None,
) -> tuple[State, jax.Array]:
    """Returns the last state of sentences that follow each other in slots, and all outputs, (T, B,
    F), with gradients.

    `start` is the state before the first token; None: the initial one.
    """
    if start is None:
        start = cell.initial_state(tokens.shape[1])
    # All tokens at once, since jax.vmap would make a gradient of the cell's matrix for each time
    # step (machine/matmul.py).
    every = cell.embed(
        tokens.reshape(-1), None if keep is None else keep.reshape(-1, keep.shape[2]).T
    )  # (units, T B)

    def by_step(leaf: jax.Array) -> jax.Array:
        return jnp.moveaxis(leaf.reshape(*leaf.shape[:-1], *tokens.shape), -2, 0)  # (T, units, B)

    x = jax.tree.map(by_step, every)
    if isinstance(cell, ThroughTime):
        end, outputs = cell.through_time(x, positions, start)
        return end, outputs.mT

    def advance(state: State, x: Any) -> tuple[State, jax.Array]:
        state = cell.advance(state, x)
        return state, cell.output(state)

    end, outputs = scan_sentences(advance, start, x, positions)
    return end, outputs.mT


def scan_sentences(
    advance: Callable[[State, Any], tuple[State, jax.Array]],
    start: State,
    x: Any,
    positions: jax.Array,
) -> tuple[State, jax.Array]:
    """Returns the last state of sentences that follow each other in slots, and all outputs, (T, F,
    B)."""

    def step(state: State, inputs: tuple[Any, jax.Array]) -> tuple[State, jax.Array]:
        x, position = inputs
        return advance(jax.tree.map(lambda part: jnp.where(position == 0, 0.0, part), state), x)

    return lax.scan(step, start, (x, positions))
