"""A reservoir cut by unit over devices: each has the rows of W_rec and W_in of its own units, and the state of these units.

A time step needs one exchange in each layer. W_rec h reads the states of all units, so that every device gathers those of the
others: it receives (1 - 1/U) 4 N B bytes for B batch slots, or half of them with bf16 states. The rows of W_rec are then
multiplied by the kernel that one device would use, and all else in a time step is done unit by unit. A layer above another
one gathers the new output of the layer below as well.

Units are dealt out like cards: of U devices, device u has the units u, u + U, u + 2 U, ... In a scale-free topology the hubs
are the units that joined first. Cut in blocks, the first of 8 devices would have 35 % of all entries of W_rec. Dealt out,
every device has about equally many, as with every other topology.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.sparse import BCOO
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from esnlm.ops import xla
from esnlm.parallel import mesh as meshes
from esnlm.parallel.mesh import UNITS
from esnlm.parallel.placement import deal
from esnlm.reservoir import fused, sparse
from esnlm.reservoir.arrays import Matrix
from esnlm.reservoir.cell import Reservoir, Stack


def cut(reservoir: Reservoir | Stack, mesh: Mesh, kernel: str, state_precision: str = "float32") -> Reservoir | Stack:
    """Returns the cell of all devices: each of its arrays has a leading axis, along which every device has its own part.

    Inside jax.shard_map, with this axis taken away, it is a cell of features/recurrence.py that computes the device's units.

    Args:
        reservoir: as it is built, all of it frozen. The devices divide its units into equal parts.
        mesh: the devices.
        kernel: of W_rec's product; `fused` is the product alone here, since the exchange comes before it.
        state_precision: of the states that W_rec reads, and that are exchanged.
    """
    count = mesh.shape[UNITS]

    def part(number: int) -> Reservoir | Stack:
        layers = [
            _part_of_layer(layer, number, count, first=i == 0).for_device(
                kernel, state_precision=state_precision, reads_tokens=i == 0
            )
            for i, layer in enumerate(reservoir.layers)
        ]
        return layers[0] if isinstance(reservoir, Reservoir) else Stack(layers)

    with meshes.in_host_memory():  # A device shall never have more than its own part.
        parts = [part(number) for number in range(count)]
    return jax.tree.map(lambda *arrays: _place(arrays, mesh), *parts)


class OwnUnits(Reservoir):
    """The units that one device has of a layer. W_rec is (N / U, N), W_in (N / U, V), and the state (N / U, B).

    The columns of W_rec are in the order in which the devices have the units. It runs inside jax.shard_map.
    """

    devices: int  # U

    @property
    def mask_size(self) -> int:
        return self.devices * self.state_size

    @property
    def fuses_steps(self) -> bool:
        return False

    def embed(self, tokens: jax.Array, keep: jax.Array | None = None) -> jax.Array:
        if keep is None:
            return super().embed(tokens)
        dealt = keep.reshape(self.state_size, self.devices, -1)  # unit i is the device's i // U-th, of device i % U
        return super().embed(tokens, dealt[:, lax.axis_index(UNITS)])

    def read_below(self, below: jax.Array) -> jax.Array:
        return super().read_below(_gather(below))

    def _feed_back(self, state: jax.Array) -> jax.Array:
        operand: Any = self.recurrent.get_value()
        if self.state_precision == "float32":
            return sparse.matmul(operand, _gather(self.output(state)))
        # Rounded first, since XLA may move or drop the conversion.
        seen = _gather(xla.rounded_to_bf16(self.output(state)).astype(jnp.bfloat16))
        return sparse.matmul(operand, seen if isinstance(operand, fused.Rows) else seen.astype(jnp.float32))


def _gather(own: jax.Array) -> jax.Array:
    """Returns the rows of all units, (N, B), in the order in which the devices have them, from the device's own."""
    return lax.all_gather(own, UNITS, tiled=True)


def _part_of_layer(layer: Reservoir, number: int, count: int, *, first: bool) -> OwnUnits:
    """Returns the units of one of `count` devices, with matrices as they are built. The first layer reads no other one."""
    w_rec = _part_of_matrix(layer.stored_w_rec, number, count, reads_units=True)
    w_in = _part_of_matrix(layer.stored_w_in, number, count, reads_units=not first)
    leak = np.asarray(layer.leak[...])[number::count]
    embedding: Any = None if layer.embedding is None else layer.embedding[...]
    settings: dict[str, Any] = {"activation": layer.activation, "decay": layer.decay, "update_rule": layer.update_rule}
    own = OwnUnits(w_rec, w_in, leak, embedding, **settings)
    own.devices = count
    return own


def _part_of_matrix(matrix: Matrix, number: int, count: int, *, reads_units: bool) -> Matrix:
    """Returns the rows that one of `count` devices has of a matrix, and the columns in the order of the devices' units."""
    if not isinstance(matrix, BCOO):
        rows = np.asarray(matrix)[number::count]
        return deal(rows, count) if reads_units else rows
    row, column = np.asarray(matrix.indices).T
    mine = row % count == number
    row, column, value = row[mine] // count, column[mine], np.asarray(matrix.data)[mine]
    if reads_units:
        column = column % count * (matrix.shape[1] // count) + column // count
    order = np.lexsort((column, row))
    indices = np.stack([row, column], axis=1)[order]
    # No promise that indices are sorted and unique is made: `_place` may add entries of zeros.
    return BCOO((jnp.asarray(value[order]), jnp.asarray(indices)), shape=(matrix.shape[0] // count, matrix.shape[1]))


def _place(parts: tuple[jax.Array, ...], mesh: Mesh) -> jax.Array:
    """Returns an array with a leading axis for the device, of one array a device. Zeros make them equally long.

    Only the nonzeros of a sparse matrix differ in their number. A zero that is added stands behind the entries that the rows of
    an operand point to, or it adds 0 to a unit.
    """
    shape = tuple(max(sizes) for sizes in zip(*(part.shape for part in parts), strict=True))

    def own(index: Any) -> np.ndarray:
        part = np.asarray(parts[index[0].start or 0])
        return np.pad(part, [(0, size - here) for size, here in zip(shape, part.shape, strict=True)])[None]

    return jax.make_array_from_callback((len(parts), *shape), NamedSharding(mesh, PartitionSpec(UNITS)), own)
