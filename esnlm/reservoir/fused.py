"""W h for GPUs: the entries of a row are gathered and summed in one kernel of XLA, without temporaries.

XLA makes one kernel of a sum of gathers if it is written out entry by entry, and no entry reads a slice of a larger array. A kernel
reads at most 96 arrays, two for each entry. So rows are cut into pieces of at most MOST entries, and pieces of about the same
length share a kernel. What adds up the pieces of each row is fused into what reads the sums. Padding reads the first row of h,
which is in the nearest cache. So the bytes that count are nonzeros * B states, half as many in bfloat16.
"""

from functools import reduce
from operator import add
from typing import NamedTuple, Union

import jax
import jax.numpy as jnp
import numpy as np

from esnlm.ops import xla

MOST = 40  # entries of a piece
LENGTHS = np.array([1, 2, 4, 8, 16, 24, 32, MOST])  # of pieces, with their padding: each is a kernel
MOST_PIECES = 4  # of a row that are added up at once; the pieces of a longer row are entries of another matrix


class Rows(NamedTuple):
    """A matrix by pieces of its rows. Piece 0 is empty, and those of one length follow each other."""

    pieces: tuple[tuple[tuple[jax.Array, jax.Array], ...], ...]  # of each length: value and column of each entry, (n,)
    of_row: Union[tuple[jax.Array, ...], "Rows"]  # the numbers of each row's pieces, (N,) each, or what adds them up


def prepare(rows: int, row: np.ndarray, column: np.ndarray, value: np.ndarray) -> Rows:
    """Returns the operand of a sparse matrix with so many rows, whose entries are sorted by row."""
    entries = np.bincount(row, minlength=rows)
    count = -(-entries // MOST)  # pieces of each row
    longest = -(-entries // np.maximum(count, 1))
    place = np.arange(len(row)) - (np.cumsum(entries) - entries)[row]  # of each entry in its row
    piece = (np.cumsum(count) - count)[row] + place // longest[row]
    length = LENGTHS[np.searchsorted(LENGTHS, np.bincount(piece, minlength=count.sum()))]
    number = np.empty(len(length), np.int32)
    number[np.argsort(length, kind="stable")] = 1 + np.arange(len(length))
    pieces = []
    for each in np.unique(length):
        (chosen,) = np.nonzero(length[piece] == each)
        at = place[chosen] % longest[row[chosen]], number[piece[chosen]] - number[length == each].min()
        values, columns = np.zeros((2, each, (length == each).sum()))
        values[at], columns[at] = value[chosen], column[chosen]
        parts = jax.device_put((list(values.astype(np.float32)), list(columns.astype(np.int32))))
        pieces.append(tuple(zip(*parts, strict=True)))
    if count.max(initial=0) > MOST_PIECES:
        return Rows(tuple(pieces), prepare(rows, np.repeat(np.arange(rows), count), number, np.ones(len(number))))
    of_row = np.zeros((max(1, count.max(initial=0)), rows), np.int32)
    owner = np.repeat(np.arange(rows), count)
    of_row[np.arange(len(owner)) - (np.cumsum(count) - count)[owner], owner] = number
    return Rows(tuple(pieces), tuple(jax.device_put(list(of_row))))


def product(matrix: Rows, h: jax.Array) -> jax.Array:
    """Returns W h, (N, B) float32, for h (M, B) in float32 or bfloat16."""
    # The slots of a unit lie side by side, or a gather would read 32 bytes of memory for 4.
    h, sums = xla.laid_out(h), [jnp.zeros((1, h.shape[1]), jnp.float32)]
    for entries in matrix.pieces:
        sums.append(
            reduce(add, (value[:, None] * _gathered(h, column).astype(jnp.float32) for value, column in entries))
        )
    found = xla.laid_out(jnp.concatenate(sums))  # (1 + pieces, B)
    if isinstance(matrix.of_row, Rows):
        # The empty piece has no column 0 of its own: numbers count from 1, and 0 is padding, which adds nothing.
        return product(matrix.of_row, found)
    return xla.laid_out(reduce(add, (_gathered(found, number) for number in matrix.of_row)))


def _gathered(x: jax.Array, rows: jax.Array) -> jax.Array:
    return x.at[rows].get(mode="promise_in_bounds")
