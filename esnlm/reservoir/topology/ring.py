"""The ring: one cycle through all units."""

from typing import ClassVar

import numpy as np

from esnlm.reservoir.topology.base import Connections, Topology
from esnlm.settings import settings


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

    def longest_row(self, state_size: int, density: float) -> float:
        return 1
