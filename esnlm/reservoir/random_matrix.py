"""Random matrices: positions of nonzeros, drawn without building the matrix, and dense matrices.

Positions are (row, column): two int32 arrays of the same length, sorted by row, then by column,
without duplicates. Time and memory are proportional to the nonzeros (times a logarithm if they are
sorted).
"""

import numpy as np

CHUNK = 1 << 22  # gaps drawn at a time, so that 2^20 units need little more than their nonzeros


def bernoulli_positions(
    rows: int, columns: int, density: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draws the ones of M, M_ij ~ Bernoulli(density) independently (Ueda et al. 2025a, eq. 2, 3).

    The matrix is walked in row-major order by the gaps between its ones, which are geometric with
    parameter `density`. The walk counts in int64: rows * columns passes 2^31 at 42,731 units and
    GPT-2's vocabulary.
    """
    cells = rows * columns
    if density >= 1:
        return positions_from_flat(np.arange(cells, dtype=np.int64), columns)
    position, parts = -1, []
    while position < cells:
        gaps = rng.geometric(density, size=min(CHUNK, int((cells - position) * density * 1.1) + 16))
        walk = position + np.cumsum(gaps, dtype=np.int64)
        parts.append(walk[walk < cells])
        position = int(walk[-1])
    return positions_from_flat(np.concatenate(parts), columns)


def dense_bernoulli_gaussian(
    rows: int, columns: int, density: float, rng: np.random.Generator, scale: float = 1.0
) -> np.ndarray:
    """Draws M * V, float32, with M_ij ~ Bernoulli(density) and V_ij ~ N(0, scale^2).

    About one in 13 million float32 draws is exactly 0 and would count as no connection, which an
    ESN+i would not train. It is replaced by 1e-30 [ours].
    """
    values = rng.standard_normal((rows, columns), dtype=np.float32) * np.float32(scale)
    for row in values:  # a row at a time: the mask of a whole matrix would double its memory
        row[row == 0] = 1e-30
        row[rng.random(columns, dtype=np.float32) >= density] = 0
    return values


def positions_from_flat(flat: np.ndarray, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns (row, column) of the int64 numbers row * columns + column."""
    return (flat // columns).astype(np.int32), (flat % columns).astype(np.int32)
