"""Frozen recurrences under a deep readout: a trained feed-forward network on precomputed features.

One or several reservoirs read the tokens side by side. The trained part above them is
models/trunk.py, so that an update is a few matrix products without a gradient through time. With
one reservoir and none of the trunk's sections the model is the sparse ESN of Ueda et al. 2025a. The
rest is [ours].

Another family may add other frozen cells, as experiments/frozen_cells does: its configuration
inherits from DeepReadoutConfig and extends `frozen_parts`.
"""

from collections.abc import Callable
from dataclasses import field
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from flax import nnx

from esnlm.base.errors import InputError
from esnlm.base.rng import Stream, generator
from esnlm.base.settings import Natural, settings
from esnlm.data.store import TokenStore
from esnlm.features.recurrence import State
from esnlm.machine.compute import Recurrence, ResolvedCompute, SparseMatrix
from esnlm.models.base import READOUT_ARRAYS, Counts, ModelConfig, RecurrentModel, merge
from esnlm.models.echo_state import Reservoirs, reservoir_nonzeros
from esnlm.models.ngrams import CountedBigram, bigram_table_bytes, count_bigrams
from esnlm.models.trunk import TokenHistory, Trunk, TrunkConfig
from esnlm.readout.linear import FullRankReadout, uniform
from esnlm.reservoir.cell import ReservoirLayer, Stack
from esnlm.reservoir.weights import ReservoirConfig


class FrozenPart(Protocol):
    """Frozen cells of a deep readout, drawn and counted together."""

    @property
    def title(self) -> str:
        """The cells in a few words."""

    @property
    def size(self) -> int:
        """Number of features."""

    @property
    def matrices(self) -> tuple[SparseMatrix, ...]:
        """The recurrent matrices, for the choice of a kernel."""

    def counts(self, vocab_size: int) -> tuple[float, int]:
        """Returns the expected number of nonzeros, and the number of entries."""

    def frozen_bytes(self, vocab_size: int) -> float:
        """Returns the bytes of the arrays."""

    def initialize(
        self, vocab_size: int, seed: int, text: TokenStore | None
    ) -> tuple[dict, list[dict]]:
        """Draws the arrays, as nested dicts, and returns a record of them, which may be empty."""

    def cells(self, arrays: dict, vocab_size: int) -> list[Any]:
        """Returns the cells (features/recurrence.py) with these arrays."""


@settings
class DeepReadoutConfig(ModelConfig):
    """Frozen recurrences under a deep readout [ours]."""

    family: str = "deep_readout"
    reservoir: ReservoirConfig = field(default_factory=ReservoirConfig)
    # number of reservoirs side by side, with the same settings and different weights
    reservoirs: Natural = 1
    readout: TrunkConfig = field(default_factory=TrunkConfig)

    dropout = 0.0  # not a setting: the family has no dropout

    def __post_init__(self) -> None:
        if not self.frozen_parts:
            raise ValueError("reservoirs is 0: the readout would have no features")

    @property
    def frozen_parts(self) -> dict[str, FrozenPart]:
        """The frozen cells in the order of their features, by the name of their arrays."""
        return (
            {"reservoirs": Reservoirs(self.reservoir, self.reservoirs)} if self.reservoirs else {}
        )

    @property
    def title(self) -> str:
        cells = " + ".join(part.title for part in self.frozen_parts.values())
        return f"{cells}, {self.readout.title}"

    @property
    def precomputed_width(self) -> int:
        return frozen_size(self) + self.readout.history

    @property
    def feature_size(self) -> int:
        # z, and the id of the last token
        return self.readout.rank + (1 if self.readout.is_counted else 0)

    @property
    def recurrence(self) -> Recurrence:
        matrices = (matrix for part in self.frozen_parts.values() for matrix in part.matrices)
        return Recurrence(frozen_size(self), tuple(matrices))

    @property
    def readout_can_be_padded(self) -> bool:
        return not self.readout.is_counted  # The counted model has no padded rows.

    @property
    def token_arrays(self) -> tuple[str, ...]:
        return (*READOUT_ARRAYS, "layers.recent_tokens.embedding")

    def expected_counts(self, vocab_size: int) -> Counts:
        trained = self.readout.parameters(frozen_size(self), vocab_size)
        counts = [part.counts(vocab_size) for part in self.frozen_parts.values()]
        # How many counts of pairs are nonzero is unknown before the text is read.
        counted = vocab_size**2 * self.readout.is_counted
        return Counts(
            trained,
            trained + round(sum(nonzeros for nonzeros, _ in counts)),
            trained + sum(entries for _, entries in counts) + counted,
        )

    def frozen_bytes(self, vocab_size: int) -> int:
        table = bigram_table_bytes(vocab_size) if self.readout.is_counted else 0
        parts = self.frozen_parts.values()
        return table + round(sum(part.frozen_bytes(vocab_size) for part in parts))

    def initialize_frozen(
        self, vocab_size: int, seed: int, text: TokenStore | None = None
    ) -> tuple[dict, dict]:
        arrays: dict[str, dict] = {}
        records: dict[str, Any] = {"seed": seed}
        for name, part in self.frozen_parts.items():
            arrays[name], records[name] = part.initialize(vocab_size, seed, text)
        if self.readout.is_counted:
            bigram_table_bytes(vocab_size)
            if text is None:
                raise InputError(
                    "model.readout.counted is bigram: there is no training text to count"
                )
            arrays["counted"] = count_bigrams(text, vocab_size)
        return arrays, records

    def initialize(self, vocab_size: int, seed: int, frozen: dict) -> "DeepReadout":
        """Returns a model with these frozen arrays and trained arrays as torch.nn.Linear begins.

        With a counted model A and b_out are 0 instead, so that training begins with its
        probabilities [ours].
        """
        cells: list[Any] = []
        for name, part in self.frozen_parts.items():
            cells += part.cells(frozen[name], vocab_size)
        if self.readout.history:
            cells.append(TokenHistory(self.readout.history))
        rng, rank, counted = generator(seed, Stream.WEIGHTS), self.readout.rank, None
        trunk = Trunk(self.readout, frozen_size(self), vocab_size, rng)
        w = uniform(rng, (vocab_size, rank), fan_in=rank)
        bias = uniform(rng, (vocab_size,), fan_in=rank)
        if self.readout.is_counted:
            w, bias = jnp.zeros_like(w), jnp.zeros_like(bias)
            counted = CountedBigram(vocab_size, **frozen["counted"])
        return DeepReadout(self, SideBySide(cells), trunk, FullRankReadout(w, bias), counted)


def frozen_size(config: DeepReadoutConfig) -> int:
    """Returns the size of h, the features that the frozen cells compute."""
    return sum(part.size for part in config.frozen_parts.values())


class SideBySide(nnx.Module):
    """Several cells as one: the state is the tuple of their states, and their features are stacked.

    It has no dropout: no cell gets a mask.
    """

    def __init__(self, cells: list[Any]) -> None:
        self.cells = nnx.List(cells)

    @property
    def output_size(self) -> int:
        return sum(cell.output_size for cell in self.cells)

    @property
    def mask_size(self) -> int:
        return self.output_size

    @property
    def nonzeros(self) -> int:
        """Number of frozen nonzeros."""
        return sum(
            reservoir_nonzeros(cell) if isinstance(cell, ReservoirLayer | Stack) else cell.nonzeros
            for cell in self.cells
        )

    def for_device(self, kernel: str, *, state_precision: str = "float32") -> "SideBySide":
        return SideBySide(
            [cell.for_device(kernel, state_precision=state_precision) for cell in self.cells]
        )

    def initial_state(self, slots: int) -> State:
        return tuple(cell.initial_state(slots) for cell in self.cells)

    def embed(self, tokens: jax.Array, keep: jax.Array | None = None) -> tuple:
        assert keep is None, "nothing is dropped"
        return tuple(cell.embed(tokens) for cell in self.cells)

    def advance(self, state: State, x: tuple) -> State:
        parts = zip(self.cells, state, x, strict=True)
        return tuple(cell.advance(part, embedded) for cell, part, embedded in parts)

    def step(self, state: State, tokens: jax.Array) -> State:
        return tuple(cell.step(part, tokens) for cell, part in zip(self.cells, state, strict=True))

    def output(self, state: State) -> jax.Array:
        """Returns the features of all cells, the first on top, (F, B)."""
        parts = zip(self.cells, state, strict=True)
        return jnp.concatenate([cell.output(part) for cell, part in parts])


class DeepReadout(RecurrentModel):
    """Cells (`frozen`), trunk (`layers`), A and b_out (`readout`), a counted model (`counted`)."""

    config: DeepReadoutConfig

    def __init__(
        self,
        config: DeepReadoutConfig,
        frozen: SideBySide,
        layers: Trunk,
        readout: FullRankReadout,
        counted: CountedBigram | None = None,
    ) -> None:
        self.config, self.layers, self.readout = config, layers, readout
        self.frozen: Any = frozen
        self.counted = counted

    @property
    def cell(self) -> Any:
        return self.frozen

    def output(self, state: State) -> jax.Array:
        return self.layers(self.frozen.output(state).T, self.readout.w[...], self.precision).T

    def for_device(self, compute: ResolvedCompute) -> "DeepReadout":
        ready = super().for_device(compute)
        ready.frozen = self.frozen.for_device(
            compute.kernel, state_precision=compute.state_precision
        )
        ready.counted = None if self.counted is None else self.counted.for_device()
        return ready

    @property
    def hidden_size(self) -> int:
        return self.config.readout.rank

    @property
    def layer_sizes(self) -> dict[str, int]:
        rank = self.config.readout.rank
        return {"features": rank, "z": rank, "frozen": frozen_size(self.config)}

    def layer(self, name: str, state: State) -> jax.Array:
        if name != "frozen":
            return super().layer(name, state)
        return self.frozen.output(state)[: frozen_size(self.config)]

    @property
    def frozen_readout_arrays(self) -> dict:
        return {} if self.counted is None else {"prior": self.counted.prior()}

    @property
    def trunk(self) -> Callable[[dict, jax.Array], jax.Array]:
        graphdef, *(_, rest) = nnx.split(self.layers, nnx.Param, ...)
        precision = self.precision

        def apply(params: dict, features: jax.Array) -> jax.Array:
            layers = merge(graphdef, params["layers"], rest)
            return layers(features, params["readout"]["w"], precision)

        return apply

    def counts(self) -> Counts:
        expected = self.config.expected_counts(self.readout.bias.shape[0])
        pairs = 0 if self.counted is None else self.counted.pairs
        total = expected.trainable + self.frozen.nonzeros + pairs
        return Counts(expected.trainable, total, expected.entries)
