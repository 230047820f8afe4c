"""Frozen arrays and matrices in Flax modules, and all arrays of a module by name."""

from typing import Any

import jax
import numpy as np
import scipy.sparse
from flax import nnx, traverse_util
from jax.experimental import sparse

from esnlm.base.errors import InputError

Matrix = sparse.BCOO | jax.Array | np.ndarray  # sparse, with rows sorted, or dense


class Frozen(nnx.Variable):
    """Arrays that no optimizer trains: one array, or the operand of a kernel of
    reservoir/sparse.py.

    Read it with `get_value()` if it may hold an operand: `[...]` is for arrays only.
    """


class FrozenMatrix(Frozen):
    """A matrix in its canonical form, used to build, save and show it: BCOO, or dense."""

    def __init__(self, matrix: Matrix, **metadata: Any) -> None:
        super().__init__(
            matrix if isinstance(matrix, sparse.BCOO) else jax.device_put(matrix), **metadata
        )


def arrays_by_name(module: nnx.Module, kind: type[nnx.Variable] = nnx.Variable) -> dict:
    """Returns the arrays of a module's variables as nested dicts by attribute.

    The key of a list's item is its index as a string. A sparse FrozenMatrix becomes {"values",
    "indices"}, with indices (nonzeros, 2), and a dense one {"values"}. Only variables of `kind` are
    returned, for example nnx.Param.
    """
    flat: dict[tuple[str, ...], object] = {}
    for path, variable in nnx.to_flat_state(nnx.state(module, kind)):
        name, value = tuple(map(str, path)), variable.get_value()
        if not isinstance(variable, FrozenMatrix):
            flat[name] = value
        elif isinstance(value, sparse.BCOO):
            flat[*name, "values"], flat[*name, "indices"] = value.data, value.indices
        else:
            flat[*name, "values"] = value
    return traverse_util.unflatten_dict(flat)


def matrix_from_arrays(arrays: dict, shape: tuple[int, int]) -> Matrix:
    """Returns a matrix from its arrays in `arrays_by_name`."""
    if "indices" not in arrays:
        return arrays["values"]
    return bcoo(arrays["values"], arrays["indices"], shape)


def bcoo(
    values: jax.Array | np.ndarray, indices: jax.Array | np.ndarray, shape: tuple[int, ...]
) -> sparse.BCOO:
    """Returns a matrix whose indices are sorted by row and unique."""
    parts = jax.device_put((values, indices))  # jnp.asarray may compile a program for each size
    return sparse.BCOO(parts, shape=shape, indices_sorted=True, unique_indices=True)


def scale(matrix: Matrix, factor: float) -> sparse.BCOO | np.ndarray:
    """Returns the matrix times a factor, in float32."""
    if isinstance(matrix, sparse.BCOO):
        return bcoo(np.asarray(matrix.data) * np.float32(factor), matrix.indices, matrix.shape)
    return np.asarray(matrix) * np.float32(factor)


def as_bcoo(matrix: Matrix) -> sparse.BCOO:
    """Returns the same matrix, sparse."""
    if isinstance(matrix, sparse.BCOO):
        return matrix
    matrix = np.asarray(matrix)  # BCOO.fromdense would compile dozens of programs.
    indices = np.argwhere(matrix).astype(np.int32)
    return bcoo(matrix[tuple(indices.T)], indices, matrix.shape)


def as_scipy(matrix: Matrix) -> scipy.sparse.csr_array | np.ndarray:
    """Returns the matrix in float64 for SciPy, sparse or dense as it was."""
    if not isinstance(matrix, sparse.BCOO):
        return np.asarray(matrix, np.float64)
    row, column = np.asarray(matrix.indices).T
    return scipy.sparse.csr_array(
        (np.asarray(matrix.data, np.float64), (row, column)), shape=matrix.shape
    )


def checked_matrix(name: str, matrix: Any, shape: tuple[int, int]) -> scipy.sparse.coo_array:
    """Returns a user's matrix, of NumPy or SciPy, in float32, sorted by row and then by column,
    without zeros.

    Raises InputError, beginning with `name`, for another shape, or entries that are not finite real
    numbers.
    """
    try:
        matrix = matrix if scipy.sparse.issparse(matrix) else np.asarray(matrix)
        matrix = scipy.sparse.coo_array(matrix)
        is_real = matrix.dtype.kind in "fiub"
        is_usable = matrix.shape == shape and is_real and np.isfinite(matrix.data).all()
    except (TypeError, ValueError):
        is_usable = False
    if not is_usable:
        raise InputError(
            f"{name}: give a matrix of NumPy or SciPy of the shape {shape}, of finite real numbers"
        )
    matrix = scipy.sparse.csr_array(matrix.astype(np.float32))
    matrix.sum_duplicates()  # it sorts, too
    matrix.eliminate_zeros()
    return matrix.tocoo()
