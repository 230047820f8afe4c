"""The frozen arrays of an echo state network, as they are held, shown and saved: one layer, or a stack of several."""

import jax.numpy as jnp
import numpy as np
import scipy.sparse
from flax import nnx
from jax.experimental import sparse

from esnlm.reservoir.sparse import with_column_values


class Frozen(nnx.Variable):
    """An array that no optimizer sees."""


class Reservoir(nnx.Module):
    """The frozen arrays of one layer.

    `w_rec` (N, N) and `w_in` (N, V) are BCOO, sorted by row; a matrix of connectivity 1/4 or more is stored dense and
    turned to BCOO when asked for. `leak` (N,). `embedding` (D, V) stands in front of a `w_in` (N, D), or is None. In a
    layer above another `w_in` is (N, N). All float32.
    """

    def __init__(
        self,
        w_rec: sparse.BCOO | np.ndarray,
        w_in: sparse.BCOO | np.ndarray,
        leak: np.ndarray,
        embedding: np.ndarray | None = None,
    ):
        self.state_size, self.input_size = w_in.shape
        self.recurrent = _freeze(w_rec)
        self.input = _freeze(w_in)
        self.leak = Frozen(jnp.asarray(leak))  # (N,)
        self.embedding = None if embedding is None else Frozen(jnp.asarray(embedding))  # (D, V)

    @property
    def layers(self) -> tuple["Reservoir"]:
        """Itself, as a stack has its layers."""
        return (self,)

    @property
    def vocab_size(self) -> int:
        return self.input_size if self.embedding is None else self.embedding.shape[1]

    @property
    def w_rec(self) -> sparse.BCOO:
        """W_rec, (N, N) BCOO."""
        return _as_bcoo(self.stored_w_rec)

    @property
    def w_in(self) -> sparse.BCOO:
        """W_in, (N, V) BCOO, or (N, D) behind an embedding."""
        return _as_bcoo(self.stored_w_in)

    @property
    def stored_w_rec(self) -> sparse.BCOO | np.ndarray:
        return _thaw(self.recurrent, (self.state_size, self.state_size))

    @property
    def stored_w_in(self) -> sparse.BCOO | np.ndarray:
        return _thaw(self.input, (self.state_size, self.input_size))

    @property
    def nonzeros(self) -> tuple[int, int]:
        """Nonzero entries of W_rec and of W_in."""
        return tuple(int(np.count_nonzero(part["values"][...])) for part in (self.recurrent, self.input))

    def with_input(self, table) -> "Reservoir":
        """The same with other values in W_in: `table` as `sparse.prepare_columns` lays them out."""
        w_in = with_column_values(self.stored_w_in, table)
        return Reservoir(self.stored_w_rec, w_in, self.leak[...])

    def arrays(self) -> dict:
        """The arrays as saved: {"recurrent": {"values", "indices"}, "input": {...}, "leak"}, and "embedding" where there is one."""
        parts = {"recurrent": self.recurrent, "input": self.input}
        arrays = {name: {key: part[key][...] for key in part} for name, part in parts.items()} | {
            "leak": self.leak[...]
        }
        return arrays if self.embedding is None else arrays | {"embedding": self.embedding[...]}

    @classmethod
    def from_arrays(cls, arrays: dict, vocab_size: int) -> "Reservoir":
        """The inverse of `arrays`."""
        state_size, embedding = len(arrays["leak"]), arrays.get("embedding")
        w_rec = _from_arrays(arrays["recurrent"], (state_size, state_size))
        w_in = _from_arrays(arrays["input"], (state_size, vocab_size if embedding is None else len(embedding)))
        return cls(w_rec, w_in, arrays["leak"], embedding)


class Stack(nnx.Module):
    """The frozen arrays of several layers; `layers[0]` reads the tokens, each other one the layer below."""

    def __init__(self, layers: list[Reservoir]):
        self.layers = nnx.List(layers)

    @property
    def vocab_size(self) -> int:
        return self.layers[0].vocab_size

    def with_input(self, table) -> "Stack":
        """The same with other values in W_in of the first layer."""
        return Stack([self.layers[0].with_input(table), *self.layers[1:]])

    def arrays(self) -> dict:
        """The arrays as saved: {"layers": {"0": those of a Reservoir, "1": ...}}."""
        return {"layers": {str(i): layer.arrays() for i, layer in enumerate(self.layers)}}


def from_arrays(arrays: dict, vocab_size: int) -> Reservoir | Stack:
    """The inverse of `arrays`, whichever it is of."""
    if "layers" not in arrays:
        return Reservoir.from_arrays(arrays, vocab_size)
    first, *above = (arrays["layers"][str(i)] for i in range(len(arrays["layers"])))
    return Stack(
        [
            Reservoir.from_arrays(first, vocab_size),
            *(Reservoir.from_arrays(layer, len(layer["leak"])) for layer in above),
        ]
    )


def bcoo(values, indices, shape) -> sparse.BCOO:
    """A matrix whose indices are sorted by row and unique."""
    return sparse.BCOO((values, indices), shape=shape, indices_sorted=True, unique_indices=True)


def as_scipy(matrix: sparse.BCOO | np.ndarray) -> scipy.sparse.csr_array | np.ndarray:
    """The same matrix in float64 for SciPy, sparse where it is."""
    if not isinstance(matrix, sparse.BCOO):
        return np.asarray(matrix, np.float64)
    row, column = np.asarray(matrix.indices).T
    return scipy.sparse.csr_array((np.asarray(matrix.data, np.float64), (row, column)), shape=matrix.shape)


def _as_bcoo(matrix) -> sparse.BCOO:
    return matrix if isinstance(matrix, sparse.BCOO) else sparse.BCOO.fromdense(jnp.asarray(matrix))


def _freeze(matrix) -> nnx.Dict:
    if isinstance(matrix, sparse.BCOO):
        return nnx.Dict(values=Frozen(jnp.asarray(matrix.data)), indices=Frozen(jnp.asarray(matrix.indices)))
    return nnx.Dict(values=Frozen(jnp.asarray(matrix)))


def _thaw(part, shape):
    if "indices" in part:
        return bcoo(part["values"][...], part["indices"][...], shape)
    return part["values"][...]


def _from_arrays(arrays, shape):
    if "indices" in arrays:
        return bcoo(jnp.asarray(arrays["values"]), jnp.asarray(arrays["indices"]), shape)
    return arrays["values"]
