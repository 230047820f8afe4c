"""The scale-free graph of Barabasi and Albert (1999)."""

import math
import random

import numpy as np

from esnlm.reservoir.random_matrix import undirected_positions
from esnlm.reservoir.topology.base import Connections, Topology
from esnlm.settings import Count, settings


@settings
class ScaleFree(Topology):
    """Units join one by one and prefer those with many edges (Barabasi and Albert 1999). Edges go
    both ways."""

    kind: str = "scale_free"
    edges: Count = (
        16  # edges added with each joining unit; the mean degree is about twice this number [m]
    )

    def check(self, state_size: int) -> None:
        if self.edges >= state_size:
            raise ValueError(
                f"edges is {self.edges}: it must be below the state size, {state_size}"
            )

    def connect(self, state_size: int, density: float, rng: np.random.Generator) -> Connections:
        """Starts from a star of `edges` + 1 units; each new unit then links to `edges` others.

        A unit draws units by degree until `edges` of them differ, as in
        networkx.barabasi_albert_graph.
        """
        coin = random.Random(int(rng.integers(2**63)))
        # The ends of all edges: each unit occurs as often as its degree.
        ends = [0] * self.edges + list(range(1, self.edges + 1))
        for unit in range(self.edges + 1, state_size):
            chosen: set[int] = set()
            while len(chosen) < self.edges:
                chosen.add(ends[int(coin.random() * len(ends))])
            ends.extend(chosen)
            ends.extend([unit] * self.edges)
        old, new = np.array(ends).reshape(-1, 2, self.edges).swapaxes(0, 1).reshape(2, -1)
        return Connections(*undirected_positions(old, new, state_size))

    def entries(self, state_size: int, density: float) -> float:
        return 2 * self.edges * (state_size - self.edges)

    def longest_row(self, state_size: int, density: float) -> float:
        # The star's centre has k edges. Nearly every unit links to it up to k = 2 m at t = 2 m,
        # then dk/dt = k / 2t.
        return min(state_size - 1, 2 * math.sqrt(self.edges * state_size))
