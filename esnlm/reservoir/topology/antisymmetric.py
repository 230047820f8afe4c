"""Antisymmetric matrices: the reservoir of an Euler state network."""

import numpy as np

from esnlm.reservoir.random_matrix import bernoulli_positions, from_flat
from esnlm.reservoir.topology.base import Connections, Topology
from esnlm.settings import Positive, settings


@settings
class Antisymmetric(Topology):
    """W = V - V^T, whose eigenvalues are imaginary (Gallicchio 2024), on the edges of an undirected
    Erdos-Renyi graph."""

    kind: str = "antisymmetric"
    mean_degree: Positive = 32.0  # mean nonzeros per row and column

    def check(self, state_size: int) -> None:
        if self.mean_degree > state_size - 1:
            raise ValueError(
                f"mean_degree is {self.mean_degree}: it must be below the state size, {state_size}"
            )

    def connect(self, state_size: int, density: float, rng: np.random.Generator) -> Connections:
        """Draws the connected pairs of units, and a weight v ~ N(0, 1) for one direction; the other
        has -v.

        The paper's V is dense and uniform; here it is sparse and normal, like W_rec in other
        topologies [ours].
        """
        first, second = bernoulli_positions(
            state_size, state_size, self.mean_degree / (state_size - 1), rng
        )
        above = first < second  # one position of each pair
        first, second = first[above].astype(np.int64), second[above].astype(np.int64)
        value = rng.standard_normal(len(first), dtype=np.float32)
        flat = np.concatenate([first * state_size + second, second * state_size + first])
        order = np.argsort(flat)
        return Connections(
            *from_flat(flat[order], state_size), np.concatenate([value, -value])[order]
        )

    def entries(self, state_size: int, density: float) -> float:
        return self.mean_degree * state_size
