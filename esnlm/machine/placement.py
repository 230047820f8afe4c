"""Placement of a model's arrays on devices, with padding of their rows.

On a mesh, arrays with one row per token are sharded along `vocabulary`, and B (r, N) by unit over
all devices if these divide the units. All other arrays are replicated. Each device computes
features for its own batch slots.

Arrays with one row per token may be padded with rows, so that all devices have equally many.
Padding also helps a single device: on a GPU, GPT-2's odd V = 50,257 misaligns the rows of the
logits, and XLA then copies them at every update. On a CPU, if V is a multiple of 1,024, the
gradient of A reads columns of the exponentials (C, V) whose entries all fall into the same few
cache sets.

An added row is 0 and corresponds to no token. `mask_padding_logits` gives it a bias of
PADDING_BIAS, so that its probability and its gradient are exactly 0. Checkpoints have the arrays
without added rows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.tree_util import DictKey, KeyPath

from esnlm.machine import mesh as meshes
from esnlm.machine.mesh import ALL, REPLICATED, VOCABULARY

MULTIPLE = 128  # rows: whole tiles of a GPU's products, and the lanes of a TPU
ON_CPU = 16  # rows to add there: one cache line, so that each row of the logits begins at a line
# tokens; with fewer, the exponentials of some hundred tokens fit into the cache anyway
SMALLEST_ON_CPU = 2048
PADDING_BIAS = -1e30  # far below any logit, but finite, since 0 times infinity is NaN

BY_TOKEN, BY_UNIT, BY_SLOT = (
    PartitionSpec(VOCABULARY),
    PartitionSpec(None, ALL),
    PartitionSpec(None, ALL),
)

Tree = Any  # the trained arrays, their gradient, or the state of an optimizer


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
            return jnp.asarray(array) if self.mesh is None else meshes.shard(array, self.mesh, spec)

        return self._map(of_leaf, tree)

    def gather(self, tree: Tree) -> Tree:
        """Returns the whole arrays of a tree from `shard`, also after updates."""
        if self.mesh is not None:
            tree = meshes.gather(tree)
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
        return jax.tree.map(lambda array: meshes.shard(array, mesh, spec), tree)

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
