"""The base class of topologies, and their registry."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from esnlm.reservoir.random_matrix import largest_poisson_count

TOPOLOGIES: dict[str, type["Topology"]] = {}  # by the kind that a configuration names


class Connections(NamedTuple):
    """The nonzeros of W_rec before scaling, sorted by row, then by column, without duplicates.

    Row i holds the units that feed unit i. Callers rely on the order, which is that of
    np.lexsort((column, row)).
    """

    row: np.ndarray  # (nonzeros,) int32
    column: np.ndarray  # (nonzeros,) int32
    value: np.ndarray | None = None  # (nonzeros,) float32; None: drawn from N(0, 1)

    def values(self, rng: np.random.Generator) -> np.ndarray:
        """Returns the values, (nonzeros,) float32, drawing them if the topology gives none."""
        return (
            rng.standard_normal(len(self.row), dtype=np.float32)
            if self.value is None
            else self.value
        )


@dataclass(frozen=True)
class Topology(ABC):
    """Decides which units of a reservoir are connected.

    A subclass is decorated with `settings` (esnlm/settings.py). Its fields are the settings in the
    section model.reservoir.topology of a configuration; the first one, `kind`, is its name there.

    In all methods `state_size` is the number of units N, and `density` is the share of nonzeros
    from the reservoir's settings (`connectivity`, or mean_degree / N). Only a topology whose
    `has_own_density` is False uses it. docs/extending.md has an example.
    """

    kind: str

    has_own_density: ClassVar[bool] = True
    spectral_radius: ClassVar[float | None] = (
        None  # of W_rec before scaling, if it is known exactly
    )

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

    def longest_row(self, state_size: int, density: float) -> float:
        """Estimates the nonzeros of the fullest row, as if all were independent. The choice of a
        kernel uses it."""
        return largest_poisson_count(self.entries(state_size, density) / state_size, state_size)

    def check(self, state_size: int) -> None:  # noqa: B027 (not every topology has a check)
        """Raises ValueError for settings that do not fit this size. The message begins with the
        name of a setting."""

    def dense(self, state_size: int, density: float, rng: np.random.Generator) -> np.ndarray:
        """Draws W_rec before scaling as a dense matrix, (N, N) float32, for densities that are
        stored dense."""
        connections = self.connect(state_size, density, rng)
        w_rec = np.zeros((state_size, state_size), np.float32)
        w_rec[connections.row, connections.column] = connections.values(rng)
        return w_rec
