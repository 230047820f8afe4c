"""Groups of units that do not feed each other."""

from dataclasses import dataclass

import numpy as np

from esnlm.errors import require
from esnlm.reservoir.random_matrix import bernoulli_positions, largest_poisson_count
from esnlm.reservoir.topology.base import Connections, Topology


@dataclass(frozen=True)
class BlockDiagonal(Topology):
    """Equal blocks along the diagonal, each of them Erdos-Renyi."""

    kind: str = "block_diagonal"
    blocks: int = 8  # groups, all of one size
    mean_degree: float = 32.0  # mean nonzeros per row and column of a block

    def check(self, field: str, state_size: int) -> None:
        holds = self.blocks >= 1 and state_size % self.blocks == 0
        require(holds, f"{field}.blocks is {self.blocks}: it must divide the state size, {state_size}")
        size = state_size // self.blocks
        holds = 0 < self.mean_degree <= size
        require(
            holds, f"{field}.mean_degree is {self.mean_degree}: it must be above 0 and at most a block's size, {size}"
        )

    def connect(self, state_size: int, density: float, rng: np.random.Generator) -> Connections:
        width = state_size // self.blocks
        row, column = bernoulli_positions(state_size, width, self.mean_degree / width, rng)
        return Connections(row, column + row // width * width)

    def entries(self, state_size: int, density: float) -> float:
        return self.mean_degree * state_size

    def longest_row(self, state_size: int, density: float) -> float:
        return min(state_size // self.blocks, largest_poisson_count(self.mean_degree, state_size))
