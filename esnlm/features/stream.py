"""Features of many sentences at once, without a gradient, in the rows of a buffer.

FeatureStream runs a recurrent cell, TrunkStream adds a trained trunk above it, and BatchStream
runs a model that reads whole batches instead of one token after another.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding

from esnlm.base.errors import InputError
from esnlm.features import batching, recurrence
from esnlm.features.batching import PackedSteps, Rows, padded_size, round_up
from esnlm.features.documents import Chunk
from esnlm.features.recurrence import BY_DEVICE, Cell, State
from esnlm.machine import mesh as meshes
from esnlm.machine.compute import backend
from esnlm.machine.mesh import Placement

ONE_DEVICE = "data.context is document: this runs on one device only; set compute.mesh to {data: 1}"
MIN_CPU_SLOTS = 16  # An AVX-512 register holds 16 float32 numbers, so fewer slots save little.
MIN_STEPS = 128  # minimum padded number of time steps
BLOCK_ROWS = 1024  # rows of a block that goes through a trunk; minimum rows of a buffer
BATCH_TOKENS = 2048  # approximate number of tokens in a batch of BatchStream


class SentenceFeatures(Protocol):
    """Computes the features of many sentences at once."""

    slots: int  # number of sentences per call for best speed

    def read(
        self, sentences: list[np.ndarray], prefix_tree: bool = False
    ) -> tuple[jax.Array, Rows]:
        """Computes the features after each token of each sentence.

        Args:
            sentences: int arrays of the tokens to read, each at least one long.
            prefix_tree: evaluate each distinct prefix once; it allows at most `slots` sentences.

        Returns:
            (buffer, rows): the features of sentence s at position t are buffer[rows[s][t]], (F,)
            float32.
        """


@runtime_checkable
class DocumentFeatures(SentenceFeatures, Protocol):
    """Also carries the state of a recurrence over the sentences of documents."""

    cell: Cell

    def read_on(self, chunk: Chunk, state: State) -> tuple[State, jax.Array, np.ndarray]:
        """Reads a chunk of documents, without dropout.

        Returns (state, buffer, rows): the state after the chunk, and the features before its i-th
        predicted token are buffer[rows[i]].
        """


class Packed(NamedTuple):
    """Sentences or a chunk of documents, ready for FeatureStream.run."""

    steps: PackedSteps  # on a mesh with a leading axis for the device
    size: int  # rows of the buffer
    rows: Rows  # of each sentence


class FeatureStream:
    """Runs a recurrent network's cell over sentences. `read` is thread-safe.

    On a mesh each device reads a share of the sentences in batch slots of its own.

    Args:
        cell: see features/recurrence.py.
        slots: B, sentences that run side by side on a device.
        capacity: usual maximum of rows in a buffer; a call that needs more gets more.
        dropout: dropout rate on the input, for calls with corpus positions.
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
        self.capacity, self.dropout = capacity, dropout
        self.mesh = None if placement is None else placement.mesh
        self.devices = 1 if placement is None else placement.devices
        self.cell = cell if placement is None else placement.replicate(cell)
        self.slots_per_device, self.slots = slots, slots * self.devices
        self._buffer: jax.Array | None = None

    def read(
        self, sentences: list[np.ndarray], prefix_tree: bool = False
    ) -> tuple[jax.Array, Rows]:
        packed = self.pack(sentences, prefix_tree)
        return self.run(packed)[1], packed.rows

    def read_on(self, chunk: Chunk, state: State) -> tuple[State, jax.Array, np.ndarray]:
        state, buffer = self.run(self.pack_chunk(chunk), state)
        return state, buffer, chunk.rows

    def pack(
        self,
        sentences: list[np.ndarray],
        prefix_tree: bool = False,
        corpus_positions: list[np.ndarray] | None = None,
        full: bool = False,
    ) -> Packed:
        """Packs sentences on the host, for `run`.

        Args:
            sentences, prefix_tree: as in `read`.
            corpus_positions: position of each token in the corpus, by sentence; None: no dropout.
                Without dropout, a first token that all sentences share is read once.
            full: use a buffer of the usual maximum size, which the next call can reuse.
        """
        positions = corpus_positions if self.dropout > 0 else None
        assert not (prefix_tree and positions is not None), "sentences share prefixes, not masks"
        has_one_start = len({int(sentence[0]) for sentence in sentences}) == 1
        shared_first = has_one_start and not prefix_tree and positions is None
        slots = self._slots_for(len(sentences))
        shares = self._shares([len(sentence) for sentence in sentences], in_order=prefix_tree)
        steps_by_device, rows_by_device = [], []
        for share in shares:
            # A device without a share reads a sentence whose features are not used.
            numbers = share if len(share) else [0]
            texts = [sentences[s] for s in numbers]
            if prefix_tree:
                steps, rows = batching.pack_prefix_tree(texts, slots)
            else:
                places = None if positions is None else [positions[s] for s in numbers]
                steps, rows = batching.pack(texts, slots, places, shared_first)
            steps_by_device.append(steps)
            rows_by_device.append(rows)
        used = max(int(row.max()) for rows in rows_by_device for row in rows) + 1
        size = self.rows_per_device(used, full)
        rows = _rows_in_buffer(shares, rows_by_device, size)
        return Packed(self._pad(steps_by_device), size * self.devices, rows)

    def pack_chunk(self, chunk: Chunk, full: bool = False, with_dropout: bool = False) -> Packed:
        """Packs a chunk of documents for `run`; the streams are the first slots."""
        steps = chunk.steps
        assert steps.tokens.shape[1] <= self.slots_per_device, (
            "the last time step would overwrite rows of the buffer"
        )
        if not (with_dropout and self.dropout):
            steps = steps._replace(corpus_positions=None)
        return Packed(self._pad([steps]), self.rows_per_device(chunk.size, full), [])

    def run(
        self,
        packed: Packed,
        state: State | None = None,
        key: jax.Array | None = None,
        reuse: bool = False,
    ) -> tuple[State | None, jax.Array]:
        """Dispatches the features to the device, and returns (state, buffer) without waiting.

        Args:
            packed: from `pack` or `pack_chunk`.
            state: the state of the slots before the first step; None: the initial one.
            key: dropout key of the epoch.
            reuse: overwrite the buffer of the last call with `reuse`, whose features become
                invalid. Not thread-safe.
        """
        steps, size, _ = packed
        buffer = self._buffer if reuse else None
        if buffer is None or len(buffer) != size:
            sharding = None if self.mesh is None else NamedSharding(self.mesh, BY_DEVICE)
            buffer = jnp.zeros((size, self.cell.output_size), jnp.float32, device=sharding)
        rate = 0.0 if steps.corpus_positions is None else self.dropout
        key = key if rate else None
        if self.mesh is None:
            state, buffer = recurrence.run(self.cell, steps, buffer, key, state, rate=rate)
        elif state is not None:
            raise InputError(ONE_DEVICE)
        else:
            mesh = self.mesh
            steps = jax.tree.map(lambda array: meshes.shard(array, mesh, BY_DEVICE), steps)
            buffer = recurrence.run_on_mesh(self.cell, steps, buffer, key, mesh, rate)
        if reuse:
            self._buffer = buffer
        return state, buffer

    def rows_per_device(self, used: int, full: bool) -> int:
        """Returns the rows of a device's part of a buffer, with spare ones for the last steps."""
        # An eighth to spare, since the shares of several devices are not quite equal.
        usual = self.capacity if self.devices == 1 else 9 * self.capacity // (8 * self.devices)
        if used > usual:
            return round_up(used, BLOCK_ROWS) + self.slots_per_device
        least = max(BLOCK_ROWS, padded_size(max(used, 1)))
        return (usual if full else min(usual, least)) + self.slots_per_device

    def _pad(self, by_device: list[PackedSteps]) -> PackedSteps:
        """Pads the steps of all devices to one of few numbers; on a mesh, stacks them."""
        count = padded_size(max(MIN_STEPS, *(len(steps.tokens) for steps in by_device)))
        padded = [steps.padded(count) for steps in by_device]
        return padded[0] if self.mesh is None else jax.tree.map(lambda *x: np.stack(x), *padded)

    def _shares(self, lengths: list[int], in_order: bool) -> list[np.ndarray]:
        """Returns the sentences of each device: neighbours, or about equal numbers of tokens."""
        if self.devices == 1 or in_order:
            return np.array_split(np.arange(len(lengths)), self.devices)
        return batching.split_evenly(lengths, self.devices)

    def _slots_for(self, sentences: int) -> int:
        """Returns the slots per device for some sentences.

        There are fewer on a CPU, which computes empty slots, too. The product of a sparse W_rec has
        the same bits for any number of slots; the product of a dense matrix may be rounded
        differently (seen with AVX-512).
        """
        if backend() != "cpu" or self.devices > 1:
            return self.slots_per_device
        return min(self.slots_per_device, max(MIN_CPU_SLOTS, padded_size(sentences)))


def _rows_in_buffer(shares: list[np.ndarray], rows_by_device: list[Rows], size: int) -> Rows:
    """Returns each sentence's rows in a buffer that has `size` rows for each device."""
    rows = {
        s: rows_by_device[device][i] + np.int32(device * size)
        for device, share in enumerate(shares)
        for i, s in enumerate(share)
    }
    return [rows[s] for s in range(len(rows))]


class TrunkStream:
    """A DocumentFeatures that passes the features of a frozen `stream` (C, N) through a trunk.

    Streams with the same trunk share compiled programs.
    """

    def __init__(
        self, stream: FeatureStream, trunk: Callable[[dict, jax.Array], jax.Array], params: dict
    ) -> None:
        self.stream, self.trunk, self.params, self.slots = stream, trunk, params, stream.slots
        self.cell = stream.cell

    def read(
        self, sentences: list[np.ndarray], prefix_tree: bool = False
    ) -> tuple[jax.Array, Rows]:
        return self._apply_trunk(*self.stream.read(sentences, prefix_tree))

    def read_on(self, chunk: Chunk, state: State) -> tuple[State, jax.Array, np.ndarray]:
        state, buffer, rows = self.stream.read_on(chunk, state)
        buffer, (rows,) = self._apply_trunk(buffer, [rows])
        return state, buffer, rows

    def _apply_trunk(self, buffer: jax.Array, rows: Rows) -> tuple[jax.Array, Rows]:
        """Applies the trunk to the used rows. Returns the features and the rows' new numbers."""
        devices = self.stream.devices
        size = len(buffer) // devices  # rows of each device
        used = 1 + max(int((row % size).max()) for row in rows)
        blocks = padded_size(-(-used // BLOCK_ROWS))
        features = _trunk_by_blocks(self.trunk, self.params, buffer, devices, blocks)
        return features, [row // size * (BLOCK_ROWS * blocks) + row % size for row in rows]


@partial(jax.jit, static_argnums=(0, 3, 4))
def _trunk_by_blocks(
    trunk: Callable, params: dict, buffer: jax.Array, devices: int, blocks: int
) -> jax.Array:
    """Returns the features of the first `blocks` blocks of rows of each device."""
    size = BLOCK_ROWS * blocks
    rows = buffer.reshape(devices, -1, buffer.shape[1])[:, :size]
    # the last block may be shorter
    rows = jnp.pad(rows, ((0, 0), (0, max(0, size - rows.shape[1])), (0, 0)))
    by_block = rows.reshape(devices, blocks, BLOCK_ROWS, -1).swapaxes(0, 1)
    features = lax.map(
        partial(trunk, params), by_block.reshape(blocks, devices * BLOCK_ROWS, -1)
    )  # (blocks, devices ROWS, F)
    by_device = features.reshape(blocks, devices, BLOCK_ROWS, -1).swapaxes(0, 1)
    return by_device.reshape(devices * size, -1)


class BatchStream:
    """A SentenceFeatures for a model that reads whole batches. It does not share prefixes."""

    def __init__(
        self,
        features: Callable[[PackedSteps], jax.Array],
        slots: int,
        placement: Placement | None = None,
    ) -> None:
        self.features, self.slots, self.placement = features, slots, placement
        self.devices = 1 if placement is None else placement.devices

    def read(
        self, sentences: list[np.ndarray], prefix_tree: bool = False
    ) -> tuple[jax.Array, Rows]:
        order = np.argsort([-len(sentence) for sentence in sentences], kind="stable")
        longest_first, parts = [sentences[s] for s in order], []
        max_tokens = self.devices * BATCH_TOKENS * 7 // 8  # an eighth is left for padding
        for group in batching.group_by_tokens(map(len, longest_first), max_tokens):
            texts = longest_first[group.start : group.stop]
            # at least half of the slots that fit, so that few sizes are compiled
            steps = max(len(texts[0]), batching.MIN_BATCH_STEPS)
            min_slots = BATCH_TOKENS * self.devices // (2 * steps)
            batch, rows = batching.pack_batch(texts, None, min_slots, self.devices)
            if self.placement is not None:
                batch = self.placement.by_slots(batch)
            parts.append(self.features(batch)[np.concatenate(rows)])
        *ends, total = np.cumsum(list(map(len, longest_first))).tolist()
        spare = -total % (BLOCK_ROWS * self.devices)  # few sizes, so few compilations
        parts.append(jnp.zeros((spare, parts[0].shape[1]), jnp.float32))
        in_order = np.split(np.arange(total, dtype=np.int32), ends)
        return jnp.concatenate(parts), [in_order[i] for i in np.argsort(order)]
