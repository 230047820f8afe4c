"""Antisymmetric matrices: the reservoir of an Euler state network."""

from dataclasses import dataclass

import numpy as np

from esnlm.errors import require
from esnlm.reservoir.random_matrix import bernoulli_positions, from_flat
from esnlm.reservoir.topology.base import Connections, Topology


@dataclass(frozen=True)
class Antisymmetric(Topology):
    """W = V - V^T, whose eigenvalues are imaginary (Gallicchio 2024), on the edges of an undirected Erdos-Renyi graph."""

    kind: str = "antisymmetric"
    mean_degree: float = 32.0  # mean nonzeros per row and column

    def check(self, field: str, state_size: int) -> None:
        holds = 0 < self.mean_degree <= state_size - 1
        require(
            holds,
            f"{field}.mean_degree is {self.mean_degree}: it must be above 0 and at most {state_size - 1}, one less than the state"
            " size",
        )

    def connect(self, state_size: int, density: float, rng: np.random.Generator) -> Connections:
        """Draws which pairs of units are joined, and the weight v ~ N(0, 1) one way; the other way it is -v.

        The paper's V is dense and uniform; here it is sparse and normal, as W_rec is in every topology [ours].
        """
        first, second = bernoulli_positions(state_size, state_size, self.mean_degree / (state_size - 1), rng)
        above = first < second  # Half of what was drawn: each pair has been drawn both ways.
        first, second = first[above].astype(np.int64), second[above].astype(np.int64)
        value = rng.standard_normal(len(first), dtype=np.float32)
        flat = np.concatenate([first * state_size + second, second * state_size + first])
        order = np.argsort(flat)
        return Connections(*from_flat(flat[order], state_size), np.concatenate([value, -value])[order])

    def entries(self, state_size: int, density: float) -> float:
        return self.mean_degree * state_size
