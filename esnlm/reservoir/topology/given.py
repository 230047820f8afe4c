"""A matrix that was given and not drawn: what the run of a reservoir of one's own says of its W_rec."""

import numpy as np

from esnlm.errors import InputError
from esnlm.reservoir.topology.base import Connections, Topology
from esnlm.settings import Natural, settings


@settings
class Given(Topology):
    """W_rec was given in Python (docs/library.md). It lies in the folder `frozen/` of the run, and no seed draws it."""

    kind: str = "given"
    nonzeros: Natural = 0  # of W_rec

    def connect(self, state_size: int, density: float, rng: np.random.Generator) -> Connections:
        raise InputError(
            "model.reservoir.topology.kind is given: W_rec was given in Python and no seed draws it again; choose another"
            " kind, or restore the run with its folder frozen/"
        )

    def entries(self, state_size: int, density: float) -> float:
        return self.nonzeros
