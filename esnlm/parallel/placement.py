"""Where the arrays of a model lie while a run computes, and how many rows they have there.

On a mesh of devices, arrays with a row for each token are cut along `vocabulary`, and B (r, N) by unit over all devices if
they divide the units. Everything else is on every device. Features are computed by batch slot, and each device has slots of
its own. XLA finds the exchanges from this.

Arrays with a row for each token may get more rows than there are tokens, so that all devices have equally many. One device
also wants a certain number: on a GPU, GPT-2's odd V = 50,257 misaligns the rows of the logits, and XLA then copies them at every
update. On a CPU round numbers are slow: if V is a multiple of 1,024, the gradient of A reads columns of the exponentials (C, V)
whose numbers all want the same few places of the cache.

An added row is no token. Its numbers are 0, and `masked` gives it a bias of PADDING_BIAS, so that its probability and its
gradient are exactly 0. Checkpoints have the arrays without added rows.
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
    """The devices of a run, and which arrays are cut and padded, by their names in LanguageModel.params, such as "readout.a".

    The arrays of an optimizer's state are cut as those that they belong to.
    """

    mesh: Mesh | None  # None: one device does all
    vocab_size: int  # V
    rows: int  # of an array by token, with those that are added
    by_token: tuple[str, ...] = ()  # arrays whose first axis is V
    by_unit: tuple[str, ...] = ()  # arrays whose second axis is F, which the devices divide

    @property
    def devices(self) -> int:
        return 1 if self.mesh is None else self.mesh.size

    # ---- on the way to the devices and back ----

    def place(self, tree: Tree) -> Tree:
        """Puts whole arrays, as they are saved, onto the devices. Arrays that lie there already stay."""

        def of_leaf(spec: PartitionSpec, array: Any) -> jax.Array:
            if spec == BY_TOKEN and (missing := self.rows - len(array)):
                array = np.pad(np.asarray(array), [(0, missing)] + [(0, 0)] * (array.ndim - 1))
            return jnp.asarray(array) if self.mesh is None else meshes.place(array, self.mesh, spec)

        return self._map(of_leaf, tree)

    def fetch(self, tree: Tree) -> Tree:
        """Returns the whole arrays of a tree that `place` made, or that went on from it."""
        found = tree if self.mesh is None else meshes.fetch(tree)
        if self.rows == self.vocab_size:
            return found
        return self._map(lambda spec, array: array[: self.vocab_size] if spec == BY_TOKEN else array, found)

    def everywhere(self, tree: Any) -> Any:
        """Returns a tree with every array on every device."""
        return self._put(tree, EVERYWHERE)

    def by_slots(self, tree: Any) -> Any:
        """Returns a tree of arrays (T, B), each device with some of the slots."""
        return self._put(tree, BY_SLOT)

    def by_units(self, features: jax.Array) -> jax.Array:
        """Returns features (rows, F) with some units of all rows on each device, if units are cut."""
        return self._put(features, BY_UNIT) if self.by_unit else features

    # ---- inside a compiled function ----

    def masked(self, readout: dict) -> dict:
        """Returns a readout, as readout/linear.py takes it, whose added rows have the probability 0."""
        if self.rows == self.vocab_size:
            return readout
        is_token = jnp.arange(self.rows) < self.vocab_size
        return readout | {"bias": jnp.where(is_token, readout.get("bias", 0.0), PADDING_BIAS)}

    def constrain(self, tree: Tree) -> Tree:
        """Returns a tree whose arrays are cut as `place` cuts them."""
        return self._map(self._constrain, tree)

    def replicated(self, array: jax.Array) -> jax.Array:
        """Returns an array that every device has all of."""
        return self._constrain(EVERYWHERE, array)

    def hold(self, optimizer: optax.GradientTransformationExtraArgs) -> optax.GradientTransformationExtraArgs:
        """Returns the same optimizer, which never moves an added row: with an epsilon of 0, Adam divides 0 by 0."""
        if self.rows == self.vocab_size:
            return optimizer

        def update(gradient: Tree, state: Tree, params: Tree, **others: Any) -> tuple[Tree, Tree]:
            steps, state = optimizer.update(gradient, state, params, **others)
            is_token = jnp.arange(self.rows) < self.vocab_size

            def still(spec: PartitionSpec, step: jax.Array) -> jax.Array:
                if spec != BY_TOKEN:
                    return step
                return jnp.where(is_token.reshape(-1, *[1] * (step.ndim - 1)), step, 0)

            return self._map(still, steps), state

        return optax.GradientTransformationExtraArgs(optimizer.init, update)

    # ---- inside ----

    def _map(self, of_leaf: Callable[[PartitionSpec, Any], Any], tree: Tree) -> Tree:
        """Calls a function with each leaf of a tree and how it is cut; a counter of an optimizer is not."""

        def of_path(path: KeyPath, leaf: Any) -> Any:
            name = ".".join(str(key.key) for key in path if isinstance(key, DictKey))
            spec = BY_TOKEN if name in self.by_token else BY_UNIT if name in self.by_unit else EVERYWHERE
            return of_leaf(spec if np.ndim(leaf) else EVERYWHERE, leaf)

        return jax.tree_util.tree_map_with_path(of_path, tree)

    def _put(self, tree: Any, spec: PartitionSpec) -> Any:
        mesh = self.mesh
        return tree if mesh is None else jax.tree.map(lambda array: meshes.place(array, mesh, spec), tree)

    def _constrain(self, spec: PartitionSpec, array: jax.Array) -> jax.Array:
        return array if self.mesh is None else jax.lax.with_sharding_constraint(array, NamedSharding(self.mesh, spec))


def rows_on(backend: str, vocab_size: int, vocabulary: int = 1) -> int:
    """Returns how many rows an array by token has where so many devices of a kind (cpu, gpu or tpu) divide it."""
    if vocabulary > 1 or backend != "cpu":
        multiple = MULTIPLE * vocabulary
        return -(-vocab_size // multiple) * multiple
    is_slow = vocab_size % MULTIPLE == 0 and vocab_size >= SMALLEST_ON_CPU
    return vocab_size + ON_CPU if is_slow else vocab_size
