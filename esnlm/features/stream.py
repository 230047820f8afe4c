"""Features of many sentences at once, without a gradient, in the rows of a buffer.

FeatureStream runs a recurrent cell, TrunkStream adds a trained trunk above it, and PackedStream
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
from esnlm.features.batching import PackedSteps, Rows, padded_size
from esnlm.features.documents import Chunk
from esnlm.features.recurrence import BY_DEVICE, Cell, State
from esnlm.machine import mesh as meshes
from esnlm.machine.compute import backend
from esnlm.machine.mesh import Placement

ONE_DEVICE = "data.context is document: this runs on one device only; set compute.mesh to {data: 1}"
FEWEST_CPU_SLOTS = 16  # An AVX-512 register holds 16 float32 numbers, so fewer slots save little.
FEWEST_STEPS = 128  # least padded number of time steps
FEWEST_ROWS = 1024  # least rows of a buffer, or of a block of rows that go through a trunk
BATCH_TOKENS = 2048  # approximate number of tokens in a batch of PackedStream


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
        drops = self.dropout > 0 and corpus_positions is not None
        firsts = {int(sentence[0]) for sentence in sentences}
        is_shared = len(firsts) == 1 and not prefix_tree and not drops
        first_token = np.int32(firsts.pop()) if is_shared else None
        slots = self._slots_for(len(sentences))
        shares = self._shares([len(sentence) for sentence in sentences], in_order=prefix_tree)
        by_device = []
        for share in shares:
            # A device without a share reads a sentence whose features are not used.
            numbers = share if len(share) else [0]
            texts = [sentences[s] for s in numbers]
            places = None
            if drops and corpus_positions is not None:
                places = [corpus_positions[s] for s in numbers]
            if prefix_tree:
                by_device.append(batching.pack_prefix_tree(texts, slots))
            else:
                by_device.append(batching.pack(texts, slots, places, skipped=int(is_shared)))
        count = padded_size(max(FEWEST_STEPS, *(len(steps.tokens) for steps, _ in by_device)))
        parts = [steps.padded(count)._replace(first_token=first_token) for steps, _ in by_device]
        steps = parts[0] if self.mesh is None else jax.tree.map(lambda *x: np.stack(x), *parts)
        used = max(int(row.max()) for _, rows in by_device for row in rows) + 1
        size = self.rows_per_device(used, full)
        rows = [np.empty(0, np.int32)] * len(sentences)
        for device, (share, (_, on_device)) in enumerate(zip(shares, by_device, strict=True)):
            for s, row in zip(share, on_device, strict=False):
                rows[s] = row + np.int32(device * size)
        return Packed(steps, size * self.devices, rows)

    def pack_chunk(self, chunk: Chunk, full: bool = False, drops: bool = False) -> Packed:
        """Packs a chunk of documents for `run`; the streams are the first slots."""
        steps = chunk.steps
        assert steps.tokens.shape[1] <= self.slots_per_device, (
            "the last time step would overwrite rows of the buffer"
        )
        if not (drops and self.dropout):
            steps = steps._replace(corpus_positions=None)
        count = padded_size(max(FEWEST_STEPS, len(steps.tokens)))
        return Packed(steps.padded(count), self.rows_per_device(chunk.size, full), [])

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
            reuse: overwrite the buffer of the last such call, if it has the right size and is no
                longer in use.
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
        # The shares of several devices are not quite equal.
        usual = self.capacity if self.devices == 1 else 9 * self.capacity // (8 * self.devices)
        if used > usual:
            return used + -used % FEWEST_ROWS + self.slots_per_device
        fewest = max(FEWEST_ROWS, padded_size(max(used, 1)))
        return (usual if full else min(usual, fewest)) + self.slots_per_device

    def _shares(self, lengths: list[int], in_order: bool) -> list[np.ndarray]:
        """Returns the sentences of each device: neighbours, or about equal numbers of tokens."""
        if self.devices == 1 or in_order:
            return np.array_split(np.arange(len(lengths)), self.devices)
        return batching.split_evenly(lengths, self.devices)

    def _slots_for(self, sentences: int) -> int:
        """Returns the number of slots for some sentences.

        On a CPU it is small, since empty slots cost time, too. A GPU or TPU computes all slots at
        once. The product of a sparse W_rec has the same bits for any number of slots; the product
        of a dense matrix may be rounded differently (seen with AVX-512).
        """
        if backend() != "cpu" or self.devices > 1:
            return self.slots_per_device
        return min(self.slots_per_device, max(FEWEST_CPU_SLOTS, padded_size(sentences)))


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
        return self._above(*self.stream.read(sentences, prefix_tree))

    def read_on(self, chunk: Chunk, state: State) -> tuple[State, jax.Array, np.ndarray]:
        state, buffer, rows = self.stream.read_on(chunk, state)
        buffer, (rows,) = self._above(buffer, [rows])
        return state, buffer, rows

    def _above(self, buffer: jax.Array, rows: Rows) -> tuple[jax.Array, Rows]:
        """Returns the features above those of a buffer, and their rows."""
        devices = self.stream.devices
        size = len(buffer) // devices  # rows of each device
        used = 1 + max(int((row % size).max()) for row in rows)
        blocks = padded_size(-(-used // FEWEST_ROWS))
        above = _apply(self.trunk, self.params, buffer, devices, blocks)
        return above, [row // size * (FEWEST_ROWS * blocks) + row % size for row in rows]


@partial(jax.jit, static_argnums=(0, 3, 4))
def _apply(
    trunk: Callable, params: dict, buffer: jax.Array, devices: int, blocks: int
) -> jax.Array:
    """Returns the features of the first `blocks` blocks of rows of each device."""
    size = FEWEST_ROWS * blocks
    rows = buffer.reshape(devices, -1, buffer.shape[1])[:, :size]
    # the last block may be shorter
    rows = jnp.pad(rows, ((0, 0), (0, max(0, size - rows.shape[1])), (0, 0)))
    by_block = rows.reshape(devices, blocks, FEWEST_ROWS, -1).swapaxes(0, 1)
    features = lax.map(
        partial(trunk, params), by_block.reshape(blocks, devices * FEWEST_ROWS, -1)
    )  # (blocks, devices ROWS, F)
    by_device = features.reshape(blocks, devices, FEWEST_ROWS, -1).swapaxes(0, 1)
    return by_device.reshape(devices * size, -1)


class PackedStream:
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
        most = self.devices * BATCH_TOKENS * 7 // 8
        for group in batching.group_by_tokens(map(len, longest_first), most):
            texts = longest_first[group.start : group.stop]
            longest = max(len(texts[0]), batching.FEWEST_STEPS)
            slots = BATCH_TOKENS * self.devices // (2 * longest)
            batch, rows = batching.pack_batch(texts, None, slots, self.devices)
            if self.placement is not None:
                batch = self.placement.by_slots(batch)
            parts.append(self.features(batch)[np.concatenate(rows)])
        *ends, total = np.cumsum(list(map(len, longest_first))).tolist()
        spare = -total % (FEWEST_ROWS * self.devices)  # few sizes, so few compilations
        parts.append(jnp.zeros((spare, parts[0].shape[1]), jnp.float32))
        in_order = np.split(np.arange(total, dtype=np.int32), ends)
        return jnp.concatenate(parts), [in_order[i] for i in np.argsort(order)]
