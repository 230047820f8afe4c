"""What a topology is, and the registry of all of them."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from esnlm.reservoir.random_matrix import largest_poisson_count

TOPOLOGIES: dict[str, type["Topology"]] = {}  # by the kind that a configuration names


class Connections(NamedTuple):
    """The nonzeros of W_rec before it is scaled, sorted by row, then by column, without duplicates.

    Row i holds the units that feed unit i. Nobody sorts them again: np.lexsort((column, row)) gives the order.
    """

    row: np.ndarray  # (nonzeros,) int32
    column: np.ndarray  # (nonzeros,) int32
    value: np.ndarray | None = None  # (nonzeros,) float32; None: the values are drawn from N(0, 1)

    def values(self, rng: np.random.Generator) -> np.ndarray:
        """Returns the values, (nonzeros,) float32, which are drawn where the topology leaves them open."""
        return rng.standard_normal(len(self.row), dtype=np.float32) if self.value is None else self.value


@dataclass(frozen=True)
class Topology(ABC):
    """Decides which units of a reservoir feed which.

    A subclass is made by `settings` (esnlm/settings.py). Its fields are the settings that a configuration gives below
    model.reservoir.topology; the first one, `kind`, is its name there.

    In all methods `state_size` is the number of units N, and `density` is the share of nonzeros that the reservoir's
    settings ask for (`connectivity`, or mean_degree / N). Only a topology whose `has_own_density` is False uses it.
    docs/extending.md has an example.
    """

    kind: str

    has_own_density: ClassVar[bool] = True
    spectral_radius: ClassVar[float | None] = None  # of W_rec before it is scaled, where it is known exactly

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        if kind := cls.__dict__.get("kind"):
            TOPOLOGIES[kind] = cls

    @abstractmethod
    def connect(self, state_size: int, density: float, rng: np.random.Generator) -> Connections:
        """Draws the nonzeros of W_rec before it is scaled."""

    @abstractmethod
    def entries(self, state_size: int, density: float) -> float:
        """Returns how many nonzeros W_rec is expected to have."""

    def longest_row(self, state_size: int, density: float) -> float:
        """Estimates the nonzeros of the fullest row, as if all were there or not by chance. A product's kernel is chosen by it."""
        return largest_poisson_count(self.entries(state_size, density) / state_size, state_size)

    def check(self, state_size: int) -> None:  # noqa: B027 (not every topology has something to refuse)
        """Raises ValueError, whose text begins with the name of a setting, for settings that do not fit this size."""

    def dense(self, state_size: int, density: float, rng: np.random.Generator) -> np.ndarray:
        """Draws W_rec before it is scaled as a dense matrix, (N, N) float32, for the densities that are stored dense."""
        connections = self.connect(state_size, density, rng)
        w_rec = np.zeros((state_size, state_size), np.float32)
        w_rec[connections.row, connections.column] = connections.values(rng)
        return w_rec
