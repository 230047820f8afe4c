"""A topology made from a function that returns W_rec for a number of units."""

import dataclasses
import inspect
from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any, ClassVar, TypeVar

import numpy as np

from esnlm.errors import InputError
from esnlm.reservoir.arrays import checked_matrix
from esnlm.reservoir.topology.base import TOPOLOGIES, Connections, Topology
from esnlm.settings import settings

Function = TypeVar("Function", bound=Callable)


class FunctionTopology(Topology):
    """The topology of a registered function. The fields of a subclass are the function's further
    arguments."""

    kind = ""
    function: ClassVar[Callable]

    def connect(self, state_size: int, density: float, rng: np.random.Generator) -> Connections:
        given = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)[1:]}
        matrix = type(self).function(state_size, rng, **given)
        found = checked_matrix(
            f"the matrix of topology {self.kind}", matrix, (state_size, state_size)
        )
        row, column = found.coords
        return Connections(row.astype(np.int32), column.astype(np.int32), found.data)

    def entries(self, state_size: int, density: float) -> float:
        return _entries(self, state_size)

    def __reduce__(
        self,
    ) -> tuple:  # The class is in no module, so a pickle names the function like a configuration.
        return _find, (
            self.kind,
            {each.name: getattr(self, each.name) for each in dataclasses.fields(self)[1:]},
        )


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
        def chain(state_size, rng, weight: float = 1.0):     # unit i feeds unit i + 1, and the last
        one the first
            return weight * np.roll(np.eye(state_size), 1, axis=0)
    """
    register(function.__name__, function)
    return function


def register(name: str, function: Callable) -> type[Topology]:
    """Makes a topology from a function and registers it under a name."""
    known = TOPOLOGIES.get(name)
    if known is not None and not issubclass(known, FunctionTopology):
        raise InputError(f"topology {name}: esnlm has one of this name; choose another name")
    namespace: dict[str, Any] = {"kind": name, "function": staticmethod(function)}
    types: dict[str, Any] = {"kind": str}
    for argument in list(inspect.signature(function).parameters.values())[2:]:
        default, annotated = argument.default, argument.annotation
        if default is argument.empty or not isinstance(default, Hashable):
            raise InputError(
                f"topology {name}: give argument {argument.name} a default, such as a number or a"
                " tuple"
            )
        namespace[argument.name] = default
        types[argument.name] = (
            type(default)
            if annotated is argument.empty or isinstance(annotated, str)
            else annotated
        )
    TOPOLOGIES.pop(name, None)
    return settings(
        type(f"topology_{name}", (FunctionTopology,), namespace | {"__annotations__": types})
    )


def _find(name: str, settings: dict[str, Any]) -> Topology:
    """Returns the registered topology of a name."""
    if name not in TOPOLOGIES:
        raise InputError(
            f"topology {name} is not registered here: write @esnlm.topology above its def first"
        )
    found: Any = TOPOLOGIES[name]
    return found(**settings)


@lru_cache(maxsize=64)
def _entries(topology: FunctionTopology, state_size: int) -> float:
    """Returns the nonzeros of one draw, since the function does not tell them."""
    return len(topology.connect(state_size, 0.0, np.random.default_rng(0)).row)
