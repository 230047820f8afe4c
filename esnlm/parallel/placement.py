"""Where the arrays of a model lie while a run computes, and how many rows they have there.

On a mesh of devices, what has a row for each token of the vocabulary is cut along `vocabulary`, and B, which has a column for
each unit, over all devices if they divide the units. Everything else is on every device. Features are computed by batch
slot, and each device has the slots of its own sentences. XLA finds the exchanges from this.

Arrays that have a row for each token may get more rows than the vocabulary has tokens, so that devices have equally many,
or because a device wants a multiple of something. GPT-2's vocabulary has V = 50,257 tokens, an odd number: on a GPU each row of the
logits then begins somewhere else in a line of memory, and XLA pads copies of the logits and of A at every update. On a CPU it
is the round numbers of tokens that are slow. The gradient of A reads the exponentials (C, V) of readout/cross_entropy.py column by
column. If V is a multiple of 1,024, the numbers of a column lie a multiple of 4,096 bytes apart, and all of them want the same few
places of the cache.

An added row is no token. All its numbers are 0, and `masked` gives it a bias of PADDING_BIAS, so that its probability is
exactly 0 in every softmax, and so are its gradients and the moments of an optimizer. Nothing of this is saved: a checkpoint
has the arrays without added rows.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.tree_util import DictKey, KeyPath

from esnlm.parallel import mesh as meshes
from esnlm.parallel.mesh import ALL, EVERYWHERE, VOCABULARY

MULTIPLE = 128  # rows: whole tiles of a GPU's products, and the lanes of a TPU
ON_CPU = 16  # rows that are added there: a line of the cache, so that each row of the logits begins at one
SMALLEST_ON_CPU = 2048  # tokens; below, the exponentials of some hundred tokens lie in the cache however they are read
PADDING_BIAS = -1e30  # far below any logit; finite, or 0 times it were not a number

BY_TOKEN, BY_UNIT, BY_SLOT = PartitionSpec(VOCABULARY), PartitionSpec(None, ALL), PartitionSpec(None, ALL)

Tree = Any  # the trained arrays, their gradient, or the state of an optimizer


@dataclass(frozen=True)
class Placement:
    """The devices of a run, and which arrays are cut and padded.

    Arrays are named as LanguageModel.params has them, "readout.a". Those of an optimizer's state have the names of the
    arrays that they belong to.

    Example:
        params = placement.place(params)    # whole arrays, as they are saved
        ...                                 # any number of updates
        params = placement.fetch(params)
    """

    mesh: Mesh | None  # None: one device does all
    vocab_size: int  # V
    rows: int  # of an array by token, with those that are added
    by_token: tuple[str, ...] = ()  # arrays whose first axis is V
    by_unit: tuple[str, ...] = ()  # arrays whose second axis is F, which the devices divide

    @property
    def devices(self) -> int:
        return 1 if self.mesh is None else self.mesh.size

    def spec(self, name: str) -> PartitionSpec:
        """Returns how an array is cut."""
        if name in self.by_token:
            return BY_TOKEN
        return BY_UNIT if name in self.by_unit else EVERYWHERE

    # ---- on the way to the devices and back ----

    def place(self, tree: Tree) -> Tree:
        """Returns a tree of whole arrays, as they are saved, with those of the devices. Arrays that lie there already stay."""

        def of_leaf(path: KeyPath, array: Any) -> jax.Array:
            spec = self._spec(path, array)
            if spec == BY_TOKEN and (missing := self.rows - len(array)):
                array = np.pad(np.asarray(array), [(0, missing)] + [(0, 0)] * (array.ndim - 1))
            return jnp.asarray(array) if self.mesh is None else meshes.place(array, self.mesh, spec)

        return jax.tree_util.tree_map_with_path(of_leaf, tree)

    def fetch(self, tree: Tree) -> Tree:
        """Returns the whole arrays of a tree that `place` made, or that went on from it."""
        found = tree if self.mesh is None else meshes.fetch(tree)
        if self.rows == self.vocab_size:
            return found

        def of_leaf(path: KeyPath, array: Any) -> Any:
            return array[: self.vocab_size] if self._spec(path, array) == BY_TOKEN else array

        return jax.tree_util.tree_map_with_path(of_leaf, found)

    def everywhere(self, tree: Any) -> Any:
        """Returns a tree with every array on every device."""
        if self.mesh is None:
            return tree
        mesh = self.mesh
        return jax.tree.map(lambda array: meshes.place(array, mesh, EVERYWHERE), tree)

    def by_slots(self, tree: Any) -> Any:
        """Returns a tree of arrays (T, B), each device with some of the slots."""
        if self.mesh is None:
            return tree
        mesh = self.mesh
        return jax.tree.map(lambda array: meshes.place(array, mesh, BY_SLOT), tree)

    def by_units(self, features: jax.Array) -> jax.Array:
        """Returns features (rows, F) that each device has some rows of with some units on each device, if these are to be cut."""
        return features if self.mesh is None or not self.by_unit else meshes.place(features, self.mesh, BY_UNIT)

    # ---- inside a compiled function ----

    def masked(self, readout: dict) -> dict:
        """Returns a readout, as readout/linear.py takes it, whose added rows have the probability 0."""
        if self.rows == self.vocab_size:
            return readout
        is_token = jnp.arange(self.rows) < self.vocab_size
        return readout | {"bias": jnp.where(is_token, readout.get("bias", 0.0), PADDING_BIAS)}

    def constrain(self, tree: Tree) -> Tree:
        """Returns a tree whose arrays are cut as `place` cuts them."""
        if self.mesh is None:
            return tree
        mesh = self.mesh

        def of_leaf(path: KeyPath, array: jax.Array) -> jax.Array:
            return jax.lax.with_sharding_constraint(array, NamedSharding(mesh, self._spec(path, array)))

        return jax.tree_util.tree_map_with_path(of_leaf, tree)

    def replicated(self, array: jax.Array) -> jax.Array:
        """Returns an array that every device has all of."""
        if self.mesh is None:
            return array
        return jax.lax.with_sharding_constraint(array, NamedSharding(self.mesh, EVERYWHERE))

    def hold(self, optimizer: optax.GradientTransformationExtraArgs) -> optax.GradientTransformationExtraArgs:
        """Returns the same optimizer, with the same state, which never moves an added row: with an epsilon of 0, Adam divides 0 by 0."""
        if self.rows == self.vocab_size:
            return optimizer

        def update(gradient: Tree, state: Tree, params: Tree, **others: Any) -> tuple[Tree, Tree]:
            steps, state = optimizer.update(gradient, state, params, **others)
            is_token = jnp.arange(self.rows) < self.vocab_size

            def still(path: KeyPath, step: jax.Array) -> jax.Array:
                if self._spec(path, step) != BY_TOKEN:
                    return step
                return jnp.where(is_token.reshape(-1, *[1] * (step.ndim - 1)), step, 0)

            return jax.tree_util.tree_map_with_path(still, steps), state

        return optax.GradientTransformationExtraArgs(optimizer.init, update)

    def _spec(self, path: KeyPath, array: Any) -> PartitionSpec:
        """Returns how a leaf of a tree is cut; a counter of an optimizer is not."""
        name = ".".join(str(key.key) for key in path if isinstance(key, DictKey))
        return self.spec(name) if np.ndim(array) else EVERYWHERE


def rows_on(backend: str, vocab_size: int, vocabulary: int = 1) -> int:
    """Returns how many rows an array by token has where so many devices of a kind (cpu, gpu or tpu) divide it."""
    if vocabulary > 1 or backend != "cpu":
        multiple = MULTIPLE * vocabulary
        return -(-vocab_size // multiple) * multiple
    is_slow = vocab_size % MULTIPLE == 0 and vocab_size >= SMALLEST_ON_CPU
    return vocab_size + ON_CPU if is_slow else vocab_size
