"""The small world of Watts and Strogatz (1998)."""

import random

import numpy as np

from esnlm.reservoir.random_matrix import undirected_positions
from esnlm.reservoir.topology.base import Connections, Topology
from esnlm.settings import Count, Fraction, settings


@settings
class SmallWorld(Topology):
    """A ring lattice with some of its edges rewired (Watts and Strogatz 1998). Edges go both
    ways."""

    kind: str = "small_world"
    degree: Count = 32  # neighbours of each unit on the lattice, an even number [k]
    rewiring: Fraction = 0.1  # probability that an edge is rewired [beta]

    def check(self, state_size: int) -> None:
        if self.degree % 2 or self.degree >= state_size:
            raise ValueError(
                f"degree is {self.degree}: it must be even and below the state size, {state_size}"
            )

    def connect(self, state_size: int, density: float, rng: np.random.Generator) -> Connections:
        """Links every unit with its degree / 2 nearest on either side of a ring, then rewires
        edges.

        Edge by edge, nearest neighbours first, the far end moves with probability `rewiring` to a
        unit drawn uniformly from those without an edge to the near end. This is the graph of
        networkx.watts_strogatz_graph.
        """
        size = state_size
        unit = np.arange(size)
        near = np.tile(unit, self.degree // 2)
        far = np.concatenate(
            [(unit + distance) % size for distance in range(1, self.degree // 2 + 1)]
        )
        edges = set((np.minimum(near, far) * size + np.maximum(near, far)).tolist())
        degrees = [self.degree] * size
        coin = random.Random(
            int(rng.integers(2**63))
        )  # ten times as fast as NumPy for one number at a time
        for edge in np.flatnonzero(rng.random(len(near)) < self.rewiring).tolist():
            u, v = int(near[edge]), int(far[edge])
            if degrees[u] == size - 1:  # no unit is left to move to
                continue
            w = u
            while w == u or min(u, w) * size + max(u, w) in edges:
                w = int(coin.random() * size)
            edges.remove(min(u, v) * size + max(u, v))
            edges.add(min(u, w) * size + max(u, w))
            degrees[v] -= 1
            degrees[w] += 1
            far[edge] = w
        return Connections(*undirected_positions(near, far, size))

    def entries(self, state_size: int, density: float) -> float:
        return self.degree * state_size
