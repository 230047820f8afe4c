"""More rows of the readout than the vocabulary has tokens, so that their number is a multiple of what a device wants.

GPT-2's vocabulary has V = 50,257 tokens, an odd number. On a GPU each row of the logits then begins somewhere else in a
line of memory, and XLA pads copies of the logits and of A at every update, for products whose sizes must be multiples of
a tile. So rows are added while the arrays are on a device, and taken away before anything is saved: no file knows of them.
Where several devices divide the vocabulary, parallel/placement.py pads in place of this.

On a CPU it is the round numbers of tokens that are slow. The gradient of A reads the exponentials (C, V) of cross_entropy.py column by column. Where V is
a multiple of 1,024, the numbers of a column lie a multiple of 4,096 bytes apart, and all of them want the same few places of
the cache. Loss and gradient took 1.1 to 1.2 times as long as with some more rows, which move them apart (results/readout_rows.md).

An added row is no token. Its weights are 0 and its bias is PADDING_BIAS, so that its probability is exactly 0 in every
softmax, and so are its gradients and the moments of an optimizer. Losses, gradients, norms of gradients and what is not
finite are therefore those of the arrays without padding, up to the order of sums. Weight decay would shrink the bias of a
padded row, and an epsilon of 0 would divide 0 by 0: `hold` keeps both away from it.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax

MULTIPLE = 128  # rows: whole tiles of a GPU's products, and the lanes of a TPU
ON_CPU = 16  # rows that are added there: a line of the cache, so that each row of the logits begins at one
SMALLEST_ON_CPU = 2048  # tokens; below, the exponentials of some hundred tokens lie in the cache however they are read
PADDING_BIAS = -1e30  # far below any logit; finite, or 0 times it were not a number
OF_VOCABULARY = ("a", "w", "bias")  # the arrays of a readout whose first axis is the vocabulary

Tree = Any  # the trained arrays, their gradient, or the state of an optimizer


@dataclass(frozen=True)
class VocabularyPadding:
    """How many rows the readout has on a device. `rows` is `vocab_size` where nothing is padded; trees are then left as they are.

    The trees are {"readout": {"a" or "w", "bias", ...}, ...}, or anything that has such a tree in it, as the state of an
    optimizer has.

    Example:
        padding = choose(vocab_size, backend="gpu")
        optimizer = padding.hold(optimizer)
        params, state = padding.pad_params(params), padding.pad_moments(state)
        ...                                                     # any number of updates
        params, state = padding.trim(params), padding.trim(state)
    """

    vocab_size: int
    rows: int

    def pad_params(self, params: Tree) -> Tree:
        """Returns the trained arrays with padded rows."""
        return self._padded(params, PADDING_BIAS)

    def pad_moments(self, state: Tree) -> Tree:
        """Returns the state of an optimizer for padded arrays, or a gradient with padded rows: all zeros."""
        return self._padded(state, 0.0)

    def trim(self, tree: Tree) -> Tree:
        """Returns any of these trees without the padded rows."""
        if self.rows == self.vocab_size:
            return tree
        return _map_vocabulary(lambda name, array: array[: self.vocab_size], tree)

    def hold(self, optimizer: optax.GradientTransformationExtraArgs) -> optax.GradientTransformationExtraArgs:
        """Returns the same optimizer, with the same state, which never moves a padded row."""
        if self.rows == self.vocab_size:
            return optimizer

        def update(gradient: Tree, state: Tree, params: Tree, **others: Any) -> tuple[Tree, Tree]:
            steps, state = optimizer.update(gradient, state, params, **others)
            is_padding = params["readout"]["bias"] <= PADDING_BIAS / 2  # (rows,)

            def still(name: str, step: jax.Array) -> jax.Array:
                return jnp.where(is_padding.reshape(-1, *[1] * (step.ndim - 1)), 0, step)

            return _map_vocabulary(still, steps), state

        return optax.GradientTransformationExtraArgs(optimizer.init, update)

    def _padded(self, tree: Tree, bias: float) -> Tree:
        if self.rows == self.vocab_size:
            return tree

        def pad(name: str, array: jax.Array) -> jax.Array:
            widths = [(0, self.rows - self.vocab_size)] + [(0, 0)] * (array.ndim - 1)
            return jnp.pad(array, widths, constant_values=bias if name == "bias" else 0)

        return _map_vocabulary(pad, tree)


def choose(vocab_size: int, backend: str, can_be_padded: bool = True) -> VocabularyPadding:
    """Returns the padding for a backend.

    Args:
        vocab_size: V.
        backend: cpu, gpu or tpu.
        can_be_padded: False for a model in which something else than readout/linear.py reads the readout.
    """
    if not can_be_padded:
        return VocabularyPadding(vocab_size, vocab_size)
    if backend == "cpu":
        is_slow = vocab_size % MULTIPLE == 0 and vocab_size >= SMALLEST_ON_CPU
        return VocabularyPadding(vocab_size, vocab_size + ON_CPU if is_slow else vocab_size)
    return VocabularyPadding(vocab_size, -(-vocab_size // MULTIPLE) * MULTIPLE)


def _map_vocabulary(function: Any, tree: Tree) -> Tree:
    """Returns the tree with function(name, array) in place of each array of a readout that has the vocabulary as an axis."""

    def apply(path: tuple, array: jax.Array) -> jax.Array:
        names = [str(getattr(key, "key", "")) for key in path[-2:]]
        return function(names[1], array) if names[0] == "readout" and names[1] in OF_VOCABULARY else array

    return jax.tree_util.tree_map_with_path(apply, tree)
