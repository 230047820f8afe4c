"""The echo state network language model: a frozen reservoir and a trained readout on its states.

With `train_input` W_in is trained too, through time and through what else is frozen: the ESN+i of S2. Of stacked layers it
is the first one's.
"""

import dataclasses
from dataclasses import dataclass, field

import jax.numpy as jnp
import numpy as np
from flax import nnx

from esnlm.errors import InputError
from esnlm.features import dropout
from esnlm.features.stream import default_batch_slots
from esnlm.models.counts import Counts
from esnlm.readout import linear
from esnlm.readout.linear import FullRankReadout, LowRankReadout, ReadoutConfig
from esnlm.reservoir import arrays as held
from esnlm.reservoir import cell as cells
from esnlm.reservoir import sparse, weights
from esnlm.reservoir.arrays import Reservoir, Stack
from esnlm.reservoir.weights import ReservoirConfig


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
        if self.train_input and self.reservoir.embedding is not None:
            raise InputError(
                f"{name}.train_input is true and {name}.reservoir.embedding {self.reservoir.embedding}: behind a frozen embedding"
                " W_in cannot be trained; leave one of them out"
            )

    @property
    def title(self) -> str:
        rank, reservoir = self.readout.rank, self.reservoir
        name = ["ESN+i" if self.train_input else "ESN"]
        name += [reservoir.topology.kind.replace("_", " ")] * (reservoir.topology.kind != "erdos_renyi")
        name += [reservoir.update_rule.replace("_", " ")] * (reservoir.update_rule != "leaky_output")
        size = (
            f"{reservoir.state_size:,}" if reservoir.layers == 1 else f"{reservoir.layers} x {reservoir.state_size:,}"
        )
        parts = [" ".join([*name, size]), f"rank {rank}" if rank else "full rank"]
        return ", ".join(parts + [f"embedding {reservoir.embedding}"] * (reservoir.embedding is not None))

    @property
    def features_are_frozen(self) -> bool:
        """No trained number decides the states, so they can be computed ahead of the optimizer."""
        return not self.train_input

    def kernel(self, backend: str) -> str:
        """The kernel of the recurrent product, chosen for a backend."""
        reservoir, size = self.reservoir, self.reservoir.state_size
        return sparse.choose_kernel(
            size, round(reservoir.recurrent_gamma * size * size), backend, reservoir.longest_row
        )

    def batch_slots(self, backend: str) -> int:
        """Sentences to run side by side."""
        return default_batch_slots(self.reservoir.state_size, backend)

    @property
    def feature_size(self) -> int:
        return self.reservoir.layers * self.reservoir.state_size

    @property
    def longest(self) -> None:
        """A sentence may be of any length."""

    @property
    def output_dropout(self) -> float:
        return self.dropout


class EchoState(nnx.Module):
    """`reservoir` and `readout`."""

    def __init__(
        self, config: EchoStateConfig, reservoir: Reservoir | Stack, readout: LowRankReadout | FullRankReadout
    ):
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
        columns = sparse.prepare_columns(self.reservoir.layers[0].stored_w_in)
        return readout | {"input": columns.value if isinstance(columns, sparse.Columns) else columns}

    def with_params(self, params: dict) -> "EchoState":
        """The model with other trained arrays."""
        reservoir = self.reservoir.with_input(params["input"]) if self.config.train_input else self.reservoir
        return EchoState(self.config, reservoir, linear.from_arrays(params["readout"]))

    def arrays(self) -> dict:
        """Every weight, as nested dicts."""
        return {"reservoir": self.reservoir.arrays(), "readout": self.params["readout"]}

    def prepare(self, kernel: str) -> cells.EchoStateCell | cells.StackedCell:
        """What is frozen, made ready for this backend: the argument `frozen` of `cell`."""
        settings, differentiable = self.config.reservoir, self.config.train_input
        return cells.prepare(
            self.reservoir, settings.activation, kernel, settings.decay, differentiable, settings.update_rule
        )


def cell(
    frozen: cells.EchoStateCell | cells.StackedCell, params: dict, precision: str
) -> cells.EchoStateCell | cells.StackedCell:
    """The cell of features/recurrence.py with the trained arrays in it. The recurrence is float32, whatever the precision."""
    if "input" not in params:
        return frozen
    if isinstance(frozen, cells.StackedCell):
        first, *above = frozen.layers
        return cells.StackedCell((cell(first, params, precision), *above))
    if isinstance(frozen.w_in, sparse.Columns):
        return dataclasses.replace(frozen, w_in=frozen.w_in._replace(value=params["input"]))
    # Where W_in is stored dense, its zeros are no connections either: they stay 0.
    return dataclasses.replace(frozen, w_in=jnp.where(frozen.w_in == 0, 0, params["input"]))


def readout(params: dict) -> dict:
    """The arrays of the readout, for readout/linear.py."""
    return params["readout"]


def expected_counts(config: EchoStateConfig, vocab_size: int) -> Counts:
    """Parameter counts of S1 (section 2.3), in expectation over the draw: frozen (N + V) d + N, trainable (N + V) r + V.

    Of several layers each has a leak and two frozen matrices, and the readout is F = L N wide; an embedding is frozen too.
    """
    reservoir, features = config.reservoir, config.feature_size
    matrices = reservoir.matrices(vocab_size)
    in_readout = linear.count(config.readout, features, vocab_size)
    trained = vocab_size * reservoir.input_gamma * reservoir.state_size if config.train_input else 0
    frozen = sum(rows * columns * share for rows, columns, share in matrices) - trained
    trainable = in_readout + round(trained)
    entries = in_readout + sum(rows * columns for rows, columns, _ in matrices) + features
    return Counts(trainable, trainable + round(frozen) + features, entries)


def flops_per_token(config: EchoStateConfig, vocab_size: int) -> int:
    """Of training: each product costs 2 flops an entry forward, 4 more backward; what is frozen needs no gradient of its own."""
    reservoir, features, rank = config.reservoir, config.feature_size, config.readout.rank
    matrices = (2 * reservoir.layers - 1) * reservoir.recurrent_gamma * reservoir.state_size  # entries a unit, of N x N
    frozen = 2 * reservoir.state_size * (matrices + reservoir.input_gamma * (reservoir.embedding or 1))
    states_need_none = 0 if config.train_input else 2 * features * (rank or vocab_size)
    readout = 6 * (linear.count(config.readout, features, vocab_size) - vocab_size) - states_need_none
    return round(readout + frozen * (2 if config.train_input else 1))


def frozen_bytes(config: EchoStateConfig, vocab_size: int) -> int:
    """Memory of what is frozen as stored: each matrix dense, or a value and two indices an entry."""
    sizes = [(rows * columns, share) for rows, columns, share in config.reservoir.matrices(vocab_size)]
    stored = sum(4 * size if share >= weights.DENSE_FROM else 12 * size * share for size, share in sizes)
    return round(4 * config.feature_size + stored)


def actual_counts(model: EchoState) -> Counts:
    """Parameter counts of a drawn model."""
    config, vocab_size = model.config, model.reservoir.vocab_size
    in_readout = linear.count(config.readout, config.feature_size, vocab_size)
    trainable = in_readout + (model.reservoir.layers[0].nonzeros[1] if config.train_input else 0)
    entries = sum(rows * columns for rows, columns, _ in config.reservoir.matrices(vocab_size)) + config.feature_size
    return Counts(trainable, in_readout + _frozen_nonzeros(model.reservoir), in_readout + entries)


def _frozen_nonzeros(reservoir: Reservoir | Stack) -> int:
    """Of W_rec, W_in, leak and embedding, of all layers, a trained W_in among them."""
    embedding = reservoir.layers[0].embedding
    within = sum(sum(layer.nonzeros) + layer.state_size for layer in reservoir.layers)
    return within + (0 if embedding is None else int(np.count_nonzero(embedding[...])))


def draw_frozen(config: EchoStateConfig, vocab_size: int, seed: int) -> tuple[dict, dict]:
    """The arrays of a reservoir, and a record of how it came about, to be saved with them."""
    drawn = weights.initialize_reservoir(config.reservoir, vocab_size, seed)
    record = {
        "seed": seed,
        "redraws": drawn.redraws,
        "radius_before_scaling": [dataclasses.asdict(radius) for radius in drawn.radii],
    }
    return drawn.reservoir.arrays(), record | {"nonzeros": _frozen_nonzeros(drawn.reservoir)}


def untrained(config: EchoStateConfig, vocab_size: int, seed: int, frozen: dict) -> EchoState:
    """The model as initialised: the reservoir of these arrays with a readout drawn from the seed."""
    reservoir = held.from_arrays(frozen, vocab_size)
    return EchoState(config, reservoir, linear.initialize(config.readout, config.feature_size, vocab_size, seed))
