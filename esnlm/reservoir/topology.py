"""Who is connected to whom: the nonzero positions of a sparse matrix, built without the matrix.

A builder gives (row, column): two int32 arrays of the same length, sorted by row, then by column, without duplicates.
Row i holds the units that feed unit i. Time and memory go with the nonzeros (times a logarithm, where they are sorted).
W_rec's topology is named by one of the dataclasses in TOPOLOGIES and drawn by `draw_recurrent`. Each tells for N units
how many entries W_rec will have, and about how many its fullest row.
"""

import math
import random
from dataclasses import dataclass

import numpy as np
import scipy.sparse

from esnlm.errors import require

# Gaps are drawn this many at a time, so that 2**20 units need no more memory than their nonzeros do.
CHUNK = 1 << 22


@dataclass(frozen=True)
class ErdosRenyi:
    """Every connection is there with the same probability, independently (S1): the reservoir's connectivity."""

    kind: str = "erdos_renyi"


@dataclass(frozen=True)
class FixedInDegree:
    """Every unit is fed by the same number of units, drawn uniformly."""

    kind: str = "fixed_in_degree"
    degree: int = 32  # nonzeros a row

    def check(self, field: str, state_size: int) -> None:
        holds = 1 <= self.degree <= state_size
        require(
            holds, f"{field}.degree is {self.degree}: it must be at least 1 and at most the state size, {state_size}"
        )

    def entries(self, state_size: int) -> float:
        return self.degree * state_size

    def longest_row(self, state_size: int) -> float:
        return self.degree


@dataclass(frozen=True)
class Ring:
    """Unit i feeds unit i + 1, the last the first, all with one weight: the simple cycle of Rodan and Tino (2011)."""

    kind: str = "ring"

    def check(self, field: str, state_size: int) -> None:
        pass

    def entries(self, state_size: int) -> float:
        return state_size

    def longest_row(self, state_size: int) -> float:
        return 1


@dataclass(frozen=True)
class SmallWorld:
    """Watts and Strogatz (1998): a ring lattice with some of its edges rewired. An edge goes both ways."""

    kind: str = "small_world"
    degree: int = 32  # neighbours on the lattice [k]
    rewiring: float = 0.1  # probability that an edge is rewired [beta]

    def check(self, field: str, state_size: int) -> None:
        holds = self.degree >= 2 and self.degree % 2 == 0 and self.degree < state_size
        require(
            holds,
            f"{field}.degree is {self.degree}: it must be even, at least 2 and below the state size, {state_size}",
        )
        require(0 <= self.rewiring <= 1, f"{field}.rewiring is {self.rewiring}: it must be in [0, 1]")

    def entries(self, state_size: int) -> float:
        return self.degree * state_size

    def longest_row(self, state_size: int) -> float:
        rewired = self.rewiring * self.degree / 2  # edges that a unit loses and, on average, gains
        return self.degree - rewired + largest_count(rewired, state_size)


@dataclass(frozen=True)
class ScaleFree:
    """Barabasi and Albert (1999): units join one by one and prefer those with many edges. An edge goes both ways."""

    kind: str = "scale_free"
    edges: int = 16  # that a joining unit brings [m]; the mean degree is about twice that

    def check(self, field: str, state_size: int) -> None:
        holds = 1 <= self.edges < state_size
        require(holds, f"{field}.edges is {self.edges}: it must be at least 1 and below the state size, {state_size}")

    def entries(self, state_size: int) -> float:
        return 2 * self.edges * (state_size - self.edges)

    def longest_row(self, state_size: int) -> float:
        # The star's centre k: nearly every unit links to it up to k = 2 m at t = 2 m, then dk/dt = k / 2t.
        return min(state_size - 1, 2 * math.sqrt(self.edges * state_size))


@dataclass(frozen=True)
class BlockDiagonal:
    """Groups of equal size that do not feed each other, each Erdos-Renyi."""

    kind: str = "block_diagonal"
    blocks: int = 8
    mean_degree: float = 32.0  # mean nonzeros per row and column

    def check(self, field: str, state_size: int) -> None:
        holds = self.blocks >= 1 and state_size % self.blocks == 0
        require(holds, f"{field}.blocks is {self.blocks}: it must divide the state size, {state_size}")
        size = state_size // self.blocks
        holds = 0 < self.mean_degree <= size
        require(
            holds, f"{field}.mean_degree is {self.mean_degree}: it must be above 0 and at most a block's size, {size}"
        )

    def entries(self, state_size: int) -> float:
        return self.mean_degree * state_size

    def longest_row(self, state_size: int) -> float:
        return min(state_size // self.blocks, largest_count(self.mean_degree, state_size))


@dataclass(frozen=True)
class Orthogonal:
    """A sparse matrix with W W^T = I; degree 1 is a permutation with random signs."""

    kind: str = "orthogonal"
    degree: int = 32  # nonzeros a row

    def check(self, field: str, state_size: int) -> None:
        holds = 1 <= self.degree <= state_size and self.degree.bit_count() == 1
        require(
            holds, f"{field}.degree is {self.degree}: it must be a power of 2 and at most the state size, {state_size}"
        )

    def entries(self, state_size: int) -> float:
        row = 1.0  # entries; of two rows that are rotated, row (row - 1) / (N - 1) stand in the same columns
        for _ in range(self.degree.bit_length() - 1):
            paired = state_size // 2 * 2 / state_size
            row += paired * (row - row * (row - 1) / (state_size - 1))
        return row * state_size

    def longest_row(self, state_size: int) -> float:
        return self.degree


Structured = FixedInDegree | Ring | SmallWorld | ScaleFree | BlockDiagonal | Orthogonal
Topology = ErdosRenyi | Structured
TOPOLOGIES = {
    "erdos_renyi": ErdosRenyi,
    "fixed_in_degree": FixedInDegree,
    "ring": Ring,
    "small_world": SmallWorld,
    "scale_free": ScaleFree,
    "block_diagonal": BlockDiagonal,
    "orthogonal": Orthogonal,
}


def draw_recurrent(
    topology: Structured, state_size: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """The nonzeros of W_rec before it is scaled: (row, column, value), in any topology but ErdosRenyi.

    `value` (nonzeros,) float32 is given where the topology fixes it (ring, orthogonal); the spectral radius is then
    exactly 1. Else it is None, and values are the caller's to draw.

    Raises:
        InputError: the topology cannot be had at this size.
    """
    topology.check("topology", state_size)
    match topology:
        case FixedInDegree():
            return *fixed_in_degree(state_size, topology.degree, rng), None
        case Ring():
            row, column = ring(state_size)
            return row, column, np.ones(state_size, np.float32)
        case SmallWorld():
            return *small_world(state_size, topology.degree, topology.rewiring, rng), None
        case ScaleFree():
            return *scale_free(state_size, topology.edges, rng), None
        case BlockDiagonal():
            return *block_diagonal(state_size, topology.blocks, topology.mean_degree, rng), None
        case Orthogonal():
            return orthogonal(state_size, topology.degree, rng)


def largest_count(mean: float, draws: int) -> float:
    """About the largest of so many Poisson counts: where Bernstein's bound on the tail falls to 1 / draws."""
    tail = math.log(draws)
    return mean + math.sqrt(2 * mean * tail) + tail / 3 if mean else 0.0


def erdos_renyi(
    rows: int, columns: int, connectivity: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the ones of M, M_ij ~ Bernoulli(gamma) independently (S1, eq. 2 and 3).

    The matrix is walked in row-major order by the gaps between its ones, which are geometric with parameter gamma:
    exactly the Bernoulli distribution, in time and memory proportional to the ones. The walk counts in int64,
    because rows * columns passes 2**31 at 42,731 units and GPT-2's vocabulary.
    """
    cells = rows * columns
    if connectivity >= 1:
        return _split(np.arange(cells, dtype=np.int64), columns)
    position, found = -1, []
    while position < cells:
        gaps = rng.geometric(connectivity, size=min(CHUNK, int((cells - position) * connectivity * 1.1) + 16))
        walk = position + np.cumsum(gaps, dtype=np.int64)
        found.append(walk[walk < cells])
        position = int(walk[-1])
    return _split(np.concatenate(found), columns)


def fixed_in_degree(size: int, degree: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Exactly `degree` distinct columns in every row, every set of that many equally likely.

    A row draws what it lacks with replacement and drops repetitions until it lacks nothing. No step tells one column
    from another, so neither does the result.
    """
    drawn = min(degree, size - degree)  # the columns of a row, or where they are more than half, those it leaves out
    flat, lacking = np.empty(0, np.int64), np.full(size, drawn)
    while lacking.any():
        row = np.repeat(np.arange(size), lacking)
        flat = np.sort(np.concatenate([flat, row * size + rng.integers(size, size=len(row))]))
        flat = flat[np.diff(flat, prepend=-1) > 0]  # np.unique takes ten times as long
        lacking = drawn - np.bincount(flat // size, minlength=size)
    if drawn < degree:
        left_out = np.zeros(size * size, bool)  # no larger than the result
        left_out[flat] = True
        flat = np.flatnonzero(~left_out)
    return _split(flat, size)


def ring(size: int) -> tuple[np.ndarray, np.ndarray]:
    """W[i + 1, i] for all i, and W[0, size - 1]."""
    row = np.arange(size, dtype=np.int32)
    return row, (row - 1) % size


def small_world(size: int, degree: int, rewiring: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Every unit linked with its degree / 2 nearest on either side of a ring, then rewired (Watts and Strogatz 1998).

    Edge by edge, nearest neighbours first, with probability `rewiring` the far end moves to a unit drawn uniformly from
    those that its near end has no edge with: the graph of networkx.watts_strogatz_graph.
    """
    unit = np.arange(size)
    near = np.tile(unit, degree // 2)
    far = np.concatenate([(unit + distance) % size for distance in range(1, degree // 2 + 1)])
    edges = set((np.minimum(near, far) * size + np.maximum(near, far)).tolist())
    degrees = [degree] * size
    coin = random.Random(int(rng.integers(2**63)))  # for one number at a time a tenth of NumPy's time
    for edge in np.flatnonzero(rng.random(len(near)) < rewiring).tolist():
        u, v = int(near[edge]), int(far[edge])
        if degrees[u] == size - 1:  # no unit is left to move to
            continue
        w = u
        while w == u or min(u, w) * size + max(u, w) in edges:
            w = int(coin.random() * size)
        edges.remove(min(u, v) * size + max(u, v))
        edges.add(min(u, w) * size + max(u, w))
        degrees[v] -= 1
        degrees[w] += 1
        far[edge] = w
    return _both_ways(near, far, size)


def scale_free(size: int, edges: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """From a star of `edges` + 1 units on, each new unit links to `edges` others (Barabasi and Albert 1999).

    It draws them by their degree until so many differ: the graph of networkx.barabasi_albert_graph. The largest degree
    grows as the square root of the size, so rows padded to the longest (sparse.py, "ell") cost many times their entries.
    """
    coin = random.Random(int(rng.integers(2**63)))
    ends = [0] * edges + list(range(1, edges + 1))  # of all edges: a unit stands here as often as its degree says
    for unit in range(edges + 1, size):
        chosen = set()
        while len(chosen) < edges:
            chosen.add(ends[int(coin.random() * len(ends))])
        ends.extend(chosen)
        ends.extend([unit] * edges)
    old, new = np.array(ends).reshape(-1, 2, edges).swapaxes(0, 1).reshape(2, -1)
    return _both_ways(old, new, size)


def block_diagonal(
    size: int, blocks: int, mean_degree: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """`blocks` equal blocks along the diagonal, each Erdos-Renyi within."""
    width = size // blocks
    row, column = erdos_renyi(size, width, mean_degree / width, rng)
    return row, column + row // width * width


def orthogonal(size: int, degree: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(row, column, value) of a sparse W with W W^T = I to float32, value float32.

    W = G_L ... G_2 G_1 P with L = log2(degree): P is a permutation with random signs, and each G pairs all rows at
    random (an odd one stays out) and rotates each pair by an angle ~ U(0, 2 pi), a Givens rotation. A layer doubles the
    nonzeros of a row, so rows have `degree` of them, save less than a share of degree^2 / (2 size) in which paths meet.
    """
    rows = np.arange(size)
    signs = rng.choice([-1.0, 1.0], size)
    w = scipy.sparse.csr_array((signs, (rows, rng.permutation(size))), shape=(size, size))
    for _ in range(degree.bit_length() - 1):
        order = rng.permutation(size)
        a, b, alone = order[: size // 2], order[size // 2 : size // 2 * 2], order[size // 2 * 2 :]
        angle = rng.uniform(0, 2 * np.pi, len(a))
        cosine, sine = np.cos(angle), np.sin(angle)
        values = np.concatenate([cosine, -sine, sine, cosine, np.ones(len(alone))])
        positions = np.concatenate([a, a, b, b, alone]), np.concatenate([a, b, a, b, alone])
        w = scipy.sparse.csr_array((values, positions), shape=(size, size)) @ w
    w.sort_indices()
    row = np.repeat(rows, np.diff(w.indptr))
    return row.astype(np.int32), w.indices.astype(np.int32), w.data.astype(np.float32)


def _both_ways(first: np.ndarray, second: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The positions of undirected edges, int64."""
    return _split(np.sort(np.concatenate([first * size + second, second * size + first])), size)


def _split(flat: np.ndarray, columns: int) -> tuple[np.ndarray, np.ndarray]:
    return (flat // columns).astype(np.int32), (flat % columns).astype(np.int32)
