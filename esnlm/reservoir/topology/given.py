"""The topology that a run records if its W_rec was given as a matrix and not drawn."""

import numpy as np

from esnlm.errors import InputError
from esnlm.reservoir.topology.base import Connections, Topology
from esnlm.settings import Natural, settings


@settings
class Given(Topology):
    """W_rec was given as a matrix in Python (docs/library.md). The run stores it in `frozen/`; no
    seed redraws it."""

    kind: str = "given"
    nonzeros: Natural = 0  # number of nonzeros of W_rec

    def connect(self, state_size: int, density: float, rng: np.random.Generator) -> Connections:
        raise InputError(
            "model.reservoir.topology.kind is given: W_rec was given in Python and cannot be drawn"
            " from a seed; choose another kind, or restore the run with its folder frozen/"
        )

    def entries(self, state_size: int, density: float) -> float:
        return self.nonzeros
