"""The echo state network language model: a frozen reservoir and a trained readout on its states.

With `train_input` W_in is trained too, by gradients through time and through the frozen arrays: the
ESN+i of Ueda et al. 2025b. In a stack of layers only W_in of the first layer is trained.
"""

from dataclasses import asdict, dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from esnlm.base.rng import Stream, generator
from esnlm.base.settings import Rate, settings
from esnlm.data.store import TokenStore
from esnlm.machine.compute import Recurrence, ResolvedCompute, SparseMatrix
from esnlm.machine.matmul import matmul
from esnlm.models.base import READOUT_ARRAYS, Counts, ModelConfig, RecurrentModel
from esnlm.readout import linear
from esnlm.readout.linear import FullRankReadout, LowRankReadout, ReadoutConfig
from esnlm.reservoir import cell, weights
from esnlm.reservoir.cell import ReservoirLayer, Stack
from esnlm.reservoir.on_host import HostLayer, host_layers
from esnlm.reservoir.weights import ReservoirConfig


@dataclass(frozen=True)
class Reservoirs:
    """Reservoirs with the same settings and different weights, of any model.

    They are a FrozenPart of a deep readout, which describes the methods.
    """

    config: ReservoirConfig
    number: int = 1

    @property
    def title(self) -> str:
        title = f"ESN {self.config.layers * self.config.state_size:,}"
        return title if self.number == 1 else f"{self.number} x {title}"

    @property
    def size(self) -> int:
        return self.number * self.config.layers * self.config.state_size

    @property
    def matrices(self) -> tuple[SparseMatrix, ...]:
        """W_rec of each layer, and W_in above the first layer, which is as sparse."""
        size, copies = self.config.state_size, self.number * (2 * self.config.layers - 1)
        nonzeros = round(self.config.recurrent_gamma * size * size)
        return (SparseMatrix(size, nonzeros, copies),)

    def counts(self, vocab_size: int) -> tuple[float, int]:
        sizes = self._sizes(vocab_size)
        nonzeros = sum(size * share for size, share in sizes) + self.size
        return nonzeros, sum(size for size, _ in sizes) + self.size

    def frozen_bytes(self, vocab_size: int) -> float:
        # A dense matrix takes 4 bytes per entry; a sparse one 12 per nonzero, with two indices.
        return 4 * self.size + sum(
            4 * size if share >= weights.DENSE_FROM else 12 * size * share
            for size, share in self._sizes(vocab_size)
        )

    def initialize(
        self, vocab_size: int, seed: int, text: TokenStore | None
    ) -> tuple[dict, list[dict]]:
        """The first reservoir depends on the seed alone, as that of an ESN."""
        arrays, records = {}, []
        for number in range(self.number):
            draws = generator(seed, Stream.MEMBER, number)
            member_seed = int(draws.integers(1 << 31)) if number else seed
            drawn = weights.initialize_reservoir(self.config, vocab_size, member_seed, text)
            arrays[str(number)] = drawn.reservoir.arrays()
            records.append(
                {
                    "seed": member_seed,
                    "redraws": drawn.redraws,
                    "radius_before_scaling": [asdict(radius) for radius in drawn.radii],
                    "nonzeros": reservoir_nonzeros(drawn.reservoir),
                }
            )
        return arrays, records

    def cells(self, arrays: dict, vocab_size: int) -> list[Any]:
        return [
            cell.from_arrays(arrays[str(number)], vocab_size, **self.config.dynamics)
            for number in range(self.number)
        ]

    def _sizes(self, vocab_size: int) -> list[tuple[int, float]]:
        """Returns the entries of each matrix and their share of nonzeros."""
        matrices = self.number * self.config.matrices(vocab_size)
        return [(rows * columns, share) for rows, columns, share in matrices]


@settings
class EchoStateConfig(ModelConfig):
    """An echo state network (Ueda et al. 2025a); `train_input`: an ESN+i (Ueda et al. 2025b)."""

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
            name.append(reservoir.topology.kind.rpartition(":")[2].replace("_", " "))
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
        return Recurrence(self.reservoir.state_size, Reservoirs(self.reservoir).matrices)

    @property
    def linear_readout(self) -> ReadoutConfig:
        return self.readout

    @property
    def token_arrays(self) -> tuple[str, ...]:
        layer = "layers.0." if self.reservoir.layers > 1 else ""
        return (*READOUT_ARRAYS, f"reservoir.{layer}input.values")

    def expected_counts(self, vocab_size: int) -> Counts:
        """Returns frozen (N + V) d + N, trainable (N + V) r + V (Ueda et al. 2025a, section 2.3).

        With L layers, each has a leak and two frozen matrices, and the readout is F = L N wide.
        Embeddings are frozen.
        """
        reservoir, trained = self.reservoir, 0.0
        in_readout = linear.count(self.readout, self.feature_size, vocab_size)
        if self.train_input:
            trained = vocab_size * reservoir.input_gamma * reservoir.state_size
        nonzeros, entries = Reservoirs(reservoir).counts(vocab_size)
        trainable = in_readout + round(trained)
        return Counts(trainable, trainable + round(nonzeros - trained), in_readout + entries)

    def frozen_bytes(self, vocab_size: int) -> int:
        return round(Reservoirs(self.reservoir).frozen_bytes(vocab_size))

    def initialize_frozen(
        self, vocab_size: int, seed: int, text: TokenStore | None = None
    ) -> tuple[dict, dict]:
        arrays, records = Reservoirs(self.reservoir).initialize(vocab_size, seed, text)
        return arrays["0"], records[0]

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
        reservoir: ReservoirLayer | Stack,
        readout: LowRankReadout | FullRankReadout,
    ) -> None:
        self.config, self.reservoir, self.readout = config, reservoir, readout

    @property
    def cell(self) -> ReservoirLayer | Stack:
        return self.reservoir

    def for_device(self, compute: ResolvedCompute) -> "EchoState":
        ready = super().for_device(compute)
        ready.reservoir = self.reservoir.for_device(
            compute.kernel,
            state_precision=compute.state_precision,
            differentiable=self.config.train_input,
        )
        return ready

    def host_layers(self) -> list[HostLayer] | None:
        if self.reservoir.layers[0].embedding is not None:
            return None
        return host_layers(self.reservoir, np.float32, reads_tokens=True)

    @property
    def layer_sizes(self) -> dict[str, int]:
        sizes = super().layer_sizes | reservoir_layers(self.reservoir)
        rank = self.config.readout.rank
        return sizes if rank is None else sizes | {"z": rank}

    def layer(self, name: str, state: Any) -> jax.Array:
        h = reservoir_layer(self.reservoir, name, state)
        if name != "z":
            return h
        assert isinstance(self.readout, LowRankReadout)
        return matmul(self.readout.b[...], h, (1, 0), self.precision)

    def counts(self) -> Counts:
        config, vocab_size = self.config, self.reservoir.vocab_size
        in_readout = linear.count(config.readout, config.feature_size, vocab_size)
        trainable = in_readout + (self.reservoir.layers[0].nonzeros[1] if config.train_input else 0)
        total = in_readout + reservoir_nonzeros(self.reservoir)
        return Counts(trainable, total, config.expected_counts(vocab_size).entries)


def reservoir_layers(reservoir: ReservoirLayer | Stack) -> dict[str, int]:
    """Returns the sizes of a reservoir ("reservoir") and of each layer ("layer0", ...)."""
    layers = {f"layer{i}": layer.output_size for i, layer in enumerate(reservoir.layers)}
    return {"reservoir": sum(layers.values())} | layers


def reservoir_layer(reservoir: ReservoirLayer | Stack, name: str, state: Any) -> jax.Array:
    """Returns the outputs of one layer (N, B), by its name; by any other name all, (L N, B)."""
    outputs = reservoir.output(state)
    if not name.startswith("layer"):
        return outputs
    return jnp.split(outputs, len(reservoir.layers))[int(name.removeprefix("layer"))]


def reservoir_nonzeros(reservoir: ReservoirLayer | Stack) -> int:
    """Returns the number of nonzeros of all layers; those of a trained W_in count, too."""
    embedding = reservoir.layers[0].embedding
    in_layers = sum(sum(layer.nonzeros) + layer.state_size for layer in reservoir.layers)
    return in_layers + (0 if embedding is None else int(np.count_nonzero(embedding[...])))
