"""The product W h of a frozen sparse matrix and states, with a kernel for each kind of device.

Matrices are built, saved and inspected as BCOO, the reference in tests. `prepare` converts a matrix
once into the operand of a kernel:

    bcoo    jax.experimental.sparse as it is: a gather and a scatter, never the fastest
    csr     BCSR: on a CPU a compiled product row by row, the fastest there for 8 or more columns
    dense   an ordinary matrix product: for a connectivity near 1, and for smaller states on a GPU
            or TPU. It rounds both factors in tf32 and bf16; the others round only h, in bf16.
    fused   one XLA kernel gathers and sums the entries of a row, for GPUs; described below

States are (units, columns); the transposed layout is two to four times slower.
"""

from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Any, NamedTuple, Union

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import sparse
from jax.sharding import PartitionSpec

from esnlm.machine import matmul as products
from esnlm.machine import xla
from esnlm.reservoir.arrays import Matrix, bcoo

KERNELS = ("bcoo", "csr", "dense", "fused")

# The compiled csr product is no faster with fewer columns, so smaller batches are padded to these.
FEWEST_COLUMNS = 8

# Cost of a gathered state on a GPU, in entries of a dense product, by the precision of both. By
# NVIDIA's figures for an H100, a state of 4 bytes from the second-level cache (5.5 TB/s) costs 24
# entries of float32 (2 operations at 67 TFLOP/s) or 180 of TF32 (495 TFLOP/s), one of 2 bytes 180
# of bf16. By the steps of results/h200.md, an H200 took 26 in float32 at N = 4,096.
DENSE_ENTRIES = {"float32": 24, "tf32": 180, "bf16": 180}
# Maximum units of a matrix that is made dense whatever its entries. On a GPU launching the kernels
# of `fused` takes as long as its product; a TPU has no kernel that gathers.
DENSE_UNITS = {"gpu": 1024, "tpu": 8192}


class FusedRows(NamedTuple):
    """The operand of `fused`: pieces of rows, by their padded length."""

    # of each length, its entries in order, each as (values, columns) of all pieces: (n,), (n,)
    pieces: tuple[tuple[tuple[jax.Array, jax.Array], ...], ...]
    # numbers of each row's pieces, (N,) each, or a matrix that adds the pieces; 0: no piece
    of_row: Union[tuple[jax.Array, ...], "FusedRows"]


class Transposable(NamedTuple):
    """W with its transpose, for gradients."""

    matrix: Any  # BCOO, BCSR or FusedRows
    transpose: Any


Operator = sparse.BCOO | sparse.BCSR | FusedRows | Transposable | jax.Array


def choose_kernel(rows: int, nonzeros: int, backend: str, precision: str = "float32") -> str:
    """Returns the fastest kernel for a (rows, rows) matrix on JAX's backend cpu, gpu or tpu.

    `precision` is the states'. Measured in results/recurrence.md and results/h200.md.
    """
    if nonzeros >= rows * rows // 4:
        return "dense"
    if backend == "cpu":
        return "csr"
    if rows <= DENSE_UNITS["gpu" if backend == "gpu" else "tpu"]:
        return "dense"
    if backend == "gpu":
        return "dense" if DENSE_ENTRIES[precision] * nonzeros >= rows * rows else "fused"
    return "bcoo"


def prepare(matrix: Matrix, kernel: str) -> Operator:
    """Returns the operand of `matmul` for one of KERNELS. A dense matrix stays dense."""
    if not isinstance(matrix, sparse.BCOO):
        return jnp.asarray(matrix)
    if kernel == "bcoo":
        return matrix
    if kernel == "dense":
        return matrix.todense()
    row, column = np.asarray(matrix.indices).T
    value = np.asarray(matrix.data)
    if kernel == "csr":
        starts = _row_starts(row, matrix.shape[0]).astype(np.int32)
        parts = jax.device_put((value, column.astype(np.int32), starts))
        return sparse.BCSR(parts, shape=matrix.shape)
    if kernel == "fused":
        return prepare_fused(matrix.shape[0], row, column, value)
    raise ValueError(f"kernel {kernel!r} is not one of {', '.join(KERNELS)}")


def prepare_differentiable(matrix: Matrix, kernel: str) -> Operator:
    """Returns an operand for products differentiable in h, with W^T. W itself has no gradient."""
    if not isinstance(matrix, sparse.BCOO) or kernel == "dense":
        return prepare(matrix, kernel)
    transpose = matrix.T.sort_indices()
    return Transposable(prepare(matrix, kernel), prepare(transpose, kernel))


def matmul(operator: Operator, h: jax.Array, precision: str = "float32") -> jax.Array:
    """Returns W h, (N, B), for a prepared W (N, M) and h (M, B); sums are in float32.

    In bf16 a sparse product rounds h; gradients ignore this. In bf16 and tf32 a dense product
    rounds both factors.
    """
    if isinstance(operator, jax.Array) and precision == "float32":
        return jnp.matmul(operator, h, precision=lax.Precision.HIGHEST)
    if isinstance(operator, jax.Array):
        return products.matmul(operator, h, (1, 0), precision)
    if precision == "bf16" and isinstance(operator, FusedRows):
        # Without the barrier XLA would move the rounding behind the gather, and gather float32.
        h = lax.optimization_barrier(xla.laid_out(h.astype(jnp.bfloat16)))
    elif precision == "bf16":
        h = xla.rounded_to_bf16(h)
    if isinstance(operator, Transposable):
        return _matmul_with_transpose(operator, h)
    if isinstance(operator, FusedRows):
        return _by_columns(_fused_product, operator, h)
    if isinstance(operator, sparse.BCSR):
        return _by_columns(_csr_product, operator, h)
    return operator @ h


@jax.custom_vjp
def _matmul_with_transpose(operator: Transposable, h: jax.Array) -> jax.Array:
    return matmul(operator.matrix, h)


_matmul_with_transpose.defvjp(
    lambda operator, h: (matmul(operator.matrix, h), operator.transpose),
    lambda transpose, cotangent: (None, matmul(transpose, cotangent)),  # dL/dh = W^T dL/d(W h)
)


def _csr_product(operator: sparse.BCSR, h: jax.Array) -> jax.Array:
    columns = h.shape[1]
    if columns >= FEWEST_COLUMNS:
        return operator @ h
    return (operator @ jnp.pad(h, ((0, 0), (0, FEWEST_COLUMNS - columns))))[:, :columns]


def _by_columns(
    product: Callable[[Any, jax.Array], jax.Array], operator: Operator, h: jax.Array
) -> jax.Array:
    """Computes a product that XLA cannot partition; each device of a mesh takes some columns."""
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or mesh.manual_axes:
        return product(operator, h)
    columns = PartitionSpec(None, mesh.axis_names)
    specs = PartitionSpec(), columns
    return jax.shard_map(product, in_specs=specs, out_specs=columns, check_vma=False)(operator, h)


# ---- fused ----
#
# XLA fuses a sum of gathers into one kernel, without temporaries, if the sum is written out entry
# by entry and no entry reads a slice of a larger array. A kernel reads at most 96 arrays, two per
# entry. So rows are cut into pieces of nearly equal length, at most LONGEST_PIECE, and padded to
# one of PIECE_LENGTHS; the pieces of one length share a kernel. Memory traffic is about
# nonzeros * B states, half as many bytes in bfloat16. For example, three rows:
#
#     row 0, 45 entries   pieces 2 and 3, of 23 and 22 entries, both padded to 24
#     row 1, no entries   piece 0, which is empty
#     row 2, 3 entries    piece 1, padded to 4
#
#     sums = [0, s1, s2, s3]            of the pieces, one kernel per length
#     of_row = [2, 0, 1], [3, 0, 0]     so that W h = sums[of_row[0]] + sums[of_row[1]]
#
# The last sum is fused into the operation that reads it. Padding reads row 0 of h, which stays in
# the nearest cache. If a row has more than MOST_PIECES pieces, `of_row` is itself a sparse matrix
# of ones that adds the pieces.

LONGEST_PIECE = 40
PIECE_LENGTHS = np.array([1, 2, 4, 8, 16, 24, 32, LONGEST_PIECE])
MOST_PIECES = 4


def prepare_fused(rows: int, row: np.ndarray, column: np.ndarray, value: np.ndarray) -> FusedRows:
    """Returns the operand of a matrix with `rows` rows from its entries, sorted by row."""
    starts = _row_starts(row, rows)
    entries = np.diff(starts)  # (rows,)
    pieces_of = -(-entries // LONGEST_PIECE)
    longest = -(-entries // np.maximum(pieces_of, 1))
    position = np.arange(len(row)) - starts[row]  # of each entry in its row
    owner = np.repeat(np.arange(rows), pieces_of)  # the row of each piece
    first_piece = _row_starts(owner, rows)
    piece = first_piece[row] + position // longest[row]
    length = PIECE_LENGTHS[np.searchsorted(PIECE_LENGTHS, np.bincount(piece, minlength=len(owner)))]
    number = np.empty(len(owner), np.int32)  # pieces counted by length, from 1
    number[np.argsort(length, kind="stable")] = 1 + np.arange(len(owner))
    groups = []
    for padded in np.unique(length):
        (chosen,) = np.nonzero(length[piece] == padded)
        of_length = number[length == padded]
        place = (
            position[chosen] % longest[row[chosen]],
            number[piece[chosen]] - of_length.min(),
        )
        values = np.zeros((padded, len(of_length)), np.float32)
        columns = np.zeros((padded, len(of_length)), np.int32)
        values[place], columns[place] = value[chosen], column[chosen]
        groups.append(tuple(zip(*jax.device_put((list(values), list(columns))), strict=True)))
    most = pieces_of.max(initial=1)
    if most > MOST_PIECES:
        return FusedRows(tuple(groups), prepare_fused(rows, owner, number, np.ones(len(number))))
    of_row = np.zeros((most, rows), np.int32)
    of_row[np.arange(len(owner)) - first_piece[owner], owner] = number
    return FusedRows(tuple(groups), tuple(jax.device_put(list(of_row))))


def _fused_product(matrix: FusedRows, h: jax.Array) -> jax.Array:
    """Returns W h, (N, B) float32, for h (M, B) in float32 or bfloat16."""
    h = xla.laid_out(h)  # contiguous slots: otherwise a gather reads 32 bytes of memory for 4
    sums = [jnp.zeros((1, h.shape[1]), jnp.float32)]
    for entries in matrix.pieces:
        terms = (value[:, None] * _gather(h, rows).astype(jnp.float32) for value, rows in entries)
        sums.append(reduce(add, terms))
    by_piece = xla.laid_out(jnp.concatenate(sums))  # (1 + pieces, B)
    if isinstance(matrix.of_row, FusedRows):
        return _fused_product(matrix.of_row, by_piece)
    return xla.laid_out(reduce(add, (_gather(by_piece, number) for number in matrix.of_row)))


def _gather(x: jax.Array, rows: jax.Array) -> jax.Array:
    return x.at[rows].get(mode="promise_in_bounds")


# ---- W_in ----


class TokenColumns(NamedTuple):
    """The columns of W_in (N, V), one per token, as rows of a table.

    A sparse W_in has K entries per column, padded to the fullest: token v drives unit index[v, k]
    with value[v, k]; padding has the index N. A dense W_in has no index, and K is N.
    """

    value: jax.Array  # (V, K)
    index: jax.Array | None  # type: ignore[assignment]  # (V, K)


def prepare_columns(matrix: Matrix) -> TokenColumns:
    """Returns the operand of `add_columns` for W_in (N, V)."""
    if not isinstance(matrix, sparse.BCOO):
        return TokenColumns(jnp.asarray(matrix).T, None)
    units, tokens = matrix.shape
    unit, token = np.asarray(matrix.indices).T
    order = np.argsort(token, kind="stable")  # by token, then by unit
    unit, token = unit[order], token[order]
    entry = np.arange(len(token)) - _row_starts(token, tokens)[token]
    width = int(entry.max(initial=0)) + 1
    values = np.zeros((tokens, width), np.asarray(matrix.data).dtype)
    indices = np.full((tokens, width), units, np.int32)
    values[token, entry], indices[token, entry] = np.asarray(matrix.data)[order], unit
    return TokenColumns(*jax.device_put((values, indices)))


def add_columns(h: jax.Array, columns: TokenColumns, tokens: jax.Array) -> jax.Array:
    """Returns h + W_in u, (N, B), for h (N, B) and the one-hot vectors u of tokens (B,) int32."""
    value = columns.value[tokens]  # (B, K)
    if columns.index is None:
        return h + value.T
    index = columns.index[tokens]
    slots = jnp.broadcast_to(jnp.arange(h.shape[1])[:, None], index.shape)
    return h.at[index, slots].add(value, mode="drop", unique_indices=False)


def matrix_of_columns(columns: TokenColumns, units: int) -> Matrix:
    """Returns W_in (N, V) from its table of `prepare_columns`."""
    if columns.index is None:
        return columns.value.T
    index, value = np.asarray(columns.index), np.asarray(columns.value)
    token, entry = np.nonzero(index < units)
    unit = index[token, entry]
    order = np.lexsort((token, unit))
    indices = np.stack([unit, token.astype(np.int32)], axis=1)
    return bcoo(value[token, entry][order], indices[order], (units, len(index)))


def _row_starts(row: np.ndarray, rows: int) -> np.ndarray:
    """Returns the index of each row's first entry, and the number of entries, (rows + 1,)."""
    return np.concatenate([[0], np.cumsum(np.bincount(row, minlength=rows))])
