"""The product W h, with five kernels.

Matrices are built, saved and inspected as BCOO, which is also the reference in tests; it lowers to
a gather and a scatter and is never the fastest. `prepare` converts it once into the operand of the
chosen kernel:

    bcoo    jax.experimental.sparse as it is.
    csr     BCSR. On a CPU a compiled product row by row, the fastest kernel there for 8 or more
    columns. ell     Rows padded to the longest; gathers a row of h for each entry. For TPUs, unless
    one long row would pad the
            others beyond MOST_PADDING.
    dense   An ordinary matrix product, for a connectivity near 1, and for smaller states on a GPU
    or TPU. Only this one
            rounds both factors in tf32 and bf16; the others keep W in float32, and round the states
            in bf16.
    fused   Rows in pieces of a few lengths, for GPUs: one kernel gathers and sums the entries of a
    row.

The state h is laid out (units, columns); the transposed layout is two to four times slower.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import sparse
from jax.sharding import PartitionSpec

from esnlm.machine import matmul as products
from esnlm.machine import xla
from esnlm.reservoir import fused
from esnlm.reservoir.arrays import bcoo

KERNELS = ("bcoo", "csr", "ell", "dense", "fused")


class Ell(NamedTuple):
    """Rows padded to the longest: entry k of row i is column index[k, i] with value[k, i], zero
    where padded."""

    value: jax.Array  # (K, N)
    index: jax.Array  # type: ignore[assignment]  # (K, N)


class Transposable(NamedTuple):
    """W with its transpose, for gradients."""

    matrix: Any  # BCOO, BCSR, Ell or fused.Rows
    transpose: Any


Operator = sparse.BCOO | sparse.BCSR | Ell | fused.Rows | Transposable | jax.Array

# The compiled csr product is no faster with fewer columns than this, so smaller batches are padded
# to it.
FEWEST_COLUMNS = 8

# Cost of a gathered state on a GPU, in entries of a dense product, by the precision of both. By
# NVIDIA's figures for an H100, a state of 4 bytes from the second-level cache (5.5 TB/s) costs 24
# entries of float32 (2 operations at 67 TFLOP/s) or 180 of TF32 (495 TFLOP/s), one of 2 bytes 180
# of bf16. An H200 took 26 and 190 at N = 4,096 and 8,192 (results/h200.md).
DENSE_ENTRIES = {"float32": 24, "tf32": 180, "bf16": 180}
# Maximum units of a matrix that is made dense whatever its entries. On a GPU launching the kernels
# of `fused` takes as long as its product; a TPU has no kernel that gathers.
DENSE_UNITS = {"gpu": 1024, "tpu": 8192}

# Maximum padded places per entry in "ell". This is an estimate, since no TPU was measured. At N
# 65,536 Bernoulli rows have 2 places per entry and rows of a scale-free network 50.
MOST_PADDING = 4


def choose_kernel(
    rows: int, nonzeros: int, backend: str, longest_row: float = 0.0, precision: str = "float32"
) -> str:
    """Returns the kernel for a (rows, rows) matrix on JAX's backend cpu, gpu or tpu, as measured in
    results/recurrence.md (CPU).

    `longest_row` is the number of entries in the fullest row, to which "ell" pads all rows; 0 if
    unknown. `precision` is the states'.
    """
    if nonzeros >= rows * rows // 4:
        return "dense"
    if backend == "cpu":
        return "csr"
    if rows <= DENSE_UNITS["gpu" if backend == "gpu" else "tpu"]:
        return "dense"
    if backend == "gpu":
        return "dense" if DENSE_ENTRIES[precision] * nonzeros >= rows * rows else "fused"
    return "ell" if rows * longest_row <= MOST_PADDING * nonzeros else "bcoo"


def prepare(matrix: sparse.BCOO | jax.Array | np.ndarray, kernel: str) -> Operator:
    """Returns the operand of `matmul` for one of KERNELS. A matrix stored dense stays dense,
    whatever the kernel."""
    if not isinstance(matrix, sparse.BCOO):
        return jnp.asarray(matrix)
    if kernel == "bcoo":
        return matrix
    if kernel == "dense":
        return matrix.todense()
    rows, columns = matrix.shape
    row, column = np.asarray(matrix.indices).T
    value = np.asarray(matrix.data)
    if kernel == "csr":
        starts = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=rows))])
        parts = value, column.astype(np.int32), starts.astype(np.int32)
        return sparse.BCSR(jax.device_put(parts), shape=(rows, columns))
    if kernel == "ell":
        return Ell(*jax.device_put(_pad_rows(rows, row, column, value)))
    if kernel == "fused":
        return fused.prepare(rows, row, column, value)
    raise ValueError(f"kernel {kernel!r} is not one of {', '.join(KERNELS)}")


def prepare_differentiable(matrix: sparse.BCOO | jax.Array | np.ndarray, kernel: str) -> Operator:
    """Returns the operand of a product that is differentiable in h, with W^T; W itself has no
    gradient."""
    if not isinstance(matrix, sparse.BCOO) or kernel == "dense":
        return prepare(matrix, kernel)
    transpose = matrix.T.sort_indices()
    return Transposable(prepare(matrix, kernel), prepare(transpose, kernel))


@jax.custom_vjp
def _matmul_with_transpose(operator: Transposable, h: jax.Array) -> jax.Array:
    return matmul(operator.matrix, h)


_matmul_with_transpose.defvjp(
    lambda operator, h: (matmul(operator.matrix, h), operator.transpose),
    lambda transpose, gradient: (None, matmul(transpose, gradient)),  # dL/dh = W^T dL/d(W h)
)


def matmul(operator: Operator, h: jax.Array, precision: str = "float32") -> jax.Array:
    """Returns W h, (N, B), for a prepared W (N, M) and h (M, B); sums are in float32.

    In bf16 a sparse product rounds h; gradients ignore this. In bf16 and tf32 a dense product
    rounds both factors.
    """
    if isinstance(operator, jax.Array) and precision != "float32":
        return products.matmul(operator, h, (1, 0), precision)
    if precision == "bf16":
        # XLA would move the rounding behind the gather, and gather float32.
        is_gathered = isinstance(operator, fused.Rows)
        h = (
            lax.optimization_barrier(xla.laid_out(h.astype(jnp.bfloat16)))
            if is_gathered
            else xla.rounded_to_bf16(h)
        )
    if isinstance(operator, Transposable):
        return _matmul_with_transpose(operator, h)
    if isinstance(operator, fused.Rows):
        return _by_columns(fused.product, operator, h)
    if isinstance(operator, Ell):
        start = jnp.zeros((operator.value.shape[1], h.shape[1]), h.dtype)  # (N, B)
        return lax.scan(
            lambda total, entry: (total + entry.value[:, None] * h[entry.index], None),
            start,
            operator,
        )[0]
    if isinstance(operator, sparse.BCOO | sparse.BCSR):
        return (
            _by_columns(_csr_product, operator, h)
            if isinstance(operator, sparse.BCSR)
            else operator @ h
        )
    return jnp.matmul(operator, h, precision=lax.Precision.HIGHEST)


def _csr_product(operator: sparse.BCSR, h: jax.Array) -> jax.Array:
    missing = max(0, FEWEST_COLUMNS - h.shape[1])
    return (
        (operator @ jnp.pad(h, ((0, 0), (0, missing))))[:, : h.shape[1]]
        if missing
        else operator @ h
    )


def _by_columns(
    product: Callable[[Any, jax.Array], jax.Array], operator: Operator, h: jax.Array
) -> jax.Array:
    """Computes a product that XLA cannot shard, as it is one call or has layouts: each device takes
    some columns."""
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or mesh.manual_axes:
        return product(operator, h)
    columns = PartitionSpec(None, mesh.axis_names)
    specs = PartitionSpec(), columns
    return jax.shard_map(product, in_specs=specs, out_specs=columns, check_vma=False)(operator, h)


class Columns(NamedTuple):
    """The columns of W_in, one per token, padded to the fullest: token v drives unit index[v, k]
    with value[v, k].

    A padded entry has the index N, which `add_columns` drops.
    """

    value: jax.Array  # (V, K)
    index: jax.Array  # type: ignore[assignment]  # (V, K)


def prepare_columns(matrix: sparse.BCOO | jax.Array | np.ndarray) -> Columns | jax.Array:
    """Returns the operand of `add_columns` for W_in (N, V): a padded table of columns, or a dense
    transpose (V, N)."""
    if not isinstance(matrix, sparse.BCOO):
        return jnp.asarray(matrix).T
    rows, columns = matrix.shape
    row, column = np.asarray(matrix.indices).T
    order = np.argsort(column, kind="stable")  # by column and then by row
    values, indices = _pad_rows(
        columns, column[order], row[order], np.asarray(matrix.data)[order], padding=rows
    )
    return Columns(*jax.device_put((values.T, indices.T)))


def matrix_of_columns(columns: Columns, rows: int) -> sparse.BCOO:
    """Returns W_in (rows, V) from its table of `prepare_columns`."""
    index, value = np.asarray(columns.index), np.asarray(columns.value)
    column, entry = np.nonzero(index < rows)
    row = index[column, entry]
    order = np.lexsort((column, row))
    values, indices = (
        value[column, entry][order],
        np.stack([row, column.astype(np.int32)], axis=1)[order],
    )
    return bcoo(values, indices, (rows, len(index)))


def add_columns(h: jax.Array, table: Columns | jax.Array, tokens: jax.Array) -> jax.Array:
    """Returns h + W_in u for one-hot u: adds column tokens[j] of W_in to column j of h (N, B);
    tokens (B,) int32."""
    if isinstance(table, Columns):
        index, value = table.index[tokens], table.value[tokens]  # (B, K)
        slots = jnp.broadcast_to(jnp.arange(h.shape[1])[:, None], index.shape)
        return h.at[index, slots].add(value, mode="drop", unique_indices=False)
    return h + table[tokens].T


def _pad_rows(
    rows: int, row: np.ndarray, column: np.ndarray, value: np.ndarray, padding: int = 0
) -> tuple:
    """Returns sorted rows, each padded to the longest."""
    starts = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=rows))])
    entry = np.arange(len(row)) - starts[row]  # the place of each entry within its row
    width = int(entry.max(initial=0)) + 1
    values, indices = (
        np.zeros((width, rows), value.dtype),
        np.full((width, rows), padding, np.int32),
    )
    values[entry, row], indices[entry, row] = value, column
    return values, indices
