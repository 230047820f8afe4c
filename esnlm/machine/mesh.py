"""The devices of a run as a mesh, and moving arrays to and from them.

There are D devices along `data` and M along `vocabulary` (docs/machines.md). If they belong to
several processes, every process makes the same calls.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from esnlm.base.errors import InputError
from esnlm.machine.host import check_threads

DATA, VOCABULARY = AXES = ("data", "vocabulary")
ALL = (DATA, VOCABULARY)  # PartitionSpec(ALL) shards an axis of an array over all devices
EVERYWHERE = PartitionSpec()  # replicated on all devices

_reshard = jax.jit(jax.lax.with_sharding_constraint, static_argnums=1)


def make_mesh(
    setting: Mapping[Any, int] | None, devices: Sequence[Any] | None = None
) -> Mesh | None:
    """Returns the mesh {"data": D, "vocabulary": M}, by default all devices along `vocabulary`;
    None for one device."""
    found = devices or _devices()
    shape = {VOCABULARY: len(found)} if setting is None else setting
    data, vocabulary = (shape.get(name, 1) for name in AXES)
    count, processes = data * vocabulary, len({device.process_index for device in found})
    if count > len(found) or (count < len(found) and processes > 1):
        there = (
            f"there are {len(found)}"
            if processes == 1
            else f"{processes} processes need all {len(found)}"
        )
        raise InputError(
            f"compute.mesh: data {data} x vocabulary {vocabulary} devices, but {there}; null"
            " takes all"
        )
    if count == 1:
        return None
    check_threads(found[:count])
    return Mesh(np.array(found[:count]).reshape(data, vocabulary), AXES)


def require_one_process(why: str) -> None:
    """Raises InputError if there are several processes for a computation on one device."""
    processes = len({device.process_index for device in _devices()})
    if processes > 1:
        raise InputError(f"{why}, and {processes} processes were started: start one")


@contextlib.contextmanager
def own_devices() -> Iterator[None]:
    """Limits meshes made within this context to the process's own devices, for work that one
    process does alone."""
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
    """Returns an array on the devices of a mesh. Each process passes the whole array and places its
    part."""
    sharding = NamedSharding(mesh, spec)
    if isinstance(array, jax.Array) and array.sharding == sharding:
        return array
    if isinstance(array, jax.Array) and array.committed and len(array.sharding.device_set) > 1:
        return _reshard(array, sharding)
    if sharding.is_fully_addressable:
        return jax.device_put(array, sharding)
    host = np.asarray(array)
    return jax.make_array_from_callback(host.shape, sharding, lambda part: host[part])


def fetch(tree: Any) -> Any:
    """Returns a tree with its JAX arrays as whole, read-only NumPy arrays. All processes must call
    it."""

    def whole(leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array):
            return leaf
        if leaf.is_fully_addressable or leaf.is_fully_replicated:
            return np.asarray(leaf)
        return multihost_utils.process_allgather(leaf, tiled=True)

    return jax.tree.map(whole, tree)
