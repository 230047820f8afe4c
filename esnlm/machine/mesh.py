"""The devices of a run as a mesh, and the placement of a model's arrays on them.

There are D devices along `data` and M along `vocabulary` (docs/machines.md). If they belong to
several processes, every process makes the same calls.

Arrays with one row per token are sharded along `vocabulary`, and B (r, N) by unit over all devices
if these divide the units. All other arrays are replicated. Each device computes features for its
own batch slots.

Arrays with one row per token may be padded with rows, so that all devices have equally many.
Padding also helps a single device: on a GPU, GPT-2's odd V = 50,257 misaligns the rows of the
logits, and XLA then copies them at every update. On a CPU, if V is a multiple of 1,024, the
gradient of A reads columns of the exponentials (C, V) whose entries all fall into the same few
cache sets.

An added row is 0 and corresponds to no token. `mask_padding_logits` gives it a bias of
PADDING_BIAS, so that its probability and its gradient are exactly 0. Checkpoints have the arrays
without added rows.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.tree_util import DictKey, KeyPath

from esnlm.base.errors import InputError
from esnlm.machine.host import check_threads

DATA, VOCABULARY = AXES = ("data", "vocabulary")
ALL = (DATA, VOCABULARY)  # PartitionSpec(ALL) shards an axis of an array over all devices
REPLICATED = PartitionSpec()  # replicated on all devices
BY_TOKEN = PartitionSpec(VOCABULARY)
BY_UNIT = BY_SLOT = PartitionSpec(None, ALL)

MULTIPLE = 128  # rows: whole tiles of a GPU's products, and the lanes of a TPU
ON_CPU = 16  # rows to add there: one cache line, so that each row of the logits begins at a line
# tokens; with fewer, the exponentials of some hundred tokens fit into the cache anyway
SMALLEST_ON_CPU = 2048
PADDING_BIAS = -1e30  # far below any logit, but finite, since 0 times infinity is NaN

Tree = Any  # the trained arrays, their gradient, or the state of an optimizer

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


@dataclass(frozen=True)
class Placement:
    """The devices of a run, and which arrays are sharded and padded.

    Arrays have their names in LanguageModel.params ("readout.a").

    An optimizer's arrays are sharded like the arrays that they belong to.
    """

    mesh: Mesh | None  # None: one device
    vocab_size: int  # V
    rows: int  # rows of an array by token, padding included
    by_token: tuple[str, ...] = ()  # arrays sharded along their first axis, V
    by_unit: tuple[str, ...] = ()  # arrays sharded along their second axis, F

    @property
    def devices(self) -> int:
        return 1 if self.mesh is None else self.mesh.size

    # ---- to the devices and back ----

    def shard(self, tree: Tree) -> Tree:
        """Puts whole arrays, as in a checkpoint, onto the devices."""

        def of_leaf(spec: PartitionSpec, array: Any) -> jax.Array:
            if spec == BY_TOKEN and (missing := self.rows - len(array)):
                array = np.pad(np.asarray(array), [(0, missing)] + [(0, 0)] * (array.ndim - 1))
            return jnp.asarray(array) if self.mesh is None else shard(array, self.mesh, spec)

        return self._map(of_leaf, tree)

    def gather(self, tree: Tree) -> Tree:
        """Returns the whole arrays of a tree from `shard`, also after updates."""
        if self.mesh is not None:
            tree = gather(tree)
        if self.rows == self.vocab_size:
            return tree
        return self._map(
            lambda spec, array: array[: self.vocab_size] if spec == BY_TOKEN else array, tree
        )

    def replicate(self, tree: Any) -> Any:
        """Returns a tree with all arrays replicated."""
        return self._put(tree, REPLICATED)

    def by_slots(self, tree: Any) -> Any:
        """Returns a tree of arrays (T, B), sharded by slot."""
        return self._put(tree, BY_SLOT)

    def by_units(self, features: jax.Array) -> jax.Array:
        """Returns features (rows, F), sharded by unit if B is."""
        return self._put(features, BY_UNIT) if self.by_unit else features

    # ---- inside a compiled function ----

    def mask_padding_logits(self, readout: dict) -> dict:
        """Returns the arrays of a readout (readout/linear.py), with probability 0 for padding."""
        if self.rows == self.vocab_size:
            return readout
        is_token = jnp.arange(self.rows) < self.vocab_size
        return readout | {"bias": jnp.where(is_token, readout.get("bias", 0.0), PADDING_BIAS)}

    def constrain(self, tree: Tree) -> Tree:
        """Returns a tree with its arrays sharded as by `shard`."""
        return self._map(self._constrain, tree)

    def constrain_replicated(self, array: jax.Array) -> jax.Array:
        """Returns a replicated array."""
        return self._constrain(REPLICATED, array)

    def freeze_padding(
        self, optimizer: optax.GradientTransformationExtraArgs
    ) -> optax.GradientTransformationExtraArgs:
        """Returns the optimizer with zero steps for added rows, where Adam may divide 0 by 0."""
        if self.rows == self.vocab_size:
            return optimizer

        def update(gradient: Tree, state: Tree, params: Tree, **others: Any) -> tuple[Tree, Tree]:
            steps, state = optimizer.update(gradient, state, params, **others)
            is_token = jnp.arange(self.rows) < self.vocab_size

            def freeze(spec: PartitionSpec, step: jax.Array) -> jax.Array:
                if spec != BY_TOKEN:
                    return step
                return jnp.where(is_token.reshape(-1, *[1] * (step.ndim - 1)), step, 0)

            return self._map(freeze, steps), state

        return optax.GradientTransformationExtraArgs(optimizer.init, update)

    # ---- inside ----

    def _map(self, of_leaf: Callable[[PartitionSpec, Any], Any], tree: Tree) -> Tree:
        """Calls a function with the sharding of each leaf of a tree, and the leaf."""

        def of_path(path: KeyPath, leaf: Any) -> Any:
            name = ".".join(str(key.key) for key in path if isinstance(key, DictKey))
            spec = self._specs.get(name, REPLICATED) if np.ndim(leaf) else REPLICATED
            return of_leaf(spec, leaf)

        return jax.tree_util.tree_map_with_path(of_path, tree)

    @property
    def _specs(self) -> dict[str, PartitionSpec]:
        return dict.fromkeys(self.by_token, BY_TOKEN) | dict.fromkeys(self.by_unit, BY_UNIT)

    def _put(self, tree: Any, spec: PartitionSpec) -> Any:
        mesh = self.mesh
        if mesh is None:
            return tree
        return jax.tree.map(lambda array: shard(array, mesh, spec), tree)

    def _constrain(self, spec: PartitionSpec, array: jax.Array) -> jax.Array:
        if self.mesh is None:
            return array
        return jax.lax.with_sharding_constraint(array, NamedSharding(self.mesh, spec))


def rows_on(backend: str, vocab_size: int, vocabulary: int = 1) -> int:
    """Returns the padded rows of an array by token, on `vocabulary` devices of a backend."""
    if vocabulary > 1 or backend != "cpu":
        multiple = MULTIPLE * vocabulary
        return -(-vocab_size // multiple) * multiple
    is_slow = vocab_size % MULTIPLE == 0 and vocab_size >= SMALLEST_ON_CPU
    return vocab_size + ON_CPU if is_slow else vocab_size
