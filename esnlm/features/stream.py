"""Features of many sentences at once, without a gradient, packed into the rows of a buffer."""

from functools import partial
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from esnlm.base.errors import InputError
from esnlm.features import layout as layouts
from esnlm.features import recurrence
from esnlm.features.lanes import Pieces
from esnlm.features.layout import Layout, Steps
from esnlm.features.recurrence import BY_DEVICE, Cell, State
from esnlm.machine import mesh as meshes
from esnlm.machine.compute import backend
from esnlm.machine.placement import Placement

ONE_DEVICE = "data.context is document: this runs on one device only; set compute.mesh to {data: 1}"
FEWEST_CPU_SLOTS = 16  # An AVX-512 register holds 16 float32 numbers, so fewer slots save little.


class SentenceFeatures(Protocol):
    """Computes the features of many sentences at once: a FeatureStream, or another class of this
    folder."""

    # placement of the model's arrays on a mesh; None: there is one device
    placement: Placement | None
    slots: int  # number of sentences per call for best speed

    def read(
        self, sentences: list[np.ndarray], prefix_tree: bool = False
    ) -> tuple[jax.Array, list[np.ndarray]]:
        """Returns (buffer, rows) as FeatureStream.read does."""


@runtime_checkable
class DocumentFeatures(SentenceFeatures, Protocol):
    """Also carries the state of a recurrence over the sentences of documents."""

    cell: Cell

    def read_on(self, pieces: Pieces, state: State) -> tuple[State, jax.Array, np.ndarray]:
        """Returns (state, buffer, rows) as FeatureStream.read_on does."""


class LaidOut(NamedTuple):
    """Sentences in their batch slots, ready for the device."""

    steps: Steps  # on a mesh with a leading axis for the device
    first_token: np.int32 | None  # first token of all sentences, if it is read once
    rate: float  # dropout rate
    size: int  # rows of the buffer
    rows: list[np.ndarray]  # rows for the features of each sentence


class FeatureStream:
    """Runs a recurrent network's cell over sentences. `read` is thread-safe.

    On a mesh each device reads a share of the sentences in batch slots of its own.

    Args:
        cell: see features/recurrence.py.
        slots: B, sentences that run side by side on a device.
        capacity: usual maximum of rows in a buffer; a call that needs more gets more.
        dropout: dropout rate on the input, for calls that give corpus positions.
        placement: placement of the model's arrays; None: there is one device.
    """

    def __init__(
        self,
        cell: Cell,
        slots: int,
        capacity: int,
        dropout: float = 0.0,
        placement: Placement | None = None,
    ) -> None:
        self.placement, self.capacity, self.dropout = placement, capacity, dropout
        self.mesh = None if placement is None else placement.mesh
        self.devices = 1 if placement is None else placement.devices
        self.cell = cell if placement is None else placement.replicate(cell)
        self.own_slots, self.slots = slots, slots * self.devices
        self._buffer: jax.Array | None = None

    def read(
        self,
        sentences: list[np.ndarray],
        prefix_tree: bool = False,
        corpus_positions: list[np.ndarray] | None = None,
        key: jax.Array | None = None,
    ) -> tuple[jax.Array, list[np.ndarray]]:
        """Computes the features after each token of each sentence.

        A first token shared by all sentences is read once, unless there is dropout.

        Args:
            sentences: int arrays of the tokens to read, each at least one long.
            prefix_tree: evaluate each distinct prefix once; it allows at most `slots` sentences.
            corpus_positions: position of each token in the corpus, by sentence; None: no dropout.
            key: dropout key of the epoch.

        Returns:
            (buffer, rows): the features of sentence s at position t are buffer[rows[s][t]], (F,)
            float32.
        """
        laid_out = self.lay_out(sentences, prefix_tree, corpus_positions)
        return self.run(laid_out, key), laid_out.rows

    def lay_out(
        self,
        sentences: list[np.ndarray],
        prefix_tree: bool = False,
        corpus_positions: list[np.ndarray] | None = None,
        full: bool = False,
    ) -> LaidOut:
        """Does the host's part of `read`."""
        drops = self.dropout > 0 and corpus_positions is not None
        firsts = {int(sentence[0]) for sentence in sentences}
        first_token = (
            np.int32(firsts.pop()) if len(firsts) == 1 and not prefix_tree and not drops else None
        )
        shares = self._shares([len(sentence) for sentence in sentences], in_order=prefix_tree)
        laid: list[Layout] = []
        for share in shares:
            # A device without a share reads a sentence whose features are not used.
            read = share if len(share) else [0]
            own, slots = [sentences[s] for s in read], self._slots_for(len(sentences))
            if prefix_tree:
                laid.append(layouts.as_prefix_tree(own, slots))
            else:
                laid.append(layouts.in_sequence(own, slots, int(first_token is not None)))
        padded = _padded(max(layout.steps for layout in laid))
        own_rows = self._own_rows(max(layout.total for layout in laid), full)
        by_device: list[Steps] = []
        rows = [np.empty(0, np.int32)] * len(sentences)
        for device, (share, layout) in enumerate(zip(shares, laid, strict=True)):
            positions = None
            if drops and corpus_positions is not None:
                positions = layout.spread(
                    [corpus_positions[s] for s in (share if len(share) else [0])]
                )
            by_device.append(layout.padded(padded, positions))
            for s, of_sentence in zip(share, layout.rows, strict=False):
                rows[s] = of_sentence + np.int32(device * own_rows)
        steps = (
            by_device[0]
            if self.mesh is None
            else jax.tree.map(lambda *parts: np.stack(parts), *by_device)
        )
        return LaidOut(
            steps, first_token, self.dropout if drops else 0.0, own_rows * self.devices, rows
        )

    def read_on(self, pieces: Pieces, state: State) -> tuple[State, jax.Array, np.ndarray]:
        """Reads pieces of documents, without dropout.

        Returns (state, buffer, rows): the state after them, and the features before the i-th of
        `pieces.predictions()` are buffer[rows[i]].
        """
        state, buffer = self.run_on(self.lay_out_pieces(pieces), state)
        return state, buffer, pieces.predictions()[0]

    def lay_out_pieces(self, pieces: Pieces, full: bool = False, drops: bool = False) -> LaidOut:
        """Does the host's part of reading pieces of documents. The lanes are the slots, or the
        first ones of them."""
        assert pieces.tokens.shape[1] <= self.own_slots, (
            "the last time step would overwrite rows of the buffer"
        )
        total = int(pieces.running.sum())
        layout = Layout(
            pieces.tokens,
            pieces.depths == 0,
            None,
            pieces.first_rows,
            len(pieces.tokens),
            total,
            [],
        )
        steps = layout.padded(
            _padded(layout.steps), pieces.corpus_positions if drops and self.dropout else None
        )
        return LaidOut(steps, None, self.dropout if drops else 0.0, self._own_rows(total, full), [])

    def run(
        self, laid_out: LaidOut, key: jax.Array | None = None, reuse: bool = False
    ) -> jax.Array:
        """Does the device's part of `read`: it dispatches the computation and returns the buffer
        without waiting.

        Args:
            laid_out: from `lay_out`.
            key: dropout key of the epoch.
            reuse: overwrite the buffer of the last such call, if it has the right size and is no
                longer in use.
        """
        return self.run_on(laid_out, None, key, reuse)[1]

    def run_on(
        self,
        laid_out: LaidOut,
        state: State | None,
        key: jax.Array | None = None,
        reuse: bool = False,
    ) -> tuple[State, jax.Array]:
        """Does the same from a state of the slots (None: the initial one). Also returns the state
        after the last step."""
        steps, first_token, rate, size, _ = laid_out
        kept = self._buffer if reuse else None
        buffer = kept if kept is not None and len(kept) == size else self._zeros(size)
        key = key if rate else None
        if self.mesh is None:
            state, buffer = recurrence.run(
                self.cell, steps, buffer, first_token, key, state, rate=rate
            )
        elif state is not None:
            raise InputError(ONE_DEVICE)
        else:
            mesh = self.mesh
            steps = jax.tree.map(lambda array: meshes.shard(array, mesh, BY_DEVICE), steps)
            buffer = recurrence.run_on_mesh(self.cell, steps, buffer, first_token, key, mesh, rate)
        if reuse:
            self._buffer = buffer
        return state, buffer

    def _own_rows(self, needed: int, full: bool) -> int:
        """Returns the number of rows in a device's part of a buffer, with spare ones for its last
        time steps."""
        # The shares of several devices are not quite equal.
        usual = self.capacity if self.devices == 1 else 9 * self.capacity // (8 * self.devices)
        if needed > usual:
            return -(-needed // 1024) * 1024 + self.own_slots
        few = max(1024, 1 << (needed - 1).bit_length())  # few sizes, so few compilations
        return (usual if full else min(usual, few)) + self.own_slots

    def _zeros(self, rows: int) -> jax.Array:
        shape = rows, self.cell.output_size
        if self.mesh is None:
            return jnp.zeros(shape, jnp.float32)
        return _zeros_on(shape, NamedSharding(self.mesh, BY_DEVICE))

    def _shares(self, lengths: list[int], in_order: bool) -> list[np.ndarray]:
        """Returns the indices of each device's sentences: neighbours, or about equal numbers of
        tokens."""
        if self.devices == 1 or in_order:
            return np.array_split(np.arange(len(lengths)), self.devices)
        return layouts.equal_shares(lengths, self.devices)

    def _slots_for(self, sentences: int) -> int:
        """Returns the number of slots for some sentences. On a CPU it is small, since empty slots
        cost time, too.

        A GPU or TPU computes all slots at once. The product of a sparse W_rec has the same bits for
        any number of slots; the product of a dense matrix may be rounded differently (seen with
        AVX-512).
        """
        if backend() != "cpu" or self.devices > 1:
            return self.own_slots
        fits = 1 << (sentences - 1).bit_length()  # few sizes, so few compilations
        return min(self.own_slots, max(FEWEST_CPU_SLOTS, fits))


def _padded(steps: int) -> int:
    return max(128, 1 << (steps - 1).bit_length())  # few sizes, so few compilations


@partial(jax.jit, static_argnums=(0, 1))
def _zeros_on(shape: tuple[int, int], sharding: NamedSharding) -> jax.Array:
    return jax.lax.with_sharding_constraint(jnp.zeros(shape, jnp.float32), sharding)
