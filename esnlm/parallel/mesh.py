"""The devices of a run as a mesh: how many there are along each axis, and how arrays get onto them and back.

A setting names D devices along `data` and M along `vocabulary`. The rows of an update are cut along `data`, and the vocabulary of
the readout along `vocabulary`. Of the latter U adjacent devices may share one copy of the reservoir, cut by unit: `units`, which
divides M. So the mesh has the axes data (D), copies (M / U) and units (U), in this order. Sentences are cut over the D M / U
copies (`GROUPS`), what has a column for each unit over all devices (`ALL`). docs/many_devices.md says which array is which.

A mesh may span the devices of several processes. Then every process makes the same calls, and an array is placed from the
part of it that the process's own devices hold.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from esnlm.errors import require

SETTINGS = ("data", "vocabulary", "units")  # what `compute.mesh` may name
DATA, COPIES, UNITS = AXES = ("data", "copies", "units")
VOCABULARY = (COPIES, UNITS)  # PartitionSpec(VOCABULARY) cuts an axis of an array over M devices
GROUPS = (DATA, COPIES)  # each is U devices that share a copy of the reservoir
# All devices. Units come first: what a group has of them when it has computed states, its devices keep, or swap along GROUPS.
ALL = (UNITS, DATA, COPIES)
EVERYWHERE = PartitionSpec()  # every device has all of it


class Shape(NamedTuple):
    """How many devices there are along each axis of `compute.mesh`; the devices need not be there."""

    data: int = 1
    vocabulary: int = 1
    units: int = 1  # of those along `vocabulary`, so many share a copy of the reservoir

    @property
    def devices(self) -> int:
        return self.data * self.vocabulary


def check(setting: Mapping[str, int] | None) -> None:
    """Raises InputError for a `compute.mesh` that no devices can have."""
    if setting is None:
        return
    for axis, size in setting.items():
        require(axis in SETTINGS, f"compute.mesh has the axis {axis!r}: choose {', '.join(SETTINGS)}")
        require(size >= 1, f"compute.mesh.{axis} is {size}: it must be at least 1")
    units, vocabulary = setting.get("units", 1), setting.get("vocabulary", 1)
    line = f"compute.mesh.units is {units}: it must divide compute.mesh.vocabulary, which is {vocabulary}; change one of them"
    require(vocabulary % units == 0, line)


def make_mesh(setting: Mapping[str, int] | None, devices: Sequence[Any] | None = None) -> Mesh | None:
    """Returns the mesh of a run, or None where one device does all.

    Args:
        setting: {"data": D, "vocabulary": M, "units": U}, of which a missing one is 1. Null: all devices along `vocabulary`.
        devices: of all processes; None: those of JAX, or within `own_devices` those of this process.

    Raises:
        InputError: there are fewer devices than D M, or fewer are asked for than several processes have.
    """
    found = _devices() if devices is None else list(devices)
    shape = {"vocabulary": len(found)} if setting is None else setting
    data, vocabulary, units = (shape.get(name, 1) for name in SETTINGS)
    count, processes = data * vocabulary, len({device.process_index for device in found})
    asked = f"compute.mesh is data {data} x vocabulary {vocabulary}"
    require(
        count <= len(found), f"{asked}: it needs {count} devices and there are {len(found)}; lower it, or give null"
    )
    require(
        processes == 1 or count == len(found),
        f"{asked}: {processes} processes have {len(found)} devices, and all of them must be in it; give null",
    )
    return None if count == 1 else Mesh(np.array(found[:count]).reshape(data, vocabulary // units, units), AXES)


def require_one_process(why: str) -> None:
    """Raises InputError where several processes were started for what one device computes: each would compute all of it."""
    processes = len({device.process_index for device in _devices()})
    require(processes == 1, f"{why}, and {processes} processes were started: start one")


def cut_by_unit(mesh: Mesh, units: int) -> Mesh:
    """Returns a mesh of the same devices, of which so many adjacent ones share a copy of the reservoir."""
    return Mesh(mesh.devices.reshape(mesh.shape[DATA], -1, units), AXES)


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
    if mesh is None:
        return dict.fromkeys(SETTINGS, 1)
    data, copies, units = mesh.devices.shape
    return dict(zip(SETTINGS, (data, copies * units, units), strict=True))


@contextlib.contextmanager
def in_host_memory(wanted: bool = True) -> Iterator[None]:
    """Lets new arrays lie in the memory of the host, where JAX has its CPU beside the accelerators, and it is wanted."""
    hosts: list[Any] = []
    if wanted:
        with contextlib.suppress(RuntimeError):  # JAX_PLATFORMS names no cpu
            hosts = jax.local_devices(backend="cpu")
    with jax.default_device(hosts[0]) if hosts else contextlib.nullcontext():
        yield


def place(array: Any, mesh: Mesh, spec: PartitionSpec) -> jax.Array:
    """Returns an array on the devices of a mesh. Of several processes each gives the whole array, and places its part."""
    sharding = NamedSharding(mesh, spec)
    if isinstance(array, jax.Array) and array.sharding == sharding:
        return array
    if sharding.is_fully_addressable:
        return jax.device_put(array, sharding)
    if isinstance(array, jax.Array) and not array.is_fully_addressable:
        return jax.jit(lambda x: x, out_shardings=sharding)(array)
    host = np.asarray(array)
    return jax.make_array_from_callback(host.shape, sharding, lambda part: host[part])


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
