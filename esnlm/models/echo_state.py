"""The echo state network language model: a frozen reservoir and a trained readout on its states.

With `train_input` W_in is trained too, through time and through the frozen W_rec: the ESN+i of S2.
"""

import dataclasses
from dataclasses import dataclass, field

import jax.numpy as jnp
from flax import nnx

from esnlm.features import dropout
from esnlm.features.stream import default_lanes
from esnlm.models.counts import Counts
from esnlm.readout import linear
from esnlm.readout.linear import FullRankReadout, LowRankReadout, ReadoutConfig
from esnlm.reservoir import cell as cells
from esnlm.reservoir import sparse, weights
from esnlm.reservoir.weights import Reservoir, ReservoirConfig


@dataclass(frozen=True)
class EchoStateConfig:
    """An echo state network (S1); with `train_input` an ESN+i (S2)."""

    family: str = "esn"
    reservoir: ReservoirConfig = field(default_factory=ReservoirConfig)
    readout: ReadoutConfig = field(default_factory=ReadoutConfig)
    train_input: bool = False  # train W_in too, all but its zeros
    dropout: float = 0.0  # on W_in u, and on the copy of h that the readout sees; never on the carried state (S2)

    def check(self, name: str) -> None:
        self.reservoir.check(f"{name}.reservoir")
        self.readout.check(f"{name}.readout")
        dropout.check_rate(self.dropout, f"{name}.dropout")

    @property
    def title(self) -> str:
        rank = self.readout.rank
        kind = self.reservoir.topology.kind
        topology = "" if kind == "erdos_renyi" else f" {kind.replace('_', ' ')}"
        name = f"{'ESN+i' if self.train_input else 'ESN'}{topology}"
        return f"{name} {self.reservoir.state_size:,}, {f'rank {rank}' if rank else 'full rank'}"

    @property
    def features_ahead(self) -> bool:
        """No trained number decides the states, so they can be computed ahead of the optimizer."""
        return not self.train_input

    def kernel(self, backend: str) -> str:
        """The kernel of the recurrent product, chosen for a backend."""
        reservoir, size = self.reservoir, self.reservoir.state_size
        return sparse.choose_kernel(size, round(reservoir.recurrent_gamma * size * size), backend, reservoir.longest_row)

    def lanes(self, backend: str) -> int:
        """Sentences to run side by side."""
        return default_lanes(self.reservoir.state_size, backend)

    @property
    def feature_size(self) -> int:
        return self.reservoir.state_size

    @property
    def longest(self) -> None:
        """A sentence may be of any length."""

    @property
    def output_dropout(self) -> float:
        return self.dropout


class EchoState(nnx.Module):
    """`reservoir` and `readout`."""

    def __init__(self, config: EchoStateConfig, reservoir: Reservoir, readout: LowRankReadout | FullRankReadout):
        self.config = config
        self.reservoir = reservoir
        self.readout = readout

    @property
    def params(self) -> dict:
        """The trained arrays: {"readout": {"a", "b", "bias"} or {"w", "bias"}}, for an ESN+i also "input".

        "input" is W_in as the recurrence reads it: the values of its columns, (V, K), or all of it transposed, (V, N).
        """
        readout = {"readout": nnx.to_pure_dict(nnx.state(self.readout, nnx.Param))}
        if not self.config.train_input:
            return readout
        columns = sparse.prepare_columns(self.reservoir.stored_w_in)
        return readout | {"input": columns.value if isinstance(columns, sparse.Columns) else columns}

    def with_params(self, params: dict) -> "EchoState":
        """The model with other trained arrays."""
        reservoir = self.reservoir.with_input(params["input"]) if self.config.train_input else self.reservoir
        return EchoState(self.config, reservoir, linear.from_arrays(params["readout"]))

    def arrays(self) -> dict:
        """Every weight, as nested dicts."""
        return {"reservoir": self.reservoir.arrays(), "readout": self.params["readout"]}

    def prepare(self, kernel: str) -> cells.EchoStateCell:
        """What is frozen, made ready for this backend: the argument `frozen` of `cell`."""
        settings = self.config.reservoir
        return cells.prepare(self.reservoir, settings.activation, kernel, settings.decay, differentiable=self.config.train_input)


def cell(frozen: cells.EchoStateCell, params: dict, precision: str) -> cells.EchoStateCell:
    """The cell of features/recurrence.py with the trained arrays in it. The recurrence is float32, whatever the precision."""
    if "input" not in params:
        return frozen
    if isinstance(frozen.w_in, sparse.Columns):
        return dataclasses.replace(frozen, w_in=frozen.w_in._replace(value=params["input"]))
    # Where W_in is stored dense, its zeros are no connections either: they stay 0.
    return dataclasses.replace(frozen, w_in=jnp.where(frozen.w_in == 0, 0, params["input"]))


def readout(params: dict) -> dict:
    """The arrays of the readout, for readout/linear.py."""
    return params["readout"]


def expected_counts(config: EchoStateConfig, vocab_size: int) -> Counts:
    """Parameter counts of S1 (section 2.3), in expectation over the draw: frozen (N + V) d + N, trainable (N + V) r + V."""
    reservoir, size = config.reservoir, config.reservoir.state_size
    w_in = vocab_size * reservoir.input_gamma * size
    trainable = linear.count(config.readout, size, vocab_size) + (round(w_in) if config.train_input else 0)
    frozen = size * reservoir.recurrent_gamma * size + (0 if config.train_input else w_in)
    entries = linear.count(config.readout, size, vocab_size) + size * (size + vocab_size) + size
    return Counts(trainable, trainable + round(frozen) + size, entries)


def flops_per_token(config: EchoStateConfig, vocab_size: int) -> int:
    """Of training: each product costs 2 flops an entry forward, 4 more backward; what is frozen needs no gradient of its own."""
    size, rank = config.reservoir.state_size, config.readout.rank
    frozen = 2 * size * (config.reservoir.recurrent_gamma * size + config.reservoir.input_gamma)
    states_need_none = 0 if config.train_input else 2 * size * (rank or vocab_size)
    readout = 6 * (linear.count(config.readout, size, vocab_size) - vocab_size) - states_need_none
    return round(readout + frozen * (2 if config.train_input else 1))


def frozen_bytes(config: EchoStateConfig, vocab_size: int) -> int:
    """Memory of W_rec, W_in and the leak as stored: dense, or a value and two indices an entry."""
    size, reservoir = config.reservoir.state_size, config.reservoir
    matrices = [(size * size, reservoir.recurrent_gamma), (size * vocab_size, reservoir.input_gamma)]
    return round(4 * size + sum(4 * cells if share >= weights.DENSE_FROM else 12 * cells * share for cells, share in matrices))


def actual_counts(model: EchoState) -> Counts:
    """Parameter counts of a drawn model."""
    config, size, vocab_size = model.config, model.reservoir.state_size, model.reservoir.vocab_size
    in_readout = linear.count(config.readout, size, vocab_size)
    recurrent, w_in = model.reservoir.nonzeros
    trainable = in_readout + (w_in if config.train_input else 0)
    return Counts(trainable, in_readout + recurrent + w_in + size, in_readout + size * (size + vocab_size) + size)


def draw_frozen(config: EchoStateConfig, vocab_size: int, seed: int) -> tuple[dict, dict]:
    """The arrays of a reservoir, and a record of how it came about, to be saved with them."""
    drawn = weights.draw(config.reservoir, vocab_size, seed)
    record = {"seed": seed, "redraws": drawn.redraws, "radius_before_scaling": dataclasses.asdict(drawn.radius)}
    return drawn.reservoir.arrays(), record | {"nonzeros": sum(drawn.reservoir.nonzeros) + drawn.reservoir.state_size}


def untrained(config: EchoStateConfig, vocab_size: int, seed: int, frozen: dict) -> EchoState:
    """The model as initialised: the reservoir of these arrays with a readout drawn from the seed."""
    reservoir = Reservoir.from_arrays(frozen, vocab_size)
    return EchoState(config, reservoir, linear.draw(config.readout, reservoir.state_size, vocab_size, seed))
