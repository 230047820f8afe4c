"""The parts of a reservoir as people give them: checked, in the form in which a reservoir holds them."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse
from jax.experimental.sparse import BCOO

from esnlm.errors import InputError, require
from esnlm.reservoir import functions
from esnlm.reservoir.arrays import Matrix, as_scipy, bcoo, checked_matrix
from esnlm.reservoir.spectrum import spectral_radius
from esnlm.reservoir.topology import TOPOLOGIES, Topology
from esnlm.reservoir.topology.function import FunctionTopology, is_hashable, register
from esnlm.reservoir.weights import DENSE_FROM, ReservoirConfig
from esnlm.rng import Stream, seed_sequence
from esnlm.settings import build

Shown: TypeAlias = scipy.sparse.csr_array | np.ndarray  # sparse, or dense from a connectivity of 1/4 on


def refuse_anonymous(settings: ReservoirConfig, done: str) -> None:
    """Raises InputError where a reservoir has a function that no other process could find by its name."""
    for kind in ("activation", "update_rule"):
        name = getattr(settings, kind)
        if functions.is_anonymous(name):
            raise InputError(
                f"{kind} is a function that is not registered, {name}: it cannot be {done}; write @esnlm.{kind} above its"
                " def, and do the same in each program that loads it"
            )


def topology_of(given: str | Topology | dict | Callable) -> tuple[Topology, bool]:
    """Returns a topology, and whether it is a function that is not registered."""
    if isinstance(given, Topology):
        return given, False
    if isinstance(given, str | dict):
        kind: Any = given if isinstance(given, str) else given.get("kind")
        names = [name for name in TOPOLOGIES if name != "given"]
        require(kind in names, f"topology is {kind!r}: choose {', '.join(names)}, or give a function")
        settings = {} if isinstance(given, str) else {key: value for key, value in given.items() if key != "kind"}
        known = [each.name for each in dataclasses.fields(TOPOLOGIES[kind])[1:]]
        for key in settings:
            require(key in known, f"topology {kind} has no setting {key!r}: choose {', '.join(known) or 'none'}")
        made: Any = TOPOLOGIES[kind]
        if issubclass(made, FunctionTopology):  # whose arguments may be anything hashable
            settings = {key: _as_tuples(value) for key, value in settings.items()}
            for key, value in settings.items():
                line = f"topology {kind}: {key} is {value!r}: give a number, a text, or a tuple of them"
                require(is_hashable(value), line)
            return made(**settings), False
        return build(made, settings, "topology."), False
    require(callable(given), f"topology is {given!r}: give a name, settings or a function")
    known_topology: Any
    for kind, known_topology in TOPOLOGIES.items():
        if getattr(known_topology, "function", None) is given and not functions.is_anonymous(kind):
            return known_topology(), False
    own: Any = register(f"<{getattr(given, '__name__', 'function').strip('<>')}>", given)
    return own(), True


def _as_tuples(value: Any) -> Any:
    """Returns a tuple for a list, also within another one."""
    return tuple(map(_as_tuples, value)) if isinstance(value, list | tuple) else value


def has_own_density(given: str | Topology | dict | Callable) -> bool:
    """Returns whether a topology decides itself how many nonzeros W_rec has, as every function does."""
    return not isinstance(given, str | Topology | dict) or topology_of(given)[0].has_own_density


def interval(leak: Any) -> tuple[float, float]:
    """Returns the ends of the interval that leaks are drawn from."""
    ends = (leak, leak) if np.ndim(leak) == 0 else tuple(leak)
    numbers = all(np.ndim(end) == 0 and np.asarray(end).dtype.kind in "fiub" for end in ends)
    require(numbers, f"leak is {leak!r}: give one number, or the two ends of an interval")
    require(
        len(ends) == 2,
        f"leak is {leak!r}: give one number, or the two ends of an interval; replace(leak=...) sets each",
    )
    low, high = float(ends[0]), float(ends[1])
    require(0 <= low <= high <= 1, f"leak is {leak!r}: it must lie within 0 .. 1, the lower end first")
    return low, high


def leaks(leak: Any, size: int) -> np.ndarray:
    """Returns the leak of each unit, (N,) float32."""
    a = np.asarray(leak, np.float32)
    require(a.shape in ((), (size,)), f"leak has the shape {a.shape}: it must be one number, or ({size},)")
    require(bool(((a >= 0) & (a <= 1)).all()), "leak has a value outside 0 .. 1")
    return np.broadcast_to(a, size).copy()


def matrix_of(name: str, given: Any, rows: int, columns: int) -> Matrix:
    """Returns a matrix of NumPy or SciPy as a reservoir holds it: float32, BCOO or dense."""
    found = checked_matrix(name, given, (rows, columns))
    if found.nnz >= DENSE_FROM * rows * columns:
        return found.toarray()
    return bcoo(found.data, np.stack(found.coords, axis=1).astype(np.int32), (rows, columns))


def nonzeros(matrix: Matrix) -> int:
    """Returns how many entries are not 0."""
    return int(np.count_nonzero(matrix.data if isinstance(matrix, BCOO) else matrix))


def radius(matrix: Matrix) -> float:
    """Returns the spectral radius; the start vector is always the same one."""
    return spectral_radius(as_scipy(matrix), seed=seed_sequence(0, Stream.SPECTRAL_START)).radius


def scaled(matrix: Matrix, asked: float | None) -> tuple[Matrix, float]:
    """Returns W_rec scaled to the spectral radius that is asked for, if it is, and its radius."""
    found = radius(matrix)
    if asked is None:
        return matrix, found
    require(asked > 0, f"spectral_radius is {asked}: it must be above 0")
    require(math.isfinite(asked), f"spectral_radius is {asked}: it must be finite")
    require(found > 0, f"w_rec has the spectral radius 0: it cannot be scaled to {asked}; leave spectral_radius out")
    scale = np.float32(asked / found)
    if isinstance(matrix, BCOO):
        return bcoo(matrix.data * scale, matrix.indices, matrix.shape), asked
    return np.asarray(matrix) * scale, asked


def shown(matrix: Matrix) -> Shown:
    """Returns a copy for people, of SciPy or NumPy."""
    if not isinstance(matrix, BCOO):
        return np.array(matrix)
    row, column = np.asarray(matrix.indices).T
    return scipy.sparse.csr_array((np.asarray(matrix.data), (row, column)), shape=matrix.shape)
