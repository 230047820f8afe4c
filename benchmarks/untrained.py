"""Untrained echo state networks for measurements, since training does not change the speed of a
model."""

from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace

import jax

import esnlm
from esnlm.machine.compute import ComputeConfig
from esnlm.models.devices import choose_compute
from esnlm.models.echo_state import EchoStateConfig
from esnlm.readout.linear import ReadoutConfig
from esnlm.reservoir.weights import ReservoirConfig
from esnlm.training.config import Experiment


def initialize(size: int, vocab_size: int, rank: int, degree: float = 32) -> esnlm.Run:
    """Returns a run of N, V and r without directory and text, with random weights from seed 0. It
    scores token ids.

    W_rec has `degree` nonzeros per row on average, at most N. Compute settings are chosen for the
    device.
    """
    reservoir = ReservoirConfig(size, mean_degree=min(degree, size))
    model = EchoStateConfig(reservoir=reservoir, readout=ReadoutConfig(rank))
    chosen = choose_compute(ComputeConfig(), model, jax.default_backend())
    initialized = model.initialize(vocab_size, 0, _frozen(model, vocab_size))
    tokenizer = SimpleNamespace(vocab_size=vocab_size)
    return esnlm.Run(Path(), Experiment(model=model, compute=chosen), 0, initialized, tokenizer)


# the same reservoir is measured at several precisions, and W_rec of 65,536 units takes seconds
@lru_cache(maxsize=1)
def _frozen(model: EchoStateConfig, vocab_size: int) -> dict:
    return model.initialize_frozen(vocab_size, seed=0)[0]
