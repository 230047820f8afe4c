"""The devices of a run as a mesh: how many there are along each axis, and how arrays get onto them and back.

A setting names D devices along `data` and M along `vocabulary`. Sentences are cut over all D M devices, and the vocabulary of the
readout over the M along `vocabulary`; devices along `data` repeat each other's readout. docs/many_devices.md says which array is which.

A mesh may span the devices of several processes. Then every process makes the same calls, and an array is placed from the
part of it that the process's own devices hold.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from esnlm.errors import InputError

DATA, VOCABULARY = AXES = ("data", "vocabulary")
ALL = (DATA, VOCABULARY)  # PartitionSpec(ALL) cuts an axis of an array over all devices
EVERYWHERE = PartitionSpec()  # every device has all of it


def make_mesh(setting: Mapping[Any, int] | None, devices: Sequence[Any] | None = None) -> Mesh | None:
    """Returns the mesh of a run, or None if one device does all.

    Args:
        setting: {"data": D, "vocabulary": M}, of which a missing one is 1. Null: all devices along `vocabulary`.
        devices: of all processes; None: those of JAX, or within `own_devices` those of this process.

    Raises:
        InputError: there are fewer devices than D M, or fewer are asked for than several processes have.
    """
    found = _devices() if devices is None else list(devices)
    shape = {VOCABULARY: len(found)} if setting is None else setting
    data, vocabulary = (shape.get(name, 1) for name in AXES)
    count, processes = data * vocabulary, len({device.process_index for device in found})
    asked = f"compute.mesh is data {data} x vocabulary {vocabulary}"
    if count > len(found):
        raise InputError(f"{asked}: it needs {count} devices and there are {len(found)}; lower it, or give null")
    if processes > 1 and count < len(found):
        raise InputError(f"{asked}: {processes} processes have {len(found)} devices, and all must be in it; give null")
    return None if count == 1 else Mesh(np.array(found[:count]).reshape(data, vocabulary), AXES)


def require_one_process(why: str) -> None:
    """Raises InputError if several processes were started for what one device computes: each would compute all of it."""
    processes = len({device.process_index for device in _devices()})
    if processes > 1:
        raise InputError(f"{why}, and {processes} processes were started: start one")


@contextlib.contextmanager
def own_devices() -> Iterator[None]:
    """Lets meshes that are made within it have this process's own devices only, for what one process does alone."""
    global _devices
    before, _devices = _devices, jax.local_devices
    try:
        yield
    finally:
        _devices = before


_devices: Callable[[], list[jax.Device]] = jax.devices


def describe(mesh: Mesh | None) -> dict[str, int]:
    """Returns the devices along each axis, for a summary."""
    return dict.fromkeys(AXES, 1) if mesh is None else dict(mesh.shape)


def place(array: Any, mesh: Mesh, spec: PartitionSpec) -> jax.Array:
    """Returns an array on the devices of a mesh. Of several processes each gives the whole array, and places its part."""
    sharding = NamedSharding(mesh, spec)
    if isinstance(array, jax.Array) and array.sharding == sharding:
        return array
    if isinstance(array, jax.Array) and array.committed and len(array.sharding.device_set) > 1:
        return _reshard(array, sharding)
    if sharding.is_fully_addressable:
        return jax.device_put(array, sharding)
    host = np.asarray(array)
    return jax.make_array_from_callback(host.shape, sharding, lambda part: host[part])


@partial(jax.jit, static_argnums=1)
def _reshard(array: jax.Array, sharding: NamedSharding) -> jax.Array:
    return jax.lax.with_sharding_constraint(array, sharding)


def fetch(tree: Any) -> Any:
    """Returns a tree with its JAX arrays as NumPy arrays, whole. What it gives must not be written to.

    Of several processes all must call it, and each gets everything.
    """
    return jax.tree.map(lambda array: _whole(array) if isinstance(array, jax.Array) else array, tree)


GATHERED = 256 << 20  # bytes of an array that lie on every device at once, while it is gathered from several processes


def _whole(array: jax.Array) -> np.ndarray:
    if array.is_fully_addressable or array.is_fully_replicated:
        return np.asarray(array)
    sharding = array.sharding
    assert isinstance(sharding, NamedSharding)
    everywhere = NamedSharding(sharding.mesh, EVERYWHERE)
    rows = max(1, GATHERED * len(array) // max(array.nbytes, 1))
    firsts = range(0, len(array), rows)
    # One after another, so that one part at a time lies on the devices.
    return np.concatenate([np.asarray(_rows_of(array, f, min(rows, len(array) - f), everywhere)) for f in firsts])


@partial(jax.jit, static_argnums=(2, 3))
def _rows_of(array: jax.Array, first: int, count: int, sharding: NamedSharding) -> jax.Array:
    return jax.lax.with_sharding_constraint(jax.lax.dynamic_slice_in_dim(array, first, count), sharding)
