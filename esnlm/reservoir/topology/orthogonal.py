"""Sparse orthogonal matrices."""

from typing import ClassVar

import numpy as np
import scipy.sparse

from esnlm.reservoir.topology.base import Connections, Topology
from esnlm.settings import Count, settings


@settings
class Orthogonal(Topology):
    """A sparse matrix with W W^T = I; degree 1 is a permutation with random signs."""

    kind: str = "orthogonal"
    degree: Count = 32  # nonzeros per row, a power of 2

    spectral_radius: ClassVar[float | None] = 1.0

    def check(self, state_size: int) -> None:
        if self.degree > state_size or self.degree.bit_count() != 1:
            raise ValueError(
                f"degree is {self.degree}: it must be a power of 2 and at most the state size,"
                f" {state_size}"
            )

    def connect(self, state_size: int, density: float, rng: np.random.Generator) -> Connections:
        """Draws W = G_L ... G_2 G_1 P with L = log2(degree), for which W W^T = I to float32.

        P is a permutation with random signs. Each G pairs all rows at random (an odd one stays out)
        and rotates each pair by an angle ~ U(0, 2 pi), a Givens rotation. Each G doubles the
        nonzeros of a row, so rows have `degree` of them, except a share below degree^2 / (2 N), in
        which paths meet.
        """
        rows = np.arange(state_size)
        shape = state_size, state_size
        signs = rng.choice([-1.0, 1.0], state_size)
        w = scipy.sparse.csr_array((signs, (rows, rng.permutation(state_size))), shape=shape)
        for _ in range(self.degree.bit_length() - 1):
            order = rng.permutation(state_size)
            pairs = state_size // 2
            a, b, alone = order[:pairs], order[pairs : 2 * pairs], order[2 * pairs :]
            angle = rng.uniform(0, 2 * np.pi, pairs)
            cosine, sine = np.cos(angle), np.sin(angle)
            values = np.concatenate([cosine, -sine, sine, cosine, np.ones(len(alone))])
            positions = np.concatenate([a, a, b, b, alone]), np.concatenate([a, b, a, b, alone])
            w = scipy.sparse.csr_array((values, positions), shape=shape) @ w
        w.sort_indices()
        row = np.repeat(rows, np.diff(w.indptr))
        return Connections(
            row.astype(np.int32), w.indices.astype(np.int32), w.data.astype(np.float32)
        )

    def entries(self, state_size: int, density: float) -> float:
        row = 1.0  # entries; two rotated rows share row (row - 1) / (N - 1) columns
        for _ in range(self.degree.bit_length() - 1):
            paired = state_size // 2 * 2 / state_size
            row += paired * (row - row * (row - 1) / (state_size - 1))
        return row * state_size
