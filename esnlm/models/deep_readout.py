"""Frozen recurrences under a deep readout. What is trained is feed-forward, on numbers that are computed ahead of the updates.

Side by side the tokens are read by echo state networks, diagonal linear units and a frozen GRU, as many of them as are asked
for. What is trained above them is esnlm/trunk. So an update costs what its matrix products cost, and nothing is trained through
time. With one reservoir and none of the trunk's sections this is the sparse ESN of Ueda et al. 2025a. All else is [ours].
"""

from collections.abc import Callable
from dataclasses import field
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from esnlm.cells.attention import Attention, AttentionConfig
from esnlm.cells.diagonal import Diagonal, DiagonalConfig
from esnlm.cells.gru import Gru, GruConfig
from esnlm.cells.side_by_side import SideBySide
from esnlm.cells.token_history import TokenHistory
from esnlm.compute import ComputeConfig
from esnlm.data.store import TokenStore
from esnlm.errors import InputError
from esnlm.features.recurrence import State
from esnlm.features.stream import default_batch_slots
from esnlm.models import counted_bigram
from esnlm.models.base import READOUT_ARRAYS, Counts, ModelConfig, RecurrentModel, merge
from esnlm.models.counted_bigram import CountedBigram
from esnlm.models.echo_state import record_of_reservoir, reservoir_nonzeros
from esnlm.readout.linear import FullRankReadout
from esnlm.reservoir import cell, sparse, weights
from esnlm.reservoir.cell import Reservoir, Stack
from esnlm.reservoir.weights import ReservoirConfig
from esnlm.rng import Stream, generator
from esnlm.settings import Natural, settings
from esnlm.trunk import initial
from esnlm.trunk.trunk import Trunk, TrunkConfig


@settings
class DeepReadoutConfig(ModelConfig):
    """Frozen recurrences under a deep readout [ours]."""

    family: str = "deep_readout"
    reservoir: ReservoirConfig = field(default_factory=ReservoirConfig)
    reservoirs: Natural = 1  # echo state networks side by side, alike but for their weights; 0: none
    diagonal: DiagonalConfig = field(default_factory=DiagonalConfig)
    gru: GruConfig = field(default_factory=GruConfig)
    attention: AttentionConfig = field(default_factory=AttentionConfig)
    readout: TrunkConfig = field(default_factory=TrunkConfig)

    dropout = 0.0  # no setting: there is none

    def __post_init__(self) -> None:
        if not self.frozen_size:
            raise ValueError("reservoirs is 0: give diagonal.units or gru.units, or leave it out")
        if self.frozen_size == 1 and self.readout.normalize:
            raise ValueError("readout.normalize is true: of one feature, less its mean, nothing is left; leave it out")
        tokens = self.readout.recent_tokens
        if tokens.tied and not tokens.vectors(self.attention.heads):
            raise ValueError(
                "readout.recent_tokens.tied is true, and no embedding is looked up: give count, decays or attention.heads"
            )

    @property
    def title(self) -> str:
        cells = [f"ESN {self.reservoir.layers * self.reservoir.state_size:,}"] * (self.reservoirs > 0)
        cells = [f"{self.reservoirs} x {name}" if self.reservoirs > 1 else name for name in cells]
        cells += [f"diagonal {self.diagonal.units:,}"] * (self.diagonal.units > 0)
        cells += [f"GRU {self.gru.units:,}"] * (self.gru.units > 0)
        readout, tokens, ngrams = self.readout, self.readout.recent_tokens, self.readout.ngrams
        tied = "tied " * tokens.tied
        cells += [f"attention {self.attention.heads} to {tied}tokens of {tokens.width}"] * (self.attention.heads > 0)
        above = [f"{tokens.count} {tied}tokens of {tokens.width}"] * (tokens.count > 0)
        above += [f"{len(tokens.decays)} {tied}fading sum{'s' * (len(tokens.decays) > 1)} of {tokens.width}"] * (
            len(tokens.decays) > 0
        )
        above += [ngrams.title] * (len(ngrams.orders) > 0)
        above += [f"MLP {readout.gated_mlp.blocks} x {readout.gated_mlp.width:,}"] * (readout.gated_mlp.blocks > 0)
        below = [f"over a counted {readout.counted}"] * readout.is_counted
        return ", ".join([" + ".join(cells), *above, f"rank {readout.rank}", *below])

    @property
    def frozen_size(self) -> int:
        """The numbers of h, the features that frozen cells compute."""
        return self.reservoir_units + self.diagonal.units + self.gru.units

    @property
    def history(self) -> int:
        """The last tokens that the trunk sees."""
        return max(self.readout.history, self.attention.history)

    @property
    def ahead_size(self) -> int:
        return self.frozen_size + self.history + self.attention.weights

    @property
    def states_ahead(self) -> int:
        return self.frozen_size

    def trunk_size(self, vocab_size: int) -> int:
        window = self.attention.history
        return self.readout.held_per_token(self.frozen_size, window, self.attention.heads, vocab_size)

    @property
    def feature_size(self) -> int:
        return self.readout.rank + (1 if self.readout.is_counted else 0)  # z, and the id of the last token

    @property
    def states_in_features(self) -> int:
        return self.readout.rank

    @property
    def readout_can_be_padded(self) -> bool:
        return not self.readout.is_counted  # The counted model has no padded rows.

    @property
    def trains_ahead(self) -> bool:
        return True

    @property
    def reservoir_units(self) -> int:
        return self.reservoirs * self.reservoir.layers * self.reservoir.state_size

    @property
    def recurrent_entries(self) -> tuple[int, int]:
        reservoir = self.reservoir
        entries = self.reservoirs * (2 * reservoir.layers - 1) * reservoir.state_size**2
        of_gru = round(3 * self.gru.mean_degree * self.gru.units)
        return round(reservoir.recurrent_gamma * entries) + of_gru, entries + 3 * self.gru.units**2

    def kernel(self, backend: str) -> str:
        size, units = self.reservoir.state_size, self.gru.units
        wanted, full, if_dense = (
            "dense",
            0,
            0,
        )  # nonzeros of the matrices that want dense, and entries of those that do not
        if self.reservoirs:
            nonzeros = round(self.reservoir.recurrent_gamma * size * size)
            of_reservoir = sparse.choose_kernel(size, nonzeros, backend, self.reservoir.longest_row)
            if of_reservoir == "dense":
                full += nonzeros
            else:
                wanted, if_dense = of_reservoir, if_dense + size * size
        if units:
            nonzeros = round(self.gru.mean_degree * units)
            of_gru = sparse.choose_kernel(units, nonzeros, backend)
            if of_gru == "dense":
                full += nonzeros
            else:
                wanted, if_dense = of_gru if wanted == "dense" else wanted, if_dense + units * units
        # All cells have one kernel. Where they want different ones, dense is right as long as the sparse matrices, stored dense,
        # have no more entries than the full ones have already.
        return wanted if if_dense > full else "dense"

    def batch_slots(self, backend: str) -> int:
        return default_batch_slots(self.frozen_size, backend)

    @property
    def token_arrays(self) -> tuple[str, ...]:
        return (*READOUT_ARRAYS, "layers.recent_tokens.embedding")

    def expected_counts(self, vocab_size: int) -> Counts:
        trained = self.readout.parameters(self.frozen_size, self.attention.heads, vocab_size)
        matrices = self.reservoir.matrices(vocab_size)
        leaks = self.reservoir.layers * self.reservoir.state_size
        diagonal = self.diagonal.entries(vocab_size) + self.attention.heads * self.attention.width * self.frozen_size
        counted = vocab_size**2 * self.readout.is_counted  # Before the text is read, how many occur is not known.
        nonzeros = self.reservoirs * (leaks + sum(rows * columns * share for rows, columns, share in matrices))
        entries = self.reservoirs * (leaks + sum(rows * columns for rows, columns, _ in matrices))
        return Counts(
            trained,
            trained + round(nonzeros) + diagonal + self.gru.nonzeros(vocab_size),
            trained + entries + diagonal + self.gru.entries(vocab_size) + counted,
        )

    def flops_per_token(self, vocab_size: int) -> int:
        """Returns the operations of training. What is frozen has no gradient."""
        nonzeros, _ = self.recurrent_entries
        heads, keys = self.attention.heads, self.attention.heads * self.attention.width * self.frozen_size
        trained = self.readout.flops_per_token(self.frozen_size, heads, self.attention.weights, vocab_size)
        return 2 * (nonzeros + keys) + trained

    def frozen_bytes(self, vocab_size: int) -> int:
        sizes = [(rows * columns, share) for rows, columns, share in self.reservoir.matrices(vocab_size)]
        of_reservoir = sum(4 * size if share >= weights.DENSE_FROM else 12 * size * share for size, share in sizes)
        dense = self.diagonal.entries(vocab_size) + self.attention.heads * self.attention.width * self.frozen_size
        others = 4 * dense + 12 * self.gru.nonzeros(vocab_size)
        return round(self.reservoirs * of_reservoir + others) + self._table_bytes(vocab_size)

    def saved_frozen_bytes(self, vocab_size: int, tokens: int) -> int:
        table = self._table_bytes(vocab_size)
        pairs = counted_bigram.BYTES_OF_PAIR * min(vocab_size**2, tokens) if table else 0
        return self.frozen_bytes(vocab_size) - table + pairs

    def _table_bytes(self, vocab_size: int) -> int:
        """Returns the memory of the counted model, of which only the pairs are saved."""
        return counted_bigram.table_bytes(vocab_size, "model.readout.counted") if self.readout.is_counted else 0

    def initialize_frozen(self, vocab_size: int, seed: int, text: TokenStore | None = None) -> tuple[dict, dict]:
        self._table_bytes(vocab_size)
        # The first reservoir is that of an ESN with the same seed.
        seeds = [seed, *(_member_seed(seed, member) for member in range(1, self.reservoirs))][: self.reservoirs]
        members = [weights.initialize_reservoir(self.reservoir, vocab_size, own, text) for own in seeds]
        arrays: dict[str, dict] = {
            "reservoirs": {str(i): member.reservoir.arrays() for i, member in enumerate(members)}
        }
        if self.diagonal.units:
            arrays["diagonal"] = self.diagonal.initialize(vocab_size, generator(seed, Stream.DIAGONAL))
        if self.attention.heads:
            keys = self.attention.initialize(self.frozen_size, generator(seed, Stream.ATTENTION))
            arrays["attention"] = {"projection": keys}
        if self.gru.units:
            arrays["gru"] = self.gru.initialize(vocab_size, generator(seed, Stream.GRU))
        if self.readout.is_counted:
            if text is None:
                raise InputError(
                    f"model.readout.counted is {self.readout.counted}: it is counted on the training text, and there is none"
                    " here; train with train.py, or restore frozen/ from a copy of the run"
                )
            arrays["counted"] = counted_bigram.count(text, vocab_size)
        records = [record_of_reservoir(own, member) for own, member in zip(seeds, members, strict=True)]
        return arrays, {"seed": seed, "reservoirs": records}

    def initialize(self, vocab_size: int, seed: int, frozen: dict) -> "DeepReadout":
        """Returns the frozen cells of these arrays under random trained ones, which are as torch.nn.Linear begins.

        Over a counted model A and b_out are 0 instead, so that training begins with its probabilities [ours].
        """
        members = frozen.get("reservoirs", {})
        cells: list[Any] = [
            cell.from_arrays(members[str(member)], vocab_size, **self.reservoir.dynamics)
            for member in range(self.reservoirs)
        ]
        if self.diagonal.units:
            cells.append(Diagonal(**frozen["diagonal"]))
        if self.gru.units:
            cells.append(Gru.from_arrays(frozen["gru"], vocab_size))
        if self.history:
            cells.append(TokenHistory(self.history))
        heads, together = self.attention.heads, SideBySide(cells)
        attending = Attention(together, frozen["attention"]["projection"], self.attention) if heads else together
        rng, rank = generator(seed, Stream.WEIGHTS), self.readout.rank
        trunk = Trunk(self.readout, self.frozen_size, self.history, heads, vocab_size, rng)
        w, bias = initial.uniform(rng, rank, vocab_size, rank), initial.uniform(rng, rank, vocab_size)
        if not self.readout.is_counted:
            return DeepReadout(self, attending, trunk, FullRankReadout(w[...], bias[...]))
        readout = FullRankReadout(jnp.zeros_like(w[...]), jnp.zeros_like(bias[...]))
        return DeepReadout(self, attending, trunk, readout, CountedBigram(vocab_size, **frozen["counted"]))


class DeepReadout(RecurrentModel):
    """`frozen`, what reads the tokens; `layers`, the trunk; `readout`, A and b_out; and `counted`, what is under the logits."""

    config: DeepReadoutConfig

    def __init__(
        self,
        config: DeepReadoutConfig,
        frozen: SideBySide | Attention,
        layers: Trunk,
        readout: FullRankReadout,
        counted: CountedBigram | None = None,
    ) -> None:
        self.config, self.frozen, self.layers, self.readout, self.counted = config, frozen, layers, readout, counted

    @property
    def cell(self) -> SideBySide | Attention:
        return self.frozen

    def initial_state(self, slots: int, length: int | None = None) -> State:
        return self.frozen.initial_state(slots)

    def step(self, state: State, tokens: jax.Array) -> State:
        return self.frozen.step(state, tokens)

    def output(self, state: State) -> jax.Array:
        return self.layers(self.frozen.output(state).T, self.readout.w[...], self.precision).T

    def for_device(self, compute: ComputeConfig) -> "DeepReadout":
        ready = super().for_device(compute)
        ready.frozen = _for_device(self.frozen, compute)
        ready.counted = None if self.counted is None else self.counted.for_device()
        return ready

    @property
    def frozen_readout_arrays(self) -> dict:
        return {} if self.counted is None else {"prior": self.counted.prior()}

    @property
    def trunk(self) -> Callable[[dict, jax.Array], jax.Array]:
        graphdef, *(_, rest) = nnx.split(self.layers, nnx.Param, ...)
        precision = self.precision

        def apply(params: dict, ahead: jax.Array) -> jax.Array:
            return merge(graphdef, params["layers"], rest)(ahead, params["readout"]["w"], precision)

        return apply

    def counts(self) -> Counts:
        vocab_size = self.readout.bias.shape[0]
        expected = self.config.expected_counts(vocab_size)
        frozen = _nonzeros(self.frozen)
        frozen += 0 if self.counted is None else self.counted.pairs
        return Counts(expected.trainable, expected.trainable + frozen, expected.entries)


def _member_seed(seed: int, member: int) -> int:
    """Returns the seed of a further reservoir of an ensemble."""
    return int(generator(seed, Stream.MEMBER, member).integers(1 << 31))


def _nonzeros(part: Any) -> int:
    """Returns the frozen numbers of a cell that are not 0."""
    match part:
        case SideBySide():
            return sum(map(_nonzeros, part.cells))
        case Attention():
            return _nonzeros(part.cells) + part.projection[...].size
        case Diagonal() | Gru():
            return part.nonzeros
        case TokenHistory():
            return 0
        case Reservoir() | Stack():
            return reservoir_nonzeros(part)
    raise TypeError(f"{type(part).__name__} is no cell of a deep readout: add it here")


def _for_device(part: Any, compute: ComputeConfig) -> Any:
    """Returns a cell with the operands of the kernel of a device."""
    match part:
        case SideBySide():
            return SideBySide([_for_device(inner, compute) for inner in part.cells])
        case Attention():
            return Attention(_for_device(part.cells, compute), part.projection[...], part.config)
        case Diagonal() | TokenHistory():
            return part
        case Gru():
            return part.for_device(compute.kernel)
        case Reservoir() | Stack():
            return part.for_device(compute.kernel, state_precision=compute.state_precision)
    raise TypeError(f"{type(part).__name__} is no cell of a deep readout: add it here")
