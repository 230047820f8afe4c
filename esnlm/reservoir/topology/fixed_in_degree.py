"""A random graph in which all units receive input from the same number of units."""

import numpy as np

from esnlm.reservoir.random_matrix import from_flat
from esnlm.reservoir.topology.base import Connections, Topology
from esnlm.settings import Count, settings


@settings
class FixedInDegree(Topology):
    """Every unit receives input from exactly `degree` units, a set drawn uniformly at random."""

    kind: str = "fixed_in_degree"
    degree: Count = 32  # nonzeros per row

    def check(self, state_size: int) -> None:
        if self.degree > state_size:
            raise ValueError(
                f"degree is {self.degree}: it must be at most the state size, {state_size}"
            )

    def connect(self, state_size: int, density: float, rng: np.random.Generator) -> Connections:
        """Draws missing columns with replacement and drops repetitions until every row is complete.

        Every step treats all columns alike, so every set of columns is equally likely.
        """
        size = state_size
        # Draw the columns of a row or, if they are more than half of all, the columns that it
        # leaves out.
        drawn = min(self.degree, size - self.degree)
        flat, lacking = np.empty(0, np.int64), np.full(size, drawn)
        while lacking.any():
            row = np.repeat(np.arange(size), lacking)
            flat = np.sort(np.concatenate([flat, row * size + rng.integers(size, size=len(row))]))
            flat = flat[np.diff(flat, prepend=-1) > 0]  # np.unique takes ten times as long
            lacking = drawn - np.bincount(flat // size, minlength=size)
        if drawn < self.degree:
            left_out = np.zeros(size * size, bool)  # no larger than the result
            left_out[flat] = True
            flat = np.flatnonzero(~left_out)
        return Connections(*from_flat(flat, size))

    def entries(self, state_size: int, density: float) -> float:
        return self.degree * state_size
