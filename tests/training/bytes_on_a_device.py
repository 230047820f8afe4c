"""A program of test_plan.py: the bytes of what is trained that the first of eight devices holds, and what a plan says of them."""

import dataclasses
import json

import jax

from esnlm.compute import ComputeConfig
from esnlm.config import Experiment, TrainingConfig
from esnlm.models.echo_state import EchoStateConfig
from esnlm.models.gpt2 import GPT2Config
from esnlm.models.lstm import LstmConfig
from esnlm.parallel.mesh import Shape
from esnlm.readout.linear import ReadoutConfig
from esnlm.reservoir.weights import ReservoirConfig
from esnlm.training import plan
from esnlm.training.update import make_optimizer

VOCAB_SIZE = 1000  # neither it nor the units below can be divided by the devices
RESERVOIR = ReservoirConfig(state_size=50, mean_degree=4)
MODELS = {
    "esn": EchoStateConfig(reservoir=RESERVOIR, readout=ReadoutConfig(rank=8)),
    "full rank": EchoStateConfig(reservoir=RESERVOIR, readout=ReadoutConfig(rank=None)),
    "esn+i": EchoStateConfig(
        reservoir=dataclasses.replace(RESERVOIR, input_connectivity=1.0),
        readout=ReadoutConfig(rank=8),
        train_input=True,
    ),
    "lstm": LstmConfig(width=16),
    "tied lstm": LstmConfig(width=16, tied=True),
    "gpt2": GPT2Config(layers=1, heads=1, width=16, positions=32),
}
MESHES = ({"data": 4}, {"vocabulary": 4}, {"data": 2, "vocabulary": 4})


def on_the_first(tree):
    """Bytes of the arrays of a tree on the first device; the counters of an optimizer are left out."""
    parts = [part for array in jax.tree.leaves(tree) if array.ndim for part in array.addressable_shards]
    return sum(part.data.nbytes for part in parts if part.device == jax.devices()[0])


if __name__ == "__main__":
    for name, model in MODELS.items():
        for mesh in MESHES:
            experiment = Experiment(model=model, compute=ComputeConfig(mesh=mesh))
            placement = model.placement(experiment.compute, VOCAB_SIZE)
            frozen, _ = model.initialize_frozen(VOCAB_SIZE, 0)
            params = placement.place(model.initialize(VOCAB_SIZE, 0, frozen).params)
            state = placement.place(make_optimizer(TrainingConfig()).init(params))
            planned = plan.memory_of_each(experiment, "cpu", Shape(**mesh), VOCAB_SIZE).trained
            found = 2 * on_the_first(params) + on_the_first(state)  # a gradient is as large as its array
            print(json.dumps({"name": f"{name} {mesh}", "planned": planned, "found": found}))
