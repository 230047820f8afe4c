"""Features of many sentences at once, without a gradient, in the rows of a buffer.

FeatureStream runs a recurrent cell, TrunkStream adds a trained trunk above it, and BatchStream
runs a model that reads whole batches instead of one token after another.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice, zip_longest
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.sparse import BCSR
from jax.sharding import NamedSharding

from esnlm.base.errors import InputError
from esnlm.features import batching, recurrence
from esnlm.features.batching import PackedSteps, Rows, padded_size, round_up
from esnlm.features.documents import Chunk
from esnlm.features.recurrence import BY_DEVICE, Cell, State
from esnlm.machine import mesh as meshes
from esnlm.machine.compute import backend, run_at_once
from esnlm.machine.host import usable_cores
from esnlm.machine.mesh import Placement

ONE_DEVICE = "data.context is document: this runs on one device only; set compute.mesh to {data: 1}"
MIN_CPU_SLOTS = 16  # An AVX-512 register holds 16 float32 numbers, so fewer slots save little.
# The least rows of a window and slots that are worth a core of its own (results/recurrence.md).
MIN_PARALLEL_ROWS, MIN_PARALLEL_SLOTS = 2048, 32
MIN_STEPS = 128  # minimum padded number of time steps
BLOCK_ROWS = 1024  # rows of a block that goes through a trunk; minimum rows of a buffer
BATCH_TOKENS = 2048  # approximate number of tokens in a batch of BatchStream


class SentenceFeatures(Protocol):
    """Computes the features of many sentences at once."""

    slots: int  # number of sentences per window for best speed
    parallel: int  # number of windows that are computed at the same time

    def read_windows(
        self, windows: Iterable[list[np.ndarray]], prefix_tree: bool = False
    ) -> Iterator[tuple[jax.Array, Rows]]:
        """Yields the features after each token of each sentence, window by window.

        Args:
            windows: sentences that are computed together, int arrays of the tokens to read, each at
                least one long.
            prefix_tree: evaluate each distinct prefix of a window once; it allows at most `slots`
                sentences.

        Yields:
            (buffer, rows): the features of sentence s at position t are buffer[rows[s][t]], (F,)
            float32. A later window may overwrite the buffer.
        """

    def read(
        self, sentences: list[np.ndarray], prefix_tree: bool = False
    ) -> tuple[jax.Array, Rows]:
        """Returns the result of `read_windows` for one window."""
        (features,) = self.read_windows([sentences], prefix_tree)
        return features


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


class FeatureStream(SentenceFeatures):
    """Runs a recurrent network's cell over sentences. Its methods are thread-safe.

    On a mesh each device reads a share of the sentences in batch slots of its own. On a CPU, XLA
    computes the product of a sparse W_rec on one core, so `parallel` windows at the same time share
    the slots and the capacity.

    Args:
        cell: see features/recurrence.py.
        slots: B, sentences that run side by side on a device.
        capacity: usual maximum of rows in the buffers of a device; a call that needs more gets
            more.
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
        self.dropout = dropout
        self.mesh = None if placement is None else placement.mesh
        self.devices = 1 if placement is None else placement.devices
        self.cell = cell if placement is None else placement.replicate(cell)
        self.parallel = _parallel_windows(cell, slots, capacity) if self.mesh is None else 1
        self.capacity = capacity // self.parallel
        self.slots_per_device = slots
        if self.parallel > 1:  # whole registers: other numbers of slots may round differently
            self.slots_per_device = slots // self.parallel // MIN_CPU_SLOTS * MIN_CPU_SLOTS
        self.slots = self.slots_per_device * self.devices

    def read_windows(
        self, windows: Iterable[list[np.ndarray]], prefix_tree: bool = False
    ) -> Iterator[tuple[jax.Array, Rows]]:
        windows = iter(windows)
        buffers: list[jax.Array] = []
        while group := list(islice(windows, self.parallel)):
            packed = [self.pack(window, prefix_tree) for window in group]
            _, buffers = self.run(packed, buffers=buffers)
            for each, buffer in zip(packed, buffers, strict=True):
                yield buffer, each.rows

    def read_on(self, chunk: Chunk, state: State) -> tuple[State, jax.Array, np.ndarray]:
        state, (buffer,) = self.run([self.pack_chunk(chunk)], state)
        return state, buffer, chunk.rows

    def pack(
        self,
        sentences: list[np.ndarray],
        prefix_tree: bool = False,
        corpus_positions: list[np.ndarray] | None = None,
        capacity: int | None = None,
    ) -> Packed:
        """Packs sentences on the host, for `run`.

        Args:
            sentences, prefix_tree: as in `read`.
            corpus_positions: position of each token in the corpus, by sentence; None: no dropout.
                Without dropout, a first token that all sentences share is read once.
            capacity: usual maximum of rows of all calls that reuse a buffer; None: few sizes.
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
        size = self.rows_per_device(used, capacity)
        rows = _rows_in_buffer(shares, rows_by_device, size)
        return Packed(self._pad(steps_by_device), size * self.devices, rows)

    def pack_chunk(
        self, chunk: Chunk, capacity: int | None = None, with_dropout: bool = False
    ) -> Packed:
        """Packs a chunk of documents for `run`; the streams are the first slots."""
        steps = chunk.steps
        if not (with_dropout and self.dropout):
            steps = steps._replace(corpus_positions=None)
        # the last time step writes a row for each stream
        spare = max(0, steps.tokens.shape[1] - self.slots_per_device)
        size = self.rows_per_device(chunk.size, capacity) + spare
        return Packed(self._pad([steps]), size, [])

    def run(
        self,
        parts: list[Packed],
        state: State | None = None,
        key: jax.Array | None = None,
        buffers: Sequence[jax.Array] = (),
    ) -> tuple[State | None, list[jax.Array]]:
        """Dispatches parts to the device, to be computed at the same time.

        Args:
            parts: from `pack` or `pack_chunk`.
            state: the state of the slots before the first step; None: the initial one.
            key: dropout key of the epoch.
            buffers: of an earlier call, overwritten if they have the right sizes.

        Returns:
            (state, buffers), without waiting: the state after the last part, and all features.
        """
        if len(parts) > 1:  # Programs that wait for these would slow down those that compute them.
            jax.block_until_ready(buffers)
        # The buffers are made in this thread, since only the main one keeps freed memory
        # (machine/host.py).
        calls = [
            partial(self._run, part, state, key, self._buffer(part.size, buffer))
            for part, buffer in zip_longest(parts, buffers[: len(parts)])
        ]
        states, features = zip(*run_at_once(calls), strict=True)
        return states[-1], list(features)

    def _buffer(self, size: int, earlier: jax.Array | None) -> jax.Array:
        """Returns the earlier buffer if it has the right size, else a new one."""
        if earlier is not None and len(earlier) == size:
            return earlier
        sharding = None if self.mesh is None else NamedSharding(self.mesh, BY_DEVICE)
        return jnp.zeros((size, self.cell.output_size), jnp.float32, device=sharding)

    def _run(
        self, packed: Packed, state: State | None, key: jax.Array | None, buffer: jax.Array
    ) -> tuple[State | None, jax.Array]:
        """Dispatches one part, and returns the state and the features."""
        steps, mesh = packed.steps, self.mesh
        rate = 0.0 if steps.corpus_positions is None else self.dropout
        key = key if rate else None
        if mesh is None:
            return recurrence.run(self.cell, steps, buffer, key, state, rate=rate)
        if state is not None:
            raise InputError(ONE_DEVICE)
        steps = jax.tree.map(lambda array: meshes.shard(array, mesh, BY_DEVICE), steps)
        return None, recurrence.run_on_mesh(self.cell, steps, buffer, key, mesh, rate)

    def rows_per_device(self, used: int, capacity: int | None = None) -> int:
        """Returns the rows of a device's part of a buffer, with spare ones for the last steps.

        `used` rows are used, and `capacity` is as in `pack`.
        """
        usual = self.capacity if capacity is None else capacity
        if self.devices > 1:  # An eighth to spare, since the shares are not quite equal.
            usual = 9 * usual // (8 * self.devices)
        if used > usual:
            return round_up(used, BLOCK_ROWS) + self.slots_per_device
        least = max(BLOCK_ROWS, padded_size(max(used, 1)))
        return (min(usual, least) if capacity is None else usual) + self.slots_per_device

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


def _parallel_windows(cell: Cell, slots: int, capacity: int) -> int:
    """Returns how many windows to compute at the same time, for best speed."""
    parts = jax.tree.leaves(cell, is_leaf=lambda part: isinstance(part, BCSR))
    if backend() != "cpu" or not any(isinstance(part, BCSR) for part in parts):
        return 1
    most = min(slots // MIN_PARALLEL_SLOTS, capacity // MIN_PARALLEL_ROWS)
    return max(1, min(usable_cores(), most))


def _rows_in_buffer(shares: list[np.ndarray], rows_by_device: list[Rows], size: int) -> Rows:
    """Returns each sentence's rows in a buffer that has `size` rows for each device."""
    rows = {
        s: rows_by_device[device][i] + np.int32(device * size)
        for device, share in enumerate(shares)
        for i, s in enumerate(share)
    }
    return [rows[s] for s in range(len(rows))]


class TrunkStream(SentenceFeatures):
    """A DocumentFeatures that passes the features of a frozen `stream` (C, N) through a trunk.

    Streams with the same trunk share compiled programs.
    """

    def __init__(
        self, stream: FeatureStream, trunk: Callable[[dict, jax.Array], jax.Array], params: dict
    ) -> None:
        self.stream, self.trunk, self.params = stream, trunk, params
        self.slots, self.parallel, self.cell = stream.slots, stream.parallel, stream.cell

    def read_windows(
        self, windows: Iterable[list[np.ndarray]], prefix_tree: bool = False
    ) -> Iterator[tuple[jax.Array, Rows]]:
        for buffer, rows in self.stream.read_windows(windows, prefix_tree):
            yield self._apply_trunk(buffer, rows)

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


class BatchStream(SentenceFeatures):
    """A SentenceFeatures for a model that reads whole batches. It does not share prefixes."""

    parallel = 1

    def __init__(
        self,
        features: Callable[[PackedSteps], jax.Array],
        slots: int,
        placement: Placement | None = None,
    ) -> None:
        self.features, self.slots, self.placement = features, slots, placement
        self.devices = 1 if placement is None else placement.devices

    def read_windows(
        self, windows: Iterable[list[np.ndarray]], prefix_tree: bool = False
    ) -> Iterator[tuple[jax.Array, Rows]]:
        return map(self._read, windows)

    def _read(self, sentences: list[np.ndarray]) -> tuple[jax.Array, Rows]:
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
