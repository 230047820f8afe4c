"""Loss and gradient of an update on a mesh of devices.

The state of the optimizer lies where its arrays lie, and a step of it is done entry by entry: nothing travels in it. Gradient
clipping and the search for what is not finite exchange a number.
"""

import jax
import jax.numpy as jnp
from jax import lax

from esnlm.features import dropout
from esnlm.parallel.mesh import ALL, EVERYWHERE, UNITS
from esnlm.parallel.placement import BY_UNIT, Placement, deal
from esnlm.readout import sharded
from esnlm.readout.sharded import Targets
from esnlm.training import update
from esnlm.training.batches import PackedTargets


def readout_loss_and_gradient(
    params: dict,
    buffer: jax.Array,
    packed: PackedTargets,
    key: jax.Array | None,
    *,
    placement: Placement,
    precision: str,
    chunk_tokens: int,
    dropout_rate: float,
) -> tuple[jax.Array, dict]:
    """Returns what update.readout_loss_and_gradient returns, for arrays that are placed on a mesh.

    Args:
        params: {"readout": {...}}, placed.
        buffer: features (rows, F), cut by unit.
        packed, key: the same on all devices.
        placement: of the model.
        precision, chunk_tokens, dropout_rate: as there.
    """
    vocab_size, size = placement.vocab_size, placement.feature_size

    def here(params: dict, buffer: jax.Array, packed: PackedTargets, key: jax.Array | None) -> tuple[jax.Array, dict]:
        def of_chunk(packed: PackedTargets) -> tuple[jax.Array, dict]:
            h = buffer[packed.rows]  # (C, F/n)
            if dropout_rate and key is not None:
                h = h * _own_mask(packed.corpus_positions, key, dropout_rate, size, h.shape[1])
            found = Targets(*update.pairs(packed))
            loss, gradient = sharded.loss_and_gradient(params["readout"], h, found, vocab_size, size, precision)
            return loss, {"readout": gradient}

        return update.in_chunks(of_chunk, packed, chunk_tokens, params)

    specs = placement.specs(params)
    return jax.shard_map(
        here,
        mesh=placement.mesh,
        in_specs=(specs, BY_UNIT, EVERYWHERE, EVERYWHERE),
        out_specs=(EVERYWHERE, specs),
        check_vma=False,
    )(params, buffer, packed, key)


def _own_mask(corpus_positions: jax.Array, key: jax.Array, rate: float, size: int, own: int) -> jax.Array:
    """Returns dropout's mask on the device's own units of the features, (C, F/n). The numbers are those of one device."""
    whole = dropout.mask(dropout.token_keys(key, corpus_positions), dropout.OUTPUT, size, rate)  # (C, F)
    padded = deal(jnp.pad(whole, ((0, 0), (0, own * lax.axis_size(ALL) - size))), lax.axis_size(UNITS))
    return lax.dynamic_slice_in_dim(padded, lax.axis_index(ALL) * own, own, axis=1)
