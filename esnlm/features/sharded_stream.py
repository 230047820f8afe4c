"""Features of many sentences at once on a mesh of devices, each of which reads its own share of the sentences.

No device waits for another one while states are computed: a share of the sentences runs in batch slots of its own, on a copy of
the cell. What comes out is cut by sentence. A readout that is cut too wants it by unit (`by_unit`): one exchange between all
devices, in which each state travels once.
"""

import heapq
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from esnlm.features import recurrence
from esnlm.features.stream import FeatureStream, Reading
from esnlm.parallel import mesh as meshes
from esnlm.parallel.mesh import ALL, EVERYWHERE
from esnlm.parallel.placement import Placement

BY_SENTENCE, BY_UNIT = PartitionSpec(ALL), PartitionSpec(None, ALL)


class ShardedStream(FeatureStream):
    """A FeatureStream whose buffer is cut by row over the devices of a mesh.

    Args:
        cell, dropout: as for FeatureStream.
        slots: of each device.
        capacity: rows of all devices to begin with.
        placement: of the model.
    """

    placement: Placement

    def __init__(self, cell: recurrence.Cell, slots: int, capacity: int, dropout: float, placement: Placement) -> None:
        self.placement, self.own_slots = placement, slots
        self.cell, self.slots, self.dropout = placement.everywhere(cell), slots * placement.devices, dropout
        self._make_buffer(capacity // placement.devices + capacity // placement.devices // 8)

    def _read(self, reading: Reading) -> tuple[jax.Array, list[np.ndarray]]:
        if reading.prefix_tree:  # neighbours share prefixes
            shares = np.array_split(np.arange(len(reading.sentences)), self.placement.devices)
        else:
            shares = share_out([len(sentence) for sentence in reading.sentences], self.placement.devices)
        # A device without a share reads the first sentence, too. Nothing comes of it.
        laid_out = [reading.only(share if len(share) else [0]).lay_out(self.own_slots) for share in shares]
        found, corpus_positions = zip(*laid_out, strict=True)
        if (rows := max(each.total for each in found)) + self.own_slots > self.rows:
            self._make_buffer(-(-rows // 1024) * 1024)
        steps = 1 << max(0, max(each.steps for each in found) - 1).bit_length()  # few sizes, so few compilations

        def stack(arrays: Sequence[Any]) -> np.ndarray | None:
            if arrays[0] is None:
                return None
            padding = [(0, 0)] * (arrays[0].ndim - 1)
            return np.stack([np.pad(array, [(0, steps - len(array)), *padding]) for array in arrays])

        laid = _Laid(
            tokens=stack([each.tokens for each in found]),
            starts=stack([each.starts for each in found]),
            parents=stack([each.parents for each in found]),
            first_rows=stack([each.first_rows for each in found]),
            steps=np.array([each.steps for each in found], np.int32),
            corpus_positions=stack(corpus_positions),
        )
        self.buffer = run(
            self.cell,
            jax.tree.map(lambda array: meshes.place(array, self.placement.mesh, BY_SENTENCE), laid),
            self.buffer,
            reading.first_token,
            reading.key,
            mesh=self.placement.mesh,
            rate=reading.rate,
        )
        rows_of = [np.empty(0, np.int32)] * len(reading.sentences)
        for device, (share, each) in enumerate(zip(shares, found, strict=True)):
            for s, own in zip(share, each.rows, strict=False):
                rows_of[s] = own + np.int32(device * self.rows)
        return self.buffer, rows_of

    def _make_buffer(self, rows: int) -> None:
        """Makes a buffer with so many rows, and those that a time step may overwrite, on each device."""
        self.buffer: Any = None  # freed before its successor is made
        self.rows = rows + self.own_slots
        shape = self.placement.devices * self.rows, self.cell.output_size
        sharding = jax.sharding.NamedSharding(self.placement.mesh, BY_SENTENCE)
        self.buffer = jax.jit(lambda: jnp.zeros(shape, jnp.float32), out_shardings=sharding)()


def share_out(lengths: list[int], devices: int) -> list[np.ndarray]:
    """Returns the numbers of each device's sentences: the longest first, each to the device with the fewest tokens."""
    queue = [(0, device) for device in range(devices)]
    shares: list[list[int]] = [[] for _ in range(devices)]
    for s in np.argsort([-length for length in lengths], kind="stable"):
        load, device = queue[0]
        shares[device].append(int(s))
        heapq.heapreplace(queue, (load + lengths[s], device))
    return [np.array(share, np.int64) for share in shares]


class _Laid(NamedTuple):
    """The layouts of all devices, with a leading axis for the device; features/layout.py has the rest."""

    tokens: Any  # (devices, T, B)
    starts: Any
    parents: Any
    first_rows: Any  # (devices, T)
    steps: Any  # (devices,)
    corpus_positions: Any


@partial(jax.jit, static_argnames=("mesh", "rate"), donate_argnames="buffer")
def run(
    cell: recurrence.Cell,
    laid: _Laid,
    buffer: jax.Array,
    first_token: Any,
    key: Any,
    *,
    mesh: Mesh,
    rate: float,
) -> jax.Array:
    """Runs every device's slots: what recurrence.run is to one device. Nothing travels between devices.

    Args:
        cell, first_token, key: the same on all devices.
        laid: what differs between them.
        buffer: (devices * rows, F), cut by row; overwritten.
        mesh: the devices.
        rate: of dropout.
    """

    def here(cell: recurrence.Cell, laid: _Laid, buffer: jax.Array, first_token: Any, key: Any) -> jax.Array:
        own = _Laid(*(None if part is None else part[0] for part in laid))
        return recurrence.run(cell, *own[:5], buffer, first_token, own.corpus_positions, key, rate)

    specs = EVERYWHERE, BY_SENTENCE, BY_SENTENCE, EVERYWHERE, EVERYWHERE
    return jax.shard_map(here, mesh=mesh, in_specs=specs, out_specs=BY_SENTENCE, check_vma=False)(
        cell, laid, buffer, first_token, key
    )


@partial(jax.jit, static_argnames="mesh")
def by_unit(buffer: jax.Array, mesh: Mesh) -> jax.Array:
    """Returns features (rows, F) that are cut by row as features that are cut by unit, in the order that they had.

    Units of zeros are added, so that every device has equally many.
    """
    devices = mesh.size

    def here(rows: jax.Array) -> jax.Array:
        padded = jnp.pad(rows, ((0, 0), (0, -rows.shape[1] % devices)))
        return lax.all_to_all(padded, ALL, split_axis=1, concat_axis=0, tiled=True)

    return jax.shard_map(here, mesh=mesh, in_specs=BY_SENTENCE, out_specs=BY_UNIT, check_vma=False)(buffer)
