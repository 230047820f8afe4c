"""The Erdos-Renyi graph: the reservoir of Ueda et al. 2025a."""

from typing import ClassVar

import numpy as np

from esnlm.reservoir.random_matrix import bernoulli_positions, dense_bernoulli_gaussian
from esnlm.reservoir.topology.base import Connections, Topology
from esnlm.settings import settings


@settings
class ErdosRenyi(Topology):
    """Each connection exists with the same probability, independently of the others (Ueda et al.
    2025a, section 2.1).

    The probability is the connectivity of the reservoir.
    """

    kind: str = "erdos_renyi"

    has_own_density: ClassVar[bool] = False

    def connect(self, state_size: int, density: float, rng: np.random.Generator) -> Connections:
        return Connections(*bernoulli_positions(state_size, state_size, density, rng))

    def dense(self, state_size: int, density: float, rng: np.random.Generator) -> np.ndarray:
        # Drawing positions would take twice the memory of the dense matrix.
        return dense_bernoulli_gaussian(state_size, state_size, density, rng)

    def entries(self, state_size: int, density: float) -> float:
        return density * state_size**2
