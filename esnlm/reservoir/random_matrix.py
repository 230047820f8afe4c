"""Random matrices: positions of nonzeros, drawn without building the matrix, and dense matrices.

Positions are (row, column): two int32 arrays of the same length, sorted by row, then by column,
without duplicates. Time and memory are proportional to the nonzeros (times a logarithm if they are
sorted).
"""

import math

import numpy as np

# Gaps are drawn this many at a time, so that 2**20 units need no more memory than their nonzeros
# do.
CHUNK = 1 << 22


def bernoulli_positions(
    rows: int, columns: int, density: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the positions of the ones of M, M_ij ~ Bernoulli(density) independently (Ueda et al.
    2025a, eq. 2 and 3).

    The matrix is walked in row-major order by the gaps between its ones, which are geometric with
    parameter `density`. The walk counts in int64: rows * columns passes 2**31 at 42,731 units and
    GPT-2's vocabulary.
    """
    cells = rows * columns
    if density >= 1:
        return from_flat(np.arange(cells, dtype=np.int64), columns)
    position, found = -1, []
    while position < cells:
        gaps = rng.geometric(density, size=min(CHUNK, int((cells - position) * density * 1.1) + 16))
        walk = position + np.cumsum(gaps, dtype=np.int64)
        found.append(walk[walk < cells])
        position = int(walk[-1])
    return from_flat(np.concatenate(found), columns)


def dense_bernoulli_gaussian(
    rows: int, columns: int, density: float, rng: np.random.Generator, scale: float = 1.0
) -> np.ndarray:
    """Returns M * V as a dense float32 matrix, with M_ij ~ Bernoulli(density) and V_ij ~ N(0,
    scale**2).

    About one in 13 million float32 draws is exactly 0 and would count as no connection, which an
    ESN+i would not train. It is replaced by 1e-30 [ours].
    """
    values = rng.standard_normal((rows, columns), dtype=np.float32) * np.float32(scale)
    for row in values:  # a row at a time: the mask of a whole matrix would double its memory
        row[row == 0] = 1e-30
        row[rng.random(columns, dtype=np.float32) >= density] = 0
    return values


def undirected_positions(
    first: np.ndarray, second: np.ndarray, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the positions of undirected edges between the units `first` and `second` (edges,),
    both ways each."""
    return from_flat(np.sort(np.concatenate([first * size + second, second * size + first])), size)


def from_flat(flat: np.ndarray, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns (row, column) of the int64 numbers row * columns + column."""
    return (flat // columns).astype(np.int32), (flat % columns).astype(np.int32)


def largest_poisson_count(mean: float, draws: int) -> float:
    """Estimates the largest of `draws` Poisson counts: where Bernstein's bound on the tail is 1 /
    draws."""
    tail = math.log(draws)
    return mean + math.sqrt(2 * mean * tail) + tail / 3 if mean else 0.0
