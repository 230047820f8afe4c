"""Features of many sentences at once on a mesh of devices, each copy of the cell with its own share of the sentences.

Where every device has a copy, no device waits for another one while states are computed: a share of the sentences runs in batch
slots of its own. What comes out is cut by sentence. A readout that is cut too wants it by unit (`by_unit`): one exchange
between all devices, in which each state travels once.

Where several devices share a copy, they read the same sentences, each for its own units (reservoir/by_unit.py). What comes out is
cut by sentence and by unit, and is exchanged between the copies only.
"""

import heapq
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from esnlm.features import recurrence
from esnlm.features.stream import FeatureStream, Reading
from esnlm.parallel import mesh as meshes
from esnlm.parallel.mesh import EVERYWHERE, GROUPS, UNITS
from esnlm.parallel.placement import BY_UNIT, Placement

BY_SENTENCE = PartitionSpec(GROUPS)
OF_BUFFER = PartitionSpec(GROUPS, UNITS)


class ShardedStream(FeatureStream):
    """A FeatureStream whose buffer is cut by row over the copies of the cell on a mesh, and by unit over the devices of a copy.

    Args:
        cell: as for FeatureStream; one that is cut by unit where several devices share a copy.
        dropout: as for FeatureStream.
        slots: for each device; those that share a copy run all of theirs together.
        capacity: rows of all devices to begin with.
        placement: of the model.
    """

    placement: Placement

    def __init__(self, cell: recurrence.Cell, slots: int, capacity: int, dropout: float, placement: Placement) -> None:
        self.placement, self.groups = placement, placement.devices // placement.units
        self.cell = placement.everywhere(cell) if placement.units == 1 else cell
        self.own_slots, self.slots, self.dropout = slots * placement.units, slots * placement.devices, dropout
        self._make_buffer(capacity // self.groups + capacity // self.groups // 8)

    def _lay_out(self, reading: Reading) -> Any:
        if reading.prefix_tree:  # neighbours share prefixes
            shares = np.array_split(np.arange(len(reading.sentences)), self.groups)
        else:
            shares = share_out([len(sentence) for sentence in reading.sentences], self.groups)
        # Who has no share reads the first sentence, too. Nothing comes of it.
        laid_out = [reading.only(share if len(share) else [0]).lay_out(self.own_slots) for share in shares]
        found, corpus_positions = zip(*laid_out, strict=True)
        longest = max(each.steps for each in found)
        steps = 1 << max(0, longest - 1).bit_length()  # few sizes, so few compilations

        def stack(arrays: Sequence[Any]) -> np.ndarray | None:
            if arrays[0] is None:
                return None
            padding = [(0, 0)] * (arrays[0].ndim - 1)
            return np.stack([np.pad(array, [(0, steps - len(array)), *padding]) for array in arrays])

        laid = _Laid(
            tokens=stack([each.tokens for each in found]),
            starts=stack([each.starts for each in found]),
            parents=stack([each.parents for each in found]),
            # What a copy writes after its last time step goes behind its rows.
            first_rows=np.stack(
                [np.pad(each.first_rows, (0, steps - each.steps), constant_values=each.total) for each in found]
            ),
            # Devices that exchange states in a loop leave it together, those of other copies too.
            steps=np.array([each.steps if self.placement.units == 1 else longest for each in found], np.int32),
            corpus_positions=stack(corpus_positions),
        )
        return reading, shares, found, laid

    def run(self, laid_out: Any, key: jax.Array | None = None) -> tuple[jax.Array, list[np.ndarray]]:
        reading, shares, found, laid = laid_out
        if (rows := max(each.total for each in found)) + self.own_slots > self.rows:
            self._make_buffer(-(-rows // 1024) * 1024)
        self.buffer = run(
            self.cell,
            jax.tree.map(lambda array: meshes.place(array, self.placement.mesh, BY_SENTENCE), laid),
            self.buffer,
            reading.first_token,
            key if reading.rate else None,
            mesh=self.placement.mesh,
            rate=reading.rate,
        )
        rows_of = [np.empty(0, np.int32)] * len(reading.sentences)
        for group, (share, each) in enumerate(zip(shares, found, strict=True)):
            for s, own in zip(share, each.rows, strict=False):
                rows_of[s] = own + np.int32(group * self.rows)
        return self.buffer, rows_of

    def _make_buffer(self, rows: int) -> None:
        """Makes a buffer with so many rows, and those that a time step may overwrite, for each copy of the cell."""
        self.buffer: Any = None  # freed before its successor is made
        self.rows = rows + self.own_slots
        units = self.cell.output_size if self.placement.units == 1 else self.placement.padded_feature_size
        shape = self.groups * self.rows, units
        sharding = NamedSharding(self.placement.mesh, OF_BUFFER)
        self.buffer = jax.jit(lambda: jnp.zeros(shape, jnp.float32), out_shardings=sharding)()


def share_out(lengths: list[int], groups: int) -> list[np.ndarray]:
    """Returns the numbers of each group's sentences: the longest first, each to the group with the fewest tokens."""
    queue = [(0, group) for group in range(groups)]
    shares: list[list[int]] = [[] for _ in range(groups)]
    for s in np.argsort([-length for length in lengths], kind="stable"):
        load, group = queue[0]
        shares[group].append(int(s))
        heapq.heapreplace(queue, (load + lengths[s], group))
    return [np.array(share, np.int64) for share in shares]


class _Laid(NamedTuple):
    """The layouts of all copies of the cell, with a leading axis for the copy; features/layout.py has the rest."""

    tokens: Any  # (copies, T, B)
    starts: Any
    parents: Any
    first_rows: Any  # (copies, T)
    steps: Any  # (copies,)
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
    """Runs the slots of every copy of the cell: what recurrence.run is to one device. Nothing travels between copies.

    Args:
        cell: the same on all devices, or the parts of all devices of a copy, with a leading axis for them.
        first_token, key: the same on all devices.
        laid: what differs between the copies.
        buffer: (copies * rows, F), cut by row and by unit; overwritten.
        mesh: the devices.
        rate: of dropout.
    """

    is_cut = mesh.shape[UNITS] > 1

    def here(cell: recurrence.Cell, laid: _Laid, buffer: jax.Array, first_token: Any, key: Any) -> jax.Array:
        own = _Laid(*(None if part is None else part[0] for part in laid))
        ready = jax.tree.map(lambda part: part[0], cell) if is_cut else cell
        return recurrence.run(ready, *own[:5], buffer, first_token, own.corpus_positions, key, rate)

    specs = PartitionSpec(UNITS) if is_cut else EVERYWHERE, BY_SENTENCE, OF_BUFFER, EVERYWHERE, EVERYWHERE
    return jax.shard_map(here, mesh=mesh, in_specs=specs, out_specs=OF_BUFFER, check_vma=False)(
        cell, laid, buffer, first_token, key
    )


def by_unit(buffer: jax.Array, mesh: Mesh) -> jax.Array:
    """Returns features (rows, F) that are cut by row as features that are cut by unit over all devices, rows in their order.

    Units of zeros are added, so that every device has equally many. Where all devices share one copy of the cell, the features
    are there already, and nothing is done.
    """
    return buffer if mesh.size == mesh.shape[UNITS] else _by_unit(buffer, mesh)


@partial(jax.jit, static_argnames="mesh")
def _by_unit(buffer: jax.Array, mesh: Mesh) -> jax.Array:
    groups = mesh.size // mesh.shape[UNITS]

    def here(rows: jax.Array) -> jax.Array:
        padded = jnp.pad(rows, ((0, 0), (0, -rows.shape[1] % groups)))
        return lax.all_to_all(padded, GROUPS, split_axis=1, concat_axis=0, tiled=True)

    return jax.shard_map(here, mesh=mesh, in_specs=OF_BUFFER, out_specs=BY_UNIT, check_vma=False)(buffer)
