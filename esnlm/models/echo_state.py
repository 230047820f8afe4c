"""The echo state network language model: a frozen reservoir and a trained readout on its states.

With `train_input` W_in is trained too, by gradients through time and through the frozen arrays: the
ESN+i of Ueda et al. 2025b. In a stack of layers only W_in of the first layer is trained.
"""

import dataclasses
from dataclasses import field

import numpy as np

from esnlm.base.settings import Rate, settings
from esnlm.data.store import TokenStore
from esnlm.machine.compute import Recurrence, ResolvedCompute, SparseMatrix
from esnlm.models.base import READOUT_ARRAYS, Counts, ModelConfig, RecurrentModel
from esnlm.readout import linear
from esnlm.readout.linear import FullRankReadout, LowRankReadout, ReadoutConfig
from esnlm.reservoir import cell, weights
from esnlm.reservoir.cell import Reservoir, Stack
from esnlm.reservoir.weights import ReservoirConfig


@settings
class EchoStateConfig(ModelConfig):
    """An echo state network (Ueda et al. 2025a); with `train_input` an ESN+i (Ueda et al.
    2025b)."""

    family: str = "esn"
    reservoir: ReservoirConfig = field(default_factory=ReservoirConfig)
    readout: ReadoutConfig = field(default_factory=ReadoutConfig)
    train_input: bool = False  # train the nonzeros of W_in, too: ESN+i (Ueda et al. 2025b)
    # Dropout rate, applied to W_in u and to the copy of the states that the readout reads (Ueda et
    # al. 2025b).
    dropout: Rate = 0.0

    def __post_init__(self) -> None:
        if self.train_input and self.reservoir.embedding is not None:
            raise ValueError(
                "train_input is true: W_in cannot be trained behind reservoir.embedding; leave one"
                " of them out"
            )

    @property
    def title(self) -> str:
        reservoir, rank = self.reservoir, self.readout.rank
        name = ["ESN+i" if self.train_input else "ESN"]
        if reservoir.topology.kind != "erdos_renyi":
            name.append(reservoir.topology.kind.replace("_", " "))
        if reservoir.update_rule != "leaky_output":
            name.append(reservoir.update_rule.replace("_", " "))
        layers = "" if reservoir.layers == 1 else f"{reservoir.layers} x "
        parts = [
            " ".join([*name, f"{layers}{reservoir.state_size:,}"]),
            f"rank {rank}" if rank else "full rank",
        ]
        if reservoir.input_weights == "counted":
            parts.append("counted W_in")
        if reservoir.embedding is not None:
            parts.append(f"embedding {reservoir.embedding}")
        return ", ".join(parts)

    @property
    def feature_size(self) -> int:
        return self.reservoir.layers * self.reservoir.state_size

    @property
    def features_are_frozen(self) -> bool:
        return not self.train_input

    @property
    def recurrence(self) -> Recurrence:
        return Recurrence(self.reservoir.state_size, (recurrent_matrix(self.reservoir),))

    @property
    def linear_readout(self) -> ReadoutConfig:
        return self.readout

    @property
    def token_arrays(self) -> tuple[str, ...]:
        layer = "layers.0." if self.reservoir.layers > 1 else ""
        return (*READOUT_ARRAYS, f"reservoir.{layer}input.values")

    def expected_counts(self, vocab_size: int) -> Counts:
        """Returns the counts of Ueda et al. 2025a, section 2.3: frozen (N + V) d + N, trainable (N
        + V) r + V.

        With L layers, each has a leak and two frozen matrices, and the readout is F = L N wide.
        Embeddings are frozen.
        """
        reservoir = self.reservoir
        in_readout = linear.count(self.readout, self.feature_size, vocab_size)
        trained = (
            vocab_size * reservoir.input_gamma * reservoir.state_size if self.train_input else 0
        )
        nonzeros, entries = reservoir_numbers(reservoir, vocab_size)
        trainable = in_readout + round(trained)
        return Counts(trainable, trainable + round(nonzeros - trained), in_readout + entries)

    def frozen_bytes(self, vocab_size: int) -> int:
        return round(reservoir_bytes(self.reservoir, vocab_size))

    def initialize_frozen(
        self, vocab_size: int, seed: int, text: TokenStore | None = None
    ) -> tuple[dict, dict]:
        initialized = weights.initialize_reservoir(self.reservoir, vocab_size, seed, text)
        return initialized.reservoir.arrays(), record_of_reservoir(seed, initialized)

    def initialize(self, vocab_size: int, seed: int, frozen: dict) -> "EchoState":
        """Returns a reservoir with these arrays and a random readout."""
        reservoir = cell.from_arrays(frozen, vocab_size, **self.reservoir.dynamics)
        if self.train_input:
            reservoir = cell.with_input(reservoir, cell.TrainedInput)
        return EchoState(
            self, reservoir, linear.initialize(self.readout, self.feature_size, vocab_size, seed)
        )


class EchoState(RecurrentModel):
    """`reservoir` and `readout`.

    The readout is trained, and in an ESN+i also `reservoir.input.values`, or
    `reservoir.layers[0].input.values`: the table of W_in's columns that TrainedInput describes. The
    recurrence runs in float32 in any precision, except that `compute.state_precision` may round the
    input of W_rec.
    """

    config: EchoStateConfig

    def __init__(
        self,
        config: EchoStateConfig,
        reservoir: Reservoir | Stack,
        readout: LowRankReadout | FullRankReadout,
    ) -> None:
        self.config, self.reservoir, self.readout = config, reservoir, readout

    @property
    def cell(self) -> Reservoir | Stack:
        return self.reservoir

    def for_device(self, compute: ResolvedCompute) -> "EchoState":
        ready = super().for_device(compute)
        ready.reservoir = self.reservoir.for_device(
            compute.kernel,
            state_precision=compute.state_precision,
            differentiable=self.config.train_input,
        )
        return ready

    def counts(self) -> Counts:
        config, vocab_size = self.config, self.reservoir.vocab_size
        in_readout = linear.count(config.readout, config.feature_size, vocab_size)
        trainable = in_readout + (self.reservoir.layers[0].nonzeros[1] if config.train_input else 0)
        total = in_readout + reservoir_nonzeros(self.reservoir)
        return Counts(
            trainable, total, in_readout + reservoir_numbers(config.reservoir, vocab_size)[1]
        )


# ---- for every model with a reservoir ----


def recurrent_matrix(reservoir: ReservoirConfig) -> SparseMatrix:
    """Returns the size of W_rec of each layer, and of W_in above the first layer, as one sparse
    matrix."""
    size = reservoir.state_size
    nonzeros = round(reservoir.recurrent_gamma * size * size)
    return SparseMatrix(size, nonzeros, copies=2 * reservoir.layers - 1)


def reservoir_numbers(reservoir: ReservoirConfig, vocab_size: int) -> tuple[float, int]:
    """Returns the expected number of nonzeros, and the number of entries, of all matrices and
    leaks."""
    matrices, leaks = reservoir.matrices(vocab_size), reservoir.layers * reservoir.state_size
    nonzeros = sum(rows * columns * share for rows, columns, share in matrices)
    return nonzeros + leaks, sum(rows * columns for rows, columns, _ in matrices) + leaks


def reservoir_bytes(reservoir: ReservoirConfig, vocab_size: int) -> float:
    """Returns the bytes of a saved reservoir.

    A dense matrix takes 4 bytes per entry. A sparse one takes 12 per nonzero, a value and two
    indices of 4 each.
    """
    sizes = [(rows * columns, share) for rows, columns, share in reservoir.matrices(vocab_size)]
    matrices = sum(
        4 * size if share >= weights.DENSE_FROM else 12 * size * share for size, share in sizes
    )
    return 4 * reservoir.layers * reservoir.state_size + matrices


def record_of_reservoir(seed: int, initialized: weights.InitializedReservoir) -> dict:
    """Returns a reservoir's record for frozen/: its seed, discarded draws, radii before scaling,
    and nonzeros."""
    return {
        "seed": seed,
        "redraws": initialized.redraws,
        "radius_before_scaling": [dataclasses.asdict(radius) for radius in initialized.radii],
        "nonzeros": reservoir_nonzeros(initialized.reservoir),
    }


def reservoir_nonzeros(reservoir: Reservoir | Stack) -> int:
    """Returns the number of nonzeros in W_rec, W_in, leak and embedding of all layers; a trained
    W_in counts, too."""
    embedding = reservoir.layers[0].embedding
    in_layers = sum(sum(layer.nonzeros) + layer.state_size for layer in reservoir.layers)
    return in_layers + (0 if embedding is None else int(np.count_nonzero(embedding[...])))
