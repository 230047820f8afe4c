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
REPLICATED = PartitionSpec()  # replicated on all devices

_reshard = jax.jit(jax.lax.with_sharding_constraint, static_argnums=1)


def make_mesh(
    setting: Mapping[Any, int] | None, devices: Sequence[Any] | None = None
) -> Mesh | None:
    """Returns the mesh {"data": D, "vocabulary": M}; None for one device.

    By default all devices are along `vocabulary`.
    """
    devices = devices or _devices()
    shape = {VOCABULARY: len(devices)} if setting is None else setting
    data, vocabulary = (shape.get(name, 1) for name in AXES)
    count, processes = data * vocabulary, _count_processes(devices)
    if count > len(devices) or (count < len(devices) and processes > 1):
        reason = f"there are {len(devices)}"
        if processes > 1:
            reason = f"{processes} processes need all {len(devices)}"
        raise InputError(
            f"compute.mesh: data {data} x vocabulary {vocabulary} devices, but {reason}; null"
            " takes all"
        )
    if count == 1:
        return None
    check_threads(devices[:count])
    return Mesh(np.array(devices[:count]).reshape(data, vocabulary), AXES)


def _count_processes(devices: Sequence[Any]) -> int:
    return len({device.process_index for device in devices})


def check_one_process(why: str) -> None:
    """Raises InputError if there are several processes for a computation on one device."""
    processes = _count_processes(_devices())
    if processes > 1:
        raise InputError(f"{why}, and {processes} processes were started: start one")


@contextlib.contextmanager
def own_devices() -> Iterator[None]:
    """Limits new meshes to this process's own devices, for work that it does alone."""
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


def shard(array: Any, mesh: Mesh, spec: PartitionSpec) -> jax.Array:
    """Returns an array on the devices of a mesh. Each process passes the whole array."""
    sharding = NamedSharding(mesh, spec)
    if isinstance(array, jax.Array) and array.sharding == sharding:
        return array
    if isinstance(array, jax.Array) and array.committed and len(array.sharding.device_set) > 1:
        return _reshard(array, sharding)
    if sharding.is_fully_addressable:
        return jax.device_put(array, sharding)
    host = np.asarray(array)
    return jax.make_array_from_callback(host.shape, sharding, lambda part: host[part])


def gather(tree: Any) -> Any:
    """Returns a tree with its JAX arrays as complete, read-only NumPy arrays.

    All processes must call it.
    """

    def gather_leaf(leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array):
            return leaf
        if leaf.is_fully_addressable or leaf.is_fully_replicated:
            return np.asarray(leaf)
        return multihost_utils.process_allgather(leaf, tiled=True)

    return jax.tree.map(gather_leaf, tree)
