"""Other frozen features below a deep readout: diagonal units, a GRU, attention with frozen keys.

None lowers the NLL by more than 0.010 nats (results/frontier/ideas.md). The family is written as a
user's own, outside the package. From the root of the repository, a configuration names it:

    model: {family: "experiments.frozen_cells:FrozenCellsConfig", gru: {units: 1024}}
"""

from experiments.frozen_cells.family import FrozenCellsConfig as FrozenCellsConfig
