"""Groups of units without connections between groups."""

import numpy as np

from esnlm.reservoir.random_matrix import bernoulli_positions
from esnlm.reservoir.topology.base import Connections, Topology
from esnlm.settings import Count, Positive, settings


@settings
class BlockDiagonal(Topology):
    """Equal blocks along the diagonal, each an Erdos-Renyi graph."""

    kind: str = "block_diagonal"
    blocks: Count = 8  # number of blocks of equal size; it must divide the state size
    mean_degree: Positive = 32.0  # mean nonzeros per row and column of a block

    def check(self, state_size: int) -> None:
        if state_size % self.blocks:
            raise ValueError(
                f"blocks is {self.blocks}: it must divide the state size, {state_size}"
            )
        if self.mean_degree > state_size // self.blocks:
            raise ValueError(
                f"mean_degree is {self.mean_degree}: a block has {state_size // self.blocks} units"
            )

    def connect(self, state_size: int, density: float, rng: np.random.Generator) -> Connections:
        width = state_size // self.blocks
        row, column = bernoulli_positions(state_size, width, self.mean_degree / width, rng)
        return Connections(row, column + row // width * width)

    def entries(self, state_size: int, density: float) -> float:
        return self.mean_degree * state_size
