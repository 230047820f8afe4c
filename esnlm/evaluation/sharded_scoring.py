"""The readout's part of scoring on a mesh of devices, for features that are cut by sentence and a readout cut by token.

Each function is what its namesake in scoring.py is to one device. The features of a chunk are exchanged first, so that each device
has its units of all of them (readout/sharded.py).
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp

from esnlm.parallel.mesh import EVERYWHERE
from esnlm.parallel.placement import BY_UNIT, Placement
from esnlm.readout import sharded


@partial(jax.jit, static_argnames=("precision", "placement", "with_likeliest"))
def pair_log_probs(
    params: dict,
    buffer: jax.Array,
    rows: jax.Array,
    sources: jax.Array,
    targets: jax.Array,
    precision: str,
    *,
    placement: Placement,
    with_likeliest: bool = False,
) -> jax.Array:
    def here(readout: dict, h: jax.Array, rows: jax.Array, sources: jax.Array, targets: jax.Array) -> jax.Array:
        z = sharded.project(readout, h[rows], placement.feature_size, precision)
        log_probs = sharded.pair_log_probs(readout, z, sources, targets, placement.vocab_size, precision)
        if not with_likeliest:
            return log_probs
        likeliest = sharded.likeliest(readout, z, placement.vocab_size, precision)  # (C,)
        return jnp.stack([log_probs, likeliest[sources] == targets], axis=1)

    return _on_mesh(here, placement, params, buffer, rows, sources, targets)  # (P,) or (P, 2)


@partial(jax.jit, static_argnames=("precision", "placement"))
def group_log_probs(
    params: dict, buffer: jax.Array, rows: jax.Array, group: jax.Array, precision: str, *, placement: Placement
) -> jax.Array:
    def here(readout: dict, h: jax.Array, rows: jax.Array, group: jax.Array) -> jax.Array:
        z = sharded.project(readout, h[rows], placement.feature_size, precision)
        return sharded.group_log_probs(readout, z, group, placement.vocab_size, precision)

    return _on_mesh(here, placement, params, buffer, rows, group)  # (C,)


def _on_mesh(here: Callable, placement: Placement, params: dict, buffer: jax.Array, *others: jax.Array) -> jax.Array:
    """Runs `here` on every device, on its part of the readout and its units of the features; it returns the same on all."""
    specs = placement.readout_specs(params), BY_UNIT, *[EVERYWHERE] * len(others)
    return jax.shard_map(here, mesh=placement.mesh, in_specs=specs, out_specs=EVERYWHERE, check_vma=False)(
        params, buffer, *others
    )
