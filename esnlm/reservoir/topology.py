"""Topologies: which units of a reservoir are connected. A subclass registers itself by its `kind`.

The base class comes first, then the drawn topologies, those of users (a function,
`esnlm.topology`, or a matrix from Python), and last random matrices. Positions of nonzeros are
drawn without building the matrix: two int32 arrays (row, column), sorted by row, then by column,
without duplicates. Time and memory are proportional to the nonzeros (times a logarithm if they are
sorted).
"""

import dataclasses
import inspect
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import scipy.sparse

from esnlm.base.errors import InputError
from esnlm.base.settings import Count, Fraction, Natural, Positive, settings
from esnlm.reservoir.arrays import checked_matrix

CHUNK = 1 << 22  # gaps drawn at a time, so that 2^20 units need little more than their nonzeros
TOPOLOGIES: dict[str, type["Topology"]] = {}  # by the kind that a configuration names


class Connections(NamedTuple):
    """The nonzeros of W_rec before scaling: entry (row, column) feeds unit `row` from `column`.

    Sorted as by np.lexsort((column, row)), without duplicates.
    """

    row: np.ndarray  # (nonzeros,) int32
    column: np.ndarray  # (nonzeros,) int32
    value: np.ndarray | None = None  # (nonzeros,) float32; None: drawn from N(0, 1)

    def values(self, rng: np.random.Generator) -> np.ndarray:
        """Returns the values, (nonzeros,) float32, drawing them if the topology sets none."""
        if self.value is not None:
            return self.value
        return rng.standard_normal(len(self.row), dtype=np.float32)


@dataclass(frozen=True)
class Topology(ABC):
    """Decides which units of a reservoir are connected.

    Decorate a subclass with `settings` (esnlm/base/settings.py). Its fields are the settings of
    model.reservoir.topology; the first one, `kind`, is its name there. docs/extending.md has an
    example.

    In all methods `state_size` is the number of units N, and `density` is the share of nonzeros
    from the reservoir's settings (`connectivity`, or mean_degree / N), which only a topology with
    `has_own_density` False uses.
    """

    kind: str

    has_own_density: ClassVar[bool] = True
    spectral_radius: ClassVar[float | None] = None  # of W_rec before scaling, if known exactly

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        if kind := cls.__dict__.get("kind"):
            TOPOLOGIES[kind] = cls

    @abstractmethod
    def connect(self, state_size: int, density: float, rng: np.random.Generator) -> Connections:
        """Draws the nonzeros of W_rec before scaling."""

    @abstractmethod
    def entries(self, state_size: int, density: float) -> float:
        """Returns the expected number of nonzeros of W_rec."""

    def check(self, state_size: int) -> None:  # noqa: B027 (not every topology has a check)
        """Raises ValueError, beginning with a setting's name, for settings unfit for this size."""

    def dense(self, state_size: int, density: float, rng: np.random.Generator) -> np.ndarray:
        """Draws W_rec before scaling as a dense matrix, (N, N) float32."""
        connections = self.connect(state_size, density, rng)
        w_rec = np.zeros((state_size, state_size), np.float32)
        w_rec[connections.row, connections.column] = connections.values(rng)
        return w_rec


@settings
class ErdosRenyi(Topology):
    """Each connection exists with the same probability, independently of the others (Ueda et al.
    2025a, section 2.1): the connectivity of the reservoir."""

    kind: str = "erdos_renyi"

    has_own_density: ClassVar[bool] = False

    def connect(self, state_size: int, density: float, rng: np.random.Generator) -> Connections:
        return Connections(*bernoulli_positions(state_size, state_size, density, rng))

    def dense(self, state_size: int, density: float, rng: np.random.Generator) -> np.ndarray:
        # Drawing positions would take twice the memory of the dense matrix.
        return dense_bernoulli_gaussian(state_size, state_size, density, rng)

    def entries(self, state_size: int, density: float) -> float:
        return density * state_size**2


@settings
class FixedInDegree(Topology):
    """Every unit receives input from exactly `degree` units, a set drawn uniformly at random."""

    kind: str = "fixed_in_degree"
    degree: Count = 32  # nonzeros per row

    def check(self, state_size: int) -> None:
        if self.degree > state_size:
            raise ValueError(
                f"degree is {self.degree}: it must be at most the state size, {state_size}"
            )

    def connect(self, state_size: int, density: float, rng: np.random.Generator) -> Connections:
        # Draws missing columns with replacement and drops repetitions until every row is complete.
        # Every step treats all columns alike, so every set of columns is equally likely. If
        # `degree` is above half of the units, the columns to leave out are drawn instead.
        size = state_size
        drawn = min(self.degree, size - self.degree)
        flat, lacking = np.empty(0, np.int64), np.full(size, drawn)
        while lacking.any():
            row = np.repeat(np.arange(size), lacking)
            flat = np.sort(np.concatenate([flat, row * size + rng.integers(size, size=len(row))]))
            flat = flat[np.diff(flat, prepend=-1) > 0]  # np.unique takes ten times as long
            lacking = drawn - np.bincount(flat // size, minlength=size)
        if drawn < self.degree:
            left_out = np.zeros(size * size, bool)  # no larger than the result
            left_out[flat] = True
            flat = np.flatnonzero(~left_out)
        return Connections(*positions_from_flat(flat, size))

    def entries(self, state_size: int, density: float) -> float:
        return self.degree * state_size


@settings
class BlockDiagonal(Topology):
    """Equal blocks along the diagonal, each an Erdos-Renyi graph."""

    kind: str = "block_diagonal"
    blocks: Count = 8  # number of blocks of equal size; it must divide the state size
    mean_degree: Positive = 32.0  # mean nonzeros per row and column of a block

    def check(self, state_size: int) -> None:
        if state_size % self.blocks:
            raise ValueError(
                f"blocks is {self.blocks}: it must divide the state size, {state_size}"
            )
        if self.mean_degree > state_size // self.blocks:
            raise ValueError(
                f"mean_degree is {self.mean_degree}: a block has {state_size // self.blocks} units"
            )

    def connect(self, state_size: int, density: float, rng: np.random.Generator) -> Connections:
        width = state_size // self.blocks
        row, column = bernoulli_positions(state_size, width, self.mean_degree / width, rng)
        return Connections(row, column + row // width * width)

    def entries(self, state_size: int, density: float) -> float:
        return self.mean_degree * state_size


@settings
class SmallWorld(Topology):
    """A ring lattice with some edges rewired, both ways each (Watts and Strogatz 1998)."""

    kind: str = "small_world"
    degree: Count = 32  # neighbours of each unit on the lattice, an even number [k]
    rewiring: Fraction = 0.1  # probability that an edge is rewired [beta]

    def check(self, state_size: int) -> None:
        if self.degree % 2 or self.degree >= state_size:
            raise ValueError(
                f"degree is {self.degree}: it must be even and below the state size, {state_size}"
            )

    def connect(self, state_size: int, density: float, rng: np.random.Generator) -> Connections:
        # Links every unit with its degree / 2 nearest on either side of a ring. Then, edge by edge,
        # nearest neighbours first, the far end moves with probability `rewiring` to a unit drawn
        # uniformly from those without an edge to the near end: networkx.watts_strogatz_graph.
        size = state_size
        unit = np.arange(size)
        near = np.tile(unit, self.degree // 2)
        far = np.concatenate(
            [(unit + distance) % size for distance in range(1, self.degree // 2 + 1)]
        )
        edges = set((np.minimum(near, far) * size + np.maximum(near, far)).tolist())
        degrees = [self.degree] * size
        # ten times as fast as NumPy for one number at a time
        uniform = random.Random(int(rng.integers(2**63))).random
        for edge in np.flatnonzero(rng.random(len(near)) < self.rewiring).tolist():
            u, v = int(near[edge]), int(far[edge])
            if degrees[u] == size - 1:  # no unit is left to move to
                continue
            w = u
            while w == u or min(u, w) * size + max(u, w) in edges:
                w = int(uniform() * size)
            edges.remove(min(u, v) * size + max(u, v))
            edges.add(min(u, w) * size + max(u, w))
            degrees[v] -= 1
            degrees[w] += 1
            far[edge] = w
        return _undirected(near, far, size)

    def entries(self, state_size: int, density: float) -> float:
        return self.degree * state_size


@settings
class ScaleFree(Topology):
    """Units join one by one and prefer those with many edges, both ways each (Barabasi and Albert
    1999)."""

    kind: str = "scale_free"
    # edges added with each joining unit; the mean degree is about twice this number [m]
    edges: Count = 16

    def check(self, state_size: int) -> None:
        if self.edges >= state_size:
            raise ValueError(
                f"edges is {self.edges}: it must be below the state size, {state_size}"
            )

    def connect(self, state_size: int, density: float, rng: np.random.Generator) -> Connections:
        # Starts from a star of `edges` + 1 units. Each new unit draws units by degree until `edges`
        # of them differ, and links to these: networkx.barabasi_albert_graph.
        uniform = random.Random(int(rng.integers(2**63))).random
        # The ends of all edges: each unit occurs as often as its degree.
        ends = [0] * self.edges + list(range(1, self.edges + 1))
        for unit in range(self.edges + 1, state_size):
            chosen: set[int] = set()
            while len(chosen) < self.edges:
                chosen.add(ends[int(uniform() * len(ends))])
            ends += [*chosen, *[unit] * self.edges]
        old, new = np.array(ends).reshape(-1, 2, self.edges).swapaxes(0, 1).reshape(2, -1)
        return _undirected(old, new, state_size)

    def entries(self, state_size: int, density: float) -> float:
        return 2 * self.edges * (state_size - self.edges)


def _undirected(first: np.ndarray, second: np.ndarray, size: int) -> Connections:
    """Connects the units `first` and `second` (edges,) both ways."""
    flat = np.concatenate([first * size + second, second * size + first])
    return Connections(*positions_from_flat(np.sort(flat), size))


@settings
class Ring(Topology):
    """Unit i feeds unit i + 1 and the last unit the first, all with one weight (Rodan and Tino
    2011, simple cycle)."""

    kind: str = "ring"

    spectral_radius: ClassVar[float | None] = 1.0

    def connect(self, state_size: int, density: float, rng: np.random.Generator) -> Connections:
        row = np.arange(state_size, dtype=np.int32)
        return Connections(row, (row - 1) % state_size, np.ones(state_size, np.float32))

    def entries(self, state_size: int, density: float) -> float:
        return state_size


@settings
class Orthogonal(Topology):
    """A sparse matrix with W W^T = I [ours]; degree 1 is a permutation with random signs."""

    kind: str = "orthogonal"
    degree: Count = 32  # nonzeros per row, a power of 2

    spectral_radius: ClassVar[float | None] = 1.0

    def check(self, state_size: int) -> None:
        if self.degree > state_size or self.degree.bit_count() != 1:
            raise ValueError(
                f"degree is {self.degree}: it must be a power of 2 and at most the state size,"
                f" {state_size}"
            )

    def connect(self, state_size: int, density: float, rng: np.random.Generator) -> Connections:
        # W = G_L ... G_2 G_1 P with L = log2(degree). P is a permutation with random signs. Each G
        # pairs all rows at random (an odd one stays out) and rotates each pair by an angle
        # ~ U(0, 2 pi), a Givens rotation. Each G doubles the nonzeros of a row, so rows have
        # `degree` of them, except a share below degree^2 / (2 N), in which paths meet.
        shape = state_size, state_size
        signs = rng.choice([-1.0, 1.0], state_size)
        positions = np.arange(state_size), rng.permutation(state_size)
        w = scipy.sparse.csr_array((signs, positions), shape=shape)
        for _ in range(self.degree.bit_length() - 1):
            order = rng.permutation(state_size)
            pairs = state_size // 2
            a, b, unpaired = order[:pairs], order[pairs : 2 * pairs], order[2 * pairs :]
            angle = rng.uniform(0, 2 * np.pi, pairs)
            cosine, sine = np.cos(angle), np.sin(angle)
            values = np.concatenate([cosine, -sine, sine, cosine, np.ones(len(unpaired))])
            positions = (
                np.concatenate([a, a, b, b, unpaired]),
                np.concatenate([a, b, a, b, unpaired]),
            )
            w = scipy.sparse.csr_array((values, positions), shape=shape) @ w
        w.sort_indices()
        return _from_scipy(w.tocoo())

    def entries(self, state_size: int, density: float) -> float:
        row = 1.0  # entries; two rotated rows share row (row - 1) / (N - 1) columns
        for _ in range(self.degree.bit_length() - 1):
            paired = state_size // 2 * 2 / state_size
            row += paired * (row - row * (row - 1) / (state_size - 1))
        return row * state_size


@settings
class Antisymmetric(Topology):
    """W = V - V^T, whose eigenvalues are imaginary (Gallicchio 2024), on the edges of an undirected
    Erdos-Renyi graph. The paper's V is dense and uniform; here it is sparse and normal [ours]."""

    kind: str = "antisymmetric"
    mean_degree: Positive = 32.0  # mean nonzeros per row and column

    def check(self, state_size: int) -> None:
        if self.mean_degree > state_size - 1:
            raise ValueError(
                f"mean_degree is {self.mean_degree}: it must be below the state size, {state_size}"
            )

    def connect(self, state_size: int, density: float, rng: np.random.Generator) -> Connections:
        row, column = bernoulli_positions(
            state_size, state_size, self.mean_degree / (state_size - 1), rng
        )
        upper = row < column  # one position of each pair
        row, column = row[upper].astype(np.int64), column[upper].astype(np.int64)
        value = rng.standard_normal(len(row), dtype=np.float32)  # the other position has -value
        flat = np.concatenate([row * state_size + column, column * state_size + row])
        order = np.argsort(flat)
        return Connections(
            *positions_from_flat(flat[order], state_size), np.concatenate([value, -value])[order]
        )

    def entries(self, state_size: int, density: float) -> float:
        return self.mean_degree * state_size


@settings
class FromMatrix(Topology):
    """W_rec is a matrix from Python (docs/library.md). The run stores it in `frozen/`; no seed
    redraws it."""

    kind: str = "from_matrix"
    nonzeros: Natural = 0  # number of nonzeros of W_rec

    def connect(self, state_size: int, density: float, rng: np.random.Generator) -> Connections:
        raise InputError(
            "model.reservoir.topology.kind is from_matrix: no seed draws this W_rec, a matrix from"
            " Python; choose another kind, or restore the run with its folder frozen/"
        )

    def entries(self, state_size: int, density: float) -> float:
        return self.nonzeros


Function = TypeVar("Function", bound=Callable)


class FunctionTopology(Topology):
    """The topology of a registered function, whose further arguments are the fields of a
    subclass."""

    kind = ""
    function: ClassVar[Callable]

    @property
    def arguments(self) -> dict[str, Any]:
        """The further arguments of the function."""
        return {each.name: getattr(self, each.name) for each in dataclasses.fields(self)[1:]}

    def connect(self, state_size: int, density: float, rng: np.random.Generator) -> Connections:
        matrix = type(self).function(state_size, rng, **self.arguments)
        name = f"the matrix of topology {self.kind}"
        return _from_scipy(checked_matrix(name, matrix, (state_size, state_size)))

    def entries(self, state_size: int, density: float) -> float:
        return _count_entries(self, state_size)

    # The class is in no module, so a pickle names the function like a configuration.
    def __reduce__(self) -> tuple:
        return _find, (self.kind, self.arguments)


def topology(function: Function) -> Function:
    """Decorator that registers a topology under the function's own name, for use in configurations.

    Args:
        function: (state_size, rng, ...) -> the matrix before scaling to the spectral radius, (N,
            N), of NumPy or SciPy. Entry (i, j) is the weight from unit j to unit i. `rng`, a
            numpy.random.Generator, must be the only source of randomness. Further arguments need
            defaults and become settings of the topology.

    Raises:
        InputError: the package has a topology of this name, or a further argument has no default,
            or a mutable default such as a list.

    Example:
        @esnlm.topology
        def chain(state_size, rng, weight: float = 1.0):     # a ring: unit i feeds unit i + 1
            return weight * np.roll(np.eye(state_size), 1, axis=0)
    """
    register(function.__name__, function)
    return function


def register(name: str, function: Callable) -> type[Topology]:
    """Makes a topology from a function and registers it under a name."""
    known = TOPOLOGIES.get(name)
    if known is not None and not issubclass(known, FunctionTopology):
        raise InputError(f"topology {name}: esnlm has one of this name; choose another name")
    defaults: dict[str, Any] = {}
    types: dict[str, Any] = {"kind": str}
    for argument in list(inspect.signature(function).parameters.values())[2:]:
        default, annotation = argument.default, argument.annotation
        if default is argument.empty or not isinstance(default, Hashable):
            raise InputError(
                f"topology {name}: give argument {argument.name} a default, such as a number or a"
                " tuple"
            )
        if annotation is argument.empty or isinstance(annotation, str):
            annotation = type(default)
        defaults[argument.name], types[argument.name] = default, annotation
    members = {"kind": name, "function": staticmethod(function), "__annotations__": types}
    TOPOLOGIES.pop(name, None)
    return settings(type(f"topology_{name}", (FunctionTopology,), members | defaults))


def _find(name: str, arguments: dict[str, Any]) -> Topology:
    if name not in TOPOLOGIES:
        raise InputError(
            f"topology {name} is not registered here: write @esnlm.topology above its def first"
        )
    return TOPOLOGIES[name](**arguments)


@lru_cache(maxsize=64)
def _count_entries(topology: FunctionTopology, state_size: int) -> float:
    """Returns the nonzeros of one draw, as a function does not declare their number."""
    return len(topology.connect(state_size, 0.0, np.random.default_rng(0)).row)


def _from_scipy(matrix: scipy.sparse.coo_array) -> Connections:
    """Returns the connections of a matrix (N, N) sorted by row, then by column."""
    row, column = matrix.coords
    return Connections(
        row.astype(np.int32), column.astype(np.int32), matrix.data.astype(np.float32)
    )


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
