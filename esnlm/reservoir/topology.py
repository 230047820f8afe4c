"""Who is connected to whom: the nonzero positions of a sparse matrix, built without the matrix."""

import numpy as np

# Gaps are drawn this many at a time, so that 2**20 units need no more memory than their nonzeros do.
CHUNK = 1 << 22


def erdos_renyi(rows: int, columns: int, connectivity: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the ones of M, M_ij ~ Bernoulli(gamma) independently (S1, eq. 2 and 3).

    The matrix is walked in row-major order by the gaps between its ones, which are geometric with parameter gamma:
    exactly the Bernoulli distribution, in time and memory proportional to the ones. The walk counts in int64,
    because rows * columns passes 2**31 at 42,731 units and GPT-2's vocabulary.

    Returns (row, column): two int32 arrays of the same length, sorted by row, then by column, without duplicates.
    """
    cells = rows * columns
    if connectivity >= 1:
        flat = np.arange(cells, dtype=np.int64)
        return (flat // columns).astype(np.int32), (flat % columns).astype(np.int32)
    position, found = -1, []
    while position < cells:
        gaps = rng.geometric(connectivity, size=min(CHUNK, int((cells - position) * connectivity * 1.1) + 16))
        walk = position + np.cumsum(gaps, dtype=np.int64)
        found.append(walk[walk < cells])
        position = int(walk[-1])
    flat = np.concatenate(found)
    return (flat // columns).astype(np.int32), (flat % columns).astype(np.int32)
