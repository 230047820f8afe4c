"""W h for GPUs: one XLA kernel gathers and sums the entries of a row, without temporaries.

XLA fuses a sum of gathers into one kernel if the sum is written out entry by entry and no entry
reads a slice of a larger array. A kernel reads at most 96 arrays, two per entry. So rows are cut
into pieces of at most MOST entries, and pieces of similar length share a kernel. The sum over the
pieces of a row is fused into the operation that reads it. Padding reads the first row of h, which
stays in the nearest cache. So memory traffic is about nonzeros * B states, half as many bytes in
bfloat16.
"""

from functools import reduce
from operator import add
from typing import NamedTuple, Union

import jax
import jax.numpy as jnp
import numpy as np

from esnlm.machine import xla

MOST = 40  # maximum entries of a piece
LENGTHS = np.array([1, 2, 4, 8, 16, 24, 32, MOST])  # padded lengths of pieces; each is a kernel
# maximum pieces of a row in one sum; the pieces of a longer row are entries of another matrix
MOST_PIECES = 4


class Rows(NamedTuple):
    """A matrix as pieces of its rows. Piece 0 is empty, and pieces of one length follow each
    other."""

    # by length: value and column of each entry, (n,)
    pieces: tuple[tuple[tuple[jax.Array, jax.Array], ...], ...]
    # indices of each row's pieces, (N,) each, or a matrix that adds them
    of_row: Union[tuple[jax.Array, ...], "Rows"]


def prepare(rows: int, row: np.ndarray, column: np.ndarray, value: np.ndarray) -> Rows:
    """Returns the operand for a sparse matrix with `rows` rows, given its entries sorted by row."""
    entries = np.bincount(row, minlength=rows)
    count = -(-entries // MOST)  # pieces of each row
    longest = -(-entries // np.maximum(count, 1))
    # index of each entry in its row
    place = np.arange(len(row)) - (np.cumsum(entries) - entries)[row]
    piece = (np.cumsum(count) - count)[row] + place // longest[row]
    length = LENGTHS[np.searchsorted(LENGTHS, np.bincount(piece, minlength=count.sum()))]
    number = np.empty(len(length), np.int32)
    number[np.argsort(length, kind="stable")] = 1 + np.arange(len(length))
    pieces = []
    for each in np.unique(length):
        (chosen,) = np.nonzero(length[piece] == each)
        at = (
            place[chosen] % longest[row[chosen]],
            number[piece[chosen]] - number[length == each].min(),
        )
        values, columns = np.zeros((2, each, (length == each).sum()))
        values[at], columns[at] = value[chosen], column[chosen]
        parts = jax.device_put((list(values.astype(np.float32)), list(columns.astype(np.int32))))
        pieces.append(tuple(zip(*parts, strict=True)))
    if count.max(initial=0) > MOST_PIECES:
        return Rows(
            tuple(pieces),
            prepare(rows, np.repeat(np.arange(rows), count), number, np.ones(len(number))),
        )
    of_row = np.zeros((max(1, count.max(initial=0)), rows), np.int32)
    owner = np.repeat(np.arange(rows), count)
    of_row[np.arange(len(owner)) - (np.cumsum(count) - count)[owner], owner] = number
    return Rows(tuple(pieces), tuple(jax.device_put(list(of_row))))


def product(matrix: Rows, h: jax.Array) -> jax.Array:
    """Returns W h, (N, B) float32, for h (M, B) in float32 or bfloat16."""
    # The slots of a unit must be contiguous, or a gather would read 32 bytes of memory for 4.
    h, sums = xla.laid_out(h), [jnp.zeros((1, h.shape[1]), jnp.float32)]
    for entries in matrix.pieces:
        terms = (
            value[:, None] * _gathered(h, column).astype(jnp.float32) for value, column in entries
        )
        sums.append(reduce(add, terms))
    found = xla.laid_out(jnp.concatenate(sums))  # (1 + pieces, B)
    if isinstance(matrix.of_row, Rows):
        # Pieces count from 1; index 0, the empty piece, is padding and adds nothing.
        return product(matrix.of_row, found)
    return xla.laid_out(reduce(add, (_gathered(found, number) for number in matrix.of_row)))


def _gathered(x: jax.Array, rows: jax.Array) -> jax.Array:
    return x.at[rows].get(mode="promise_in_bounds")
