"""Loss and gradient of a model that is trained as a whole, on a mesh of devices.

Each device reads its own slots of the batch, forward and back. What travels:

1. The rows of trained tables that the device's tokens read (an embedding, W_in): from those who have them, and back as
   gradients. A table itself stays where it is.
2. The features, (T B, F), to all devices, for each has some tokens of the readout.
3. What readout/sharded.py names.
4. The gradients of all other arrays, summed over devices.
"""

import jax
import jax.numpy as jnp
from flax import nnx, traverse_util
from jax import lax

from esnlm.features.layout import PackedBatch
from esnlm.features.packed_stream import BY_SLOT
from esnlm.models.base import merge
from esnlm.ops.matmul import matmul
from esnlm.parallel.mesh import ALL, DATA, EVERYWHERE, VOCABULARY
from esnlm.parallel.placement import Placement
from esnlm.readout import sharded
from esnlm.readout.sharded import Targets
from esnlm.training import update
from esnlm.training.batches import PackedTargets


def loss_and_gradient(
    graphdef: nnx.GraphDef,
    placement: Placement,
    frozen: nnx.State,
    params: dict,
    batch: PackedBatch,
    packed: PackedTargets,
    key: jax.Array | None,
) -> tuple[jax.Array, dict, jax.Array]:
    """Computes what end_to_end.loss_and_gradient computes, for arrays that are placed on a mesh.

    Args:
        graphdef, params, packed, key: as there; params are placed.
        placement: of the model.
        frozen: on every device.
        batch: the tokens that are read, cut by slot.
    """

    def here(
        frozen: nnx.State, params: dict, batch: PackedBatch, packed: PackedTargets, key: jax.Array | None
    ) -> tuple[jax.Array, dict, jax.Array]:
        model = merge(graphdef, params, frozen)
        config, flat = model.config, traverse_util.flatten_dict(params, sep=".")
        readout = model.readout_arrays(params)
        # The names of the readout's arrays, and of the tables that tokens read. Of GPT-2 they are one.
        in_readout = {part: name for part, array in readout.items() for name in flat if flat[name] is array}
        read = [name for name in flat if name in placement.by_token and not name.startswith("readout.")]
        others = {name: x for name, x in flat.items() if name not in read and name not in in_readout.values()}
        lookup, rows = _Lookup(batch.tokens), _Rows(batch.tokens, packed.rows)
        tables = {name: lookup.rows(flat[name]) for name in read}
        own_frozen = _own_rows(frozen, placement, batch.tokens)
        own_batch = batch._replace(tokens=jnp.arange(batch.tokens.size).reshape(batch.tokens.shape))

        def features_of(tables: dict, others: dict) -> jax.Array:
            # The readout decides no feature.
            everything = traverse_util.unflatten_dict(flat | tables | others, sep=".")
            return merge(graphdef, everything, own_frozen)(own_batch, key)  # (T * B/n, F)

        def seen_of(h: jax.Array) -> jax.Array:
            return update.drop_output(h, packed.corpus_positions, key, config.output_dropout)

        features, back = jax.vjp(features_of, tables, others)
        h = rows.gather(features)  # (C, F)
        seen, back_to_h = jax.vjp(seen_of, h)
        loss, dseen, of_readout = _readout(readout, seen, packed, placement, model.precision)
        (dh,) = back_to_h(dseen)
        dtables, dothers = back(rows.scatter(dh, len(features)))

        gradient = lax.psum(dothers, ALL)
        gradient |= {name: lookup.gradient(dx, flat[name]) for name, dx in dtables.items()}
        for part, name in in_readout.items():
            gradient[name] = gradient[name] + of_readout[part] if name in gradient else of_readout[part]
        unknown = jnp.float32(update.NOT_LOOKED_AT)
        largest = lax.cond(jnp.isfinite(loss), lambda: unknown, lambda: update.largest_size(h))
        return loss, traverse_util.unflatten_dict({name: gradient[name] for name in flat}, sep="."), largest

    specs = placement.specs(params)
    return jax.shard_map(
        here,
        mesh=placement.mesh,
        in_specs=(EVERYWHERE, specs, BY_SLOT, EVERYWHERE, EVERYWHERE),
        out_specs=(EVERYWHERE, specs, EVERYWHERE),
        check_vma=False,
    )(frozen, params, batch, packed, key)


def _readout(
    readout: dict, seen: jax.Array, packed: PackedTargets, placement: Placement, precision: str
) -> tuple[jax.Array, jax.Array, dict]:
    """Returns the loss, its gradient in the features `seen` (C, F), which are the same on all devices, and in the readout."""
    found = Targets(*update.pairs(packed))
    if "b" not in readout:
        return sharded.of_last_layer(readout, seen, found, placement.vocab_size, precision)
    own = readout["b"].shape[1]
    padded = jnp.pad(seen, ((0, 0), (0, placement.padded_feature_size - seen.shape[1])))
    h = lax.dynamic_slice_in_dim(padded, lax.axis_index(ALL) * own, own, axis=1)  # (C, F/n)
    z = sharded.project(readout, h, placement.feature_size, precision)
    loss, dz, gradient = sharded.of_last_layer(readout, z, found, placement.vocab_size, precision)
    gradient["b"] = matmul(dz, h, (0, 0), precision)
    dh = matmul(dz, readout["b"], (1, 0), precision)  # (C, F/n)
    return loss, lax.all_gather(dh, ALL, axis=1, tiled=True)[:, : seen.shape[1]], gradient


def _own_rows(frozen: nnx.State, placement: Placement, tokens: jax.Array) -> nnx.State:
    """Returns the frozen arrays, of which those with a row for each token have one for each of `tokens` instead."""
    flat = nnx.to_flat_state(frozen)
    own = []
    for path, variable in flat:
        if ".".join(map(str, path)) in placement.by_token:
            variable = variable.replace(variable.get_value()[tokens.reshape(-1)])
        own.append((path, variable))
    return nnx.from_flat_state(own)


class _Lookup:
    """The rows of tables that are cut by token, for the tokens of each device, and the way back of their gradients.

    Args:
        tokens: the device's own, of any shape.
    """

    def __init__(self, tokens: jax.Array) -> None:
        # Those of all devices along `vocabulary`, which together have the whole table.
        self.tokens = lax.all_gather(tokens.reshape(-1), VOCABULARY, tiled=True)  # (M * tokens,)

    def rows(self, table: jax.Array) -> jax.Array:
        """Returns the rows of the device's own tokens, (tokens, K), of a table of which it has V/M rows."""
        mine, own = sharded.own_targets(self.tokens, len(table))
        found = jnp.where(mine[:, None], table[own], 0)
        return lax.psum_scatter(found, VOCABULARY, tiled=True)

    def gradient(self, of_rows: jax.Array, table: jax.Array) -> jax.Array:
        """Returns the gradient in the device's part of the table, (V/M, K), from that in what `rows` gave."""
        mine, own = sharded.own_targets(self.tokens, len(table))
        everything = lax.all_gather(of_rows, VOCABULARY, tiled=True)
        return lax.psum(jnp.zeros_like(table).at[own].add(jnp.where(mine[:, None], everything, 0)), DATA)


class _Rows:
    """The rows of features that an update predicts from, some on each device.

    Args:
        tokens: the device's own, (T, B/n): it has the features after each of them.
        rows: row t * B + b of all features for each prediction, (C,).
    """

    def __init__(self, tokens: jax.Array, rows: jax.Array) -> None:
        self.own, slots = tokens.size, tokens.shape[1]
        step, slot = jnp.divmod(rows, slots * lax.axis_size(ALL))
        self.device, self.row = slot // slots, step * slots + slot % slots

    def gather(self, features: jax.Array) -> jax.Array:
        """Returns the features of all predictions (C, F) on every device, from those of the device's own tokens."""
        return lax.all_gather(features, ALL, tiled=True)[self.device * self.own + self.row]

    def scatter(self, gradient: jax.Array, count: int) -> jax.Array:
        """Returns the gradient in the device's own features, (count, F), from that in what `gather` gave."""
        mine = self.device == lax.axis_index(ALL)
        nothing = jnp.zeros((count, gradient.shape[1]), gradient.dtype)
        return nothing.at[self.row].add(jnp.where(mine[:, None], gradient, 0))
