"""One product, W h, with four kernels behind it.

BCOO is the form in which a matrix is built, saved and inspected, and the reference in tests; it lowers to a gather and
a scatter and is never the fast path. `prepare` turns it, once, into what the chosen kernel wants:

    bcoo    jax.experimental.sparse as it is
    csr     BCSR: on a CPU a compiled row-by-row product, the fastest there from 8 columns up
    ell     rows padded to the longest, one gathered row of h a slot: for GPUs, whose sparse library is slower
    dense   an ordinary matrix product, for connectivity near 1 and small states on a GPU

The state h is laid out (units, columns); the transposed layout is two to four times slower.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import sparse

KERNELS = ("bcoo", "csr", "ell", "dense")


class Ell(NamedTuple):
    """Rows padded to the longest: slot k of row i is column index[k, i] with value[k, i], zero where padded."""

    value: jax.Array  # (K, N)
    index: jax.Array  # (K, N)


Operator = sparse.BCOO | sparse.BCSR | Ell | jax.Array


def choose_kernel(rows: int, nonzeros: int, backend: str) -> str:
    """The kernel for a (rows, rows) matrix on a backend, as measured in results/performance.md (CPU)."""
    if nonzeros >= rows * rows // 4:
        return "dense"
    if backend == "cpu":
        return "csr"
    return "dense" if rows <= 4096 else "ell"


def prepare(matrix: sparse.BCOO | jax.Array, kernel: str) -> Operator:
    """The operand of `matmul` for one kernel. A matrix stored dense stays dense, whatever the kernel.

    Args:
        matrix: (N, N), BCOO with rows sorted, or dense.
        kernel: one of KERNELS.
    """
    if not isinstance(matrix, sparse.BCOO):
        return jnp.asarray(matrix)
    if kernel == "bcoo":
        return matrix
    if kernel == "dense":
        return matrix.todense()
    rows, columns = matrix.shape
    row, column = np.asarray(matrix.indices).T
    value = np.asarray(matrix.data)
    starts = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=rows))])
    if kernel == "csr":
        parts = (jnp.asarray(value), jnp.asarray(column, jnp.int32), jnp.asarray(starts, jnp.int32))
        return sparse.BCSR(parts, shape=(rows, columns))
    if kernel == "ell":
        return _pad_rows(rows, row, column, value, starts)
    raise ValueError(f"kernel {kernel!r} is not one of {', '.join(KERNELS)}")


def matmul(operator: Operator, h: jax.Array) -> jax.Array:
    """W h for a prepared W (N, N) and h (N, B); float32 throughout."""
    if isinstance(operator, Ell):

        def add_slot(total, slot):
            value, index = slot
            return total + value[:, None] * h[index], None  # (N, B)

        return lax.scan(add_slot, jnp.zeros_like(h), operator)[0]
    if isinstance(operator, sparse.BCOO | sparse.BCSR):
        return operator @ h
    return jnp.matmul(operator, h, precision=lax.Precision.HIGHEST)


class Columns(NamedTuple):
    """The columns of W_in, one a token, padded to the fullest: token v reaches unit index[v, k] with value[v, k].

    A padded slot has the index N, which `add_columns` drops.
    """

    value: jax.Array  # (V, K)
    index: jax.Array  # (V, K)


def prepare_columns(matrix: sparse.BCOO | jax.Array) -> Columns | jax.Array:
    """The operand of `add_columns` for W_in (N, V): a padded table of its columns, or (V, N) where it is dense."""
    if not isinstance(matrix, sparse.BCOO):
        return jnp.asarray(matrix).T
    rows, columns = matrix.shape
    row, column = np.asarray(matrix.indices).T
    order = np.argsort(column, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(column, minlength=columns))])
    table = _pad_rows(columns, column[order], row[order], np.asarray(matrix.data)[order], starts, padding=rows)
    return Columns(table.value.T, table.index.T)


def add_columns(h: jax.Array, table: Columns | jax.Array, tokens: jax.Array) -> jax.Array:
    """h + W_in u for one-hot u: adds column tokens[j] of W_in to column j of h (N, B); tokens (B,) int32."""
    if isinstance(table, Columns):
        index, value = table.index[tokens], table.value[tokens]  # (B, K)
        lanes = jnp.broadcast_to(jnp.arange(h.shape[1])[:, None], index.shape)
        return h.at[index, lanes].add(value, mode="drop", unique_indices=False)
    return h + table[tokens].T


def _pad_rows(rows, row, column, value, starts, padding=0) -> Ell:
    width = max(1, int(np.diff(starts).max(initial=0)))
    slot = np.arange(len(row)) - starts[row]
    values, indices = np.zeros((width, rows), value.dtype), np.full((width, rows), padding, np.int32)
    values[slot, row], indices[slot, row] = value, column
    return Ell(jnp.asarray(values), jnp.asarray(indices))
