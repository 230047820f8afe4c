"""The echo state network language model: a frozen reservoir and a trained readout on its states."""

import dataclasses
from dataclasses import dataclass, field

from flax import nnx

from esnlm.readout import linear
from esnlm.readout.linear import FullRankReadout, LowRankReadout, ReadoutConfig
from esnlm.reservoir import weights
from esnlm.reservoir.weights import Reservoir, ReservoirConfig


@dataclass(frozen=True)
class EchoStateConfig:
    """An echo state network (S1)."""

    family: str = "esn"
    reservoir: ReservoirConfig = field(default_factory=ReservoirConfig)
    readout: ReadoutConfig = field(default_factory=ReadoutConfig)

    def check(self, name: str) -> None:
        self.reservoir.check(f"{name}.reservoir")
        self.readout.check(f"{name}.readout")


class EchoState(nnx.Module):
    """`reservoir` (frozen) and `readout` (trained)."""

    def __init__(self, reservoir: Reservoir, readout: LowRankReadout | FullRankReadout):
        self.reservoir = reservoir
        self.readout = readout

    @property
    def params(self) -> dict:
        """The trained arrays, {"a", "b", "bias"} or {"w", "bias"}."""
        return nnx.to_pure_dict(nnx.state(self.readout, nnx.Param))


@dataclass(frozen=True)
class Counts:
    """Parameters. `total` counts nonzero entries only, as S1's paper does; `entries` counts zeros too, as S2's does."""

    trainable: int
    total: int
    entries: int


def expected_counts(config: EchoStateConfig, vocab_size: int) -> Counts:
    """Parameter counts of S1 (section 2.3), in expectation over the draw: frozen (N + V) d + N, trainable (N + V) r + V."""
    size, rank = config.reservoir.state_size, config.readout.rank
    frozen = round((size + vocab_size) * config.reservoir.gamma * size) + size
    trainable = vocab_size + (size * vocab_size if rank is None else (size + vocab_size) * rank)
    return Counts(trainable, trainable + frozen, trainable + size * (size + vocab_size) + size)


def actual_counts(model: EchoState) -> Counts:
    """Parameter counts of a drawn model."""
    size, vocab_size = model.reservoir.state_size, model.reservoir.vocab_size
    trainable = sum(array.size for array in model.params.values())
    return Counts(trainable, trainable + model.reservoir.nonzeros, trainable + size * (size + vocab_size) + size)


def draw_reservoir(config: EchoStateConfig, vocab_size: int, seed: int) -> tuple[Reservoir, dict]:
    """A reservoir, and a record of how it came about, to be saved with it."""
    drawn = weights.draw(config.reservoir, vocab_size, seed)
    record = {"seed": seed, "redraws": drawn.redraws, "radius_before_scaling": dataclasses.asdict(drawn.radius)}
    return drawn.reservoir, record | {"nonzeros": drawn.reservoir.nonzeros}


def untrained(config: EchoStateConfig, reservoir: Reservoir, seed: int) -> EchoState:
    """The model as initialised: the reservoir with a readout drawn from the seed."""
    return EchoState(reservoir, linear.draw(config.readout, reservoir.state_size, reservoir.vocab_size, seed))
