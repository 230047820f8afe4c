"""Where the arrays of a model lie on a mesh, while a run goes on.

What has a row for each token of the vocabulary is cut along `vocabulary`; B, which has a column for each unit, is cut over all
devices; everything else is on every device. So that all parts are equally long, an array that is cut is padded with zeros on
the devices. Its padding has no gradient and stays 0. Nothing of this is saved: a checkpoint has the arrays as one device has them.

Where U devices share a copy of the reservoir, units are dealt out to them like cards: device u has the units u, u + U, u + 2 U ...
The columns of B then stand in the order in which the devices have the units (`deal`).
"""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.tree_util import DictKey, KeyPath

from esnlm.parallel import mesh as meshes
from esnlm.parallel.mesh import ALL, COPIES, EVERYWHERE, UNITS, VOCABULARY

BY_UNIT = PartitionSpec(None, ALL)
ALIGNMENT = 128  # a device has a multiple of so many tokens: rows of logits that begin there are the fast ones


@dataclass(frozen=True)
class Placement:
    """The mesh of a run, and which arrays are cut.

    Arrays are named as LanguageModel.params has them, "readout.a". Those of an optimizer's state have the names of the
    arrays that they belong to.
    """

    mesh: Mesh
    vocab_size: int  # V
    feature_size: int  # F
    by_token: tuple[str, ...]  # arrays whose first axis is V
    by_unit: tuple[str, ...]  # arrays whose second axis is F

    @property
    def devices(self) -> int:
        return self.mesh.size

    @property
    def units(self) -> int:
        """U, the devices that share a copy of the reservoir."""
        return self.mesh.shape[UNITS]

    @property
    def padded_vocab_size(self) -> int:
        """V on the devices."""
        vocabulary = self.mesh.shape[COPIES] * self.units
        return vocabulary * rows_of_each(self.vocab_size, vocabulary)

    @property
    def padded_feature_size(self) -> int:
        """F on the devices."""
        return self.devices * columns_of_each(self.feature_size, self.devices)

    def spec(self, name: str) -> PartitionSpec:
        """Returns how an array is cut."""
        if name in self.by_token:
            return PartitionSpec(VOCABULARY)
        return BY_UNIT if name in self.by_unit else EVERYWHERE

    def specs(self, tree: Any) -> Any:
        """Returns how each array of a tree is cut, as a tree."""
        return jax.tree_util.tree_map_with_path(lambda path, array: self._of_leaf(path, array)[0], tree)

    def readout_specs(self, readout: dict) -> dict:
        """Returns how the arrays of a readout are cut, by their names in readout/linear.py."""
        cut = {"a": VOCABULARY, "w": VOCABULARY, "bias": VOCABULARY}
        return {name: PartitionSpec(cut[name]) if name in cut else BY_UNIT for name in readout}

    def place(self, tree: Any) -> Any:
        """Returns a tree of whole arrays, as they are saved, with those of the devices. What lies there already stays."""

        def of_leaf(path: KeyPath, array: Any) -> jax.Array:
            spec, missing = self._of_leaf(path, array)
            if isinstance(array, jax.Array) and array.sharding == NamedSharding(self.mesh, spec):
                return array
            if any(missing):
                array = np.pad(np.asarray(array), [(0, each) for each in missing])
            if spec == BY_UNIT and self.units > 1:
                array = deal(np.asarray(array), self.units)
            return meshes.place(array, self.mesh, spec)

        return jax.tree_util.tree_map_with_path(of_leaf, tree)

    def fetch(self, tree: Any) -> Any:
        """Returns the whole arrays of a tree that `place` made, or that went on from it, as NumPy arrays."""
        return jax.tree_util.tree_map_with_path(self._without_padding, meshes.fetch(tree))

    def whole(self, tree: Any) -> Any:
        """Returns the arrays of a tree that `place` made with every array on every device, without padding."""

        def of_leaf(path: KeyPath, array: Any) -> jax.Array:
            return meshes.place(self._without_padding(path, array), self.mesh, EVERYWHERE)

        return jax.tree_util.tree_map_with_path(of_leaf, tree)

    def everywhere(self, tree: Any) -> Any:
        """Returns a tree with every array on every device, as it is."""
        return jax.tree.map(lambda array: meshes.place(array, self.mesh, EVERYWHERE), tree)

    def without_padding(self, features: Any) -> Any:
        """Returns what has a column for each unit, as the devices have it, in the order of the units and without padding."""
        in_order = deal(features, features.shape[-1] // self.units) if self.units > 1 else features
        return in_order[..., : self.feature_size]

    def _of_leaf(self, path: KeyPath, array: Any) -> tuple[PartitionSpec, tuple[int, ...]]:
        """Returns how a leaf of a tree is cut, and how much is missing at the end of each axis of it."""
        shape, name = np.shape(array), _name(path)
        if not shape:  # a counter of an optimizer
            return EVERYWHERE, ()
        padded = list(shape)
        if name in self.by_token:
            padded[0] = self.padded_vocab_size
        if name in self.by_unit:
            padded[1] = self.padded_feature_size
        return self.spec(name), tuple(new - old for new, old in zip(padded, shape, strict=True))

    def _without_padding(self, path: KeyPath, array: Any) -> Any:
        name = _name(path)
        if array.ndim and name in self.by_token:
            return array[: self.vocab_size]
        return self.without_padding(array) if array.ndim and name in self.by_unit else array


def deal(x: Any, parts: int) -> Any:
    """Returns an array with its last axis dealt out like cards: 0, parts, 2 parts, ..., then 1, parts + 1, ...

    With shape[-1] / parts in place of parts it undoes this.

    Example:
        deal(np.arange(6), 2)  # 0 2 4 1 3 5
        deal(np.array([0, 2, 4, 1, 3, 5]), 3)  # 0 1 2 3 4 5
    """
    return x.reshape(*x.shape[:-1], -1, parts).swapaxes(-1, -2).reshape(x.shape)


def _name(path: KeyPath) -> str:
    """Returns the name of a leaf: the keys of the dictionaries on the way to it."""
    return ".".join(str(key.key) for key in path if isinstance(key, DictKey))


def rows_of_each(vocab_size: int, vocabulary: int) -> int:
    """Returns how many rows of an array by token each of so many devices along `vocabulary` has, with padding."""
    return -(-vocab_size // (ALIGNMENT * vocabulary)) * ALIGNMENT


def columns_of_each(feature_size: int, devices: int) -> int:
    """Returns how many columns of an array by unit each of all devices has, with padding."""
    return -(-feature_size // devices)
