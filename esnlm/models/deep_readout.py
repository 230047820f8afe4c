"""Frozen recurrences under a deep readout, which is feed-forward and reads precomputed features.

Echo state networks, diagonal linear units and a frozen GRU, as the settings ask, read the tokens
side by side. The trained part above them is esnlm/trunk, so that an update is a few matrix products
without a gradient through time. With one reservoir and none of the trunk's sections the model is
the sparse ESN of Ueda et al. 2025a. The rest is [ours].
"""

from collections.abc import Callable
from dataclasses import field
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from esnlm.base.errors import InputError
from esnlm.base.rng import Stream, generator
from esnlm.base.settings import Natural, settings
from esnlm.data.store import TokenStore
from esnlm.features.recurrence import State
from esnlm.machine.compute import Recurrence, ResolvedCompute, SparseMatrix
from esnlm.models import counted_bigram
from esnlm.models.base import READOUT_ARRAYS, Counts, ModelConfig, RecurrentModel, merge
from esnlm.models.cells.attention import Attention, AttentionConfig
from esnlm.models.cells.diagonal import Diagonal, DiagonalConfig
from esnlm.models.cells.gru import Gru, GruConfig
from esnlm.models.counted_bigram import CountedBigram
from esnlm.models.echo_state import (
    record_of_reservoir,
    recurrent_matrix,
    reservoir_bytes,
    reservoir_nonzeros,
    reservoir_numbers,
)
from esnlm.models.side_by_side import SideBySide
from esnlm.models.token_history import TokenHistory
from esnlm.models.trunk import initial
from esnlm.models.trunk.trunk import Trunk, TrunkConfig
from esnlm.readout.linear import FullRankReadout
from esnlm.reservoir import cell, weights
from esnlm.reservoir.cell import Reservoir, Stack
from esnlm.reservoir.weights import ReservoirConfig


@settings
class DeepReadoutConfig(ModelConfig):
    """Frozen recurrences under a deep readout [ours]."""

    family: str = "deep_readout"
    reservoir: ReservoirConfig = field(default_factory=ReservoirConfig)
    # number of reservoirs side by side, with the same settings and different weights; 0: none
    reservoirs: Natural = 1
    diagonal: DiagonalConfig = field(default_factory=DiagonalConfig)
    gru: GruConfig = field(default_factory=GruConfig)
    attention: AttentionConfig = field(default_factory=AttentionConfig)
    readout: TrunkConfig = field(default_factory=TrunkConfig)

    dropout = 0.0  # not a setting: the family has no dropout

    def __post_init__(self) -> None:
        if not frozen_size(self):
            raise ValueError("reservoirs is 0: give diagonal.units or gru.units, or leave it out")
        tokens = self.readout.recent_tokens
        if tokens.tied and not tokens.vectors(self.attention.heads):
            raise ValueError(
                "readout.recent_tokens.tied is true, but no embedding is used: give count, decays"
                " or attention.heads"
            )

    @property
    def title(self) -> str:
        readout, tokens, ngrams = self.readout, self.readout.recent_tokens, self.readout.ngrams
        tied, parts = "tied " if tokens.tied else "", []
        if self.reservoirs:
            each = f"ESN {self.reservoir.layers * self.reservoir.state_size:,}"
            parts.append(each if self.reservoirs == 1 else f"{self.reservoirs} x {each}")
        if self.diagonal.units:
            parts.append(f"diagonal {self.diagonal.units:,}")
        if self.gru.units:
            parts.append(f"GRU {self.gru.units:,}")
        if self.attention.heads:
            parts.append(f"attention {self.attention.heads} to {tied}tokens of {tokens.width}")
        above = [" + ".join(parts)]
        if tokens.count:
            above.append(f"{tokens.count} {tied}tokens of {tokens.width}")
        if sums := len(tokens.decays):
            above.append(f"{sums} {tied}fading sum{'s' * (sums > 1)} of {tokens.width}")
        if ngrams.orders:
            above.append(ngrams.title)
        if readout.gated_mlp.blocks:
            above.append(f"MLP {readout.gated_mlp.blocks} x {readout.gated_mlp.width:,}")
        above.append(f"rank {readout.rank}")
        if readout.is_counted:
            above.append(f"over a counted {readout.counted}")
        return ", ".join(above)

    @property
    def precomputed_width(self) -> int:
        return frozen_size(self) + history(self) + self.attention.weights

    @property
    def feature_size(self) -> int:
        # z, and the id of the last token
        return self.readout.rank + (1 if self.readout.is_counted else 0)

    @property
    def recurrence(self) -> Recurrence:
        matrices = []
        if self.reservoirs:
            own = recurrent_matrix(self.reservoir)
            matrices.append(own._replace(copies=self.reservoirs * own.copies))
        if self.gru.units:
            matrices.append(
                SparseMatrix(self.gru.units, round(self.gru.mean_degree * self.gru.units), copies=3)
            )
        return Recurrence(frozen_size(self), tuple(matrices))

    @property
    def readout_can_be_padded(self) -> bool:
        return not self.readout.is_counted  # The counted model has no padded rows.

    @property
    def token_arrays(self) -> tuple[str, ...]:
        return (*READOUT_ARRAYS, "layers.recent_tokens.embedding")

    def expected_counts(self, vocab_size: int) -> Counts:
        trained = self.readout.parameters(frozen_size(self), self.attention.heads, vocab_size)
        nonzeros, entries = reservoir_numbers(self.reservoir, vocab_size)
        dense = self._dense_numbers(vocab_size)
        # How many are nonzero is unknown before the text is read.
        counted = vocab_size**2 * self.readout.is_counted
        return Counts(
            trained,
            trained + round(self.reservoirs * nonzeros) + dense + self.gru.nonzeros(vocab_size),
            trained + self.reservoirs * entries + dense + self.gru.entries(vocab_size) + counted,
        )

    def frozen_bytes(self, vocab_size: int) -> int:
        others = 4 * self._dense_numbers(vocab_size) + 12 * self.gru.nonzeros(vocab_size)
        table = counted_bigram.table_bytes(vocab_size) if self.readout.is_counted else 0
        return round(self.reservoirs * reservoir_bytes(self.reservoir, vocab_size) + others) + table

    def _dense_numbers(self, vocab_size: int) -> int:
        """Returns the number of frozen entries of the diagonal units and of attention."""
        return self.diagonal.entries(
            vocab_size
        ) + self.attention.heads * self.attention.width * frozen_size(self)

    def initialize_frozen(
        self, vocab_size: int, seed: int, text: TokenStore | None = None
    ) -> tuple[dict, dict]:
        # The first reservoir equals that of an ESN with the same seed.
        seeds = [seed, *(_member_seed(seed, member) for member in range(1, self.reservoirs))][
            : self.reservoirs
        ]
        members = [
            weights.initialize_reservoir(self.reservoir, vocab_size, own, text) for own in seeds
        ]
        arrays: dict[str, dict] = {
            "reservoirs": {str(i): member.reservoir.arrays() for i, member in enumerate(members)}
        }
        if self.diagonal.units:
            arrays["diagonal"] = self.diagonal.initialize(
                vocab_size, generator(seed, Stream.DIAGONAL)
            )
        if self.attention.heads:
            keys = self.attention.initialize(frozen_size(self), generator(seed, Stream.ATTENTION))
            arrays["attention"] = {"projection": keys}
        if self.gru.units:
            arrays["gru"] = self.gru.initialize(vocab_size, generator(seed, Stream.GRU))
        if self.readout.is_counted:
            counted_bigram.table_bytes(vocab_size)
            if text is None:
                raise InputError(
                    "model.readout.counted is bigram: there is no training text to count"
                )
            arrays["counted"] = counted_bigram.count(text, vocab_size)
        records = [
            record_of_reservoir(own, member) for own, member in zip(seeds, members, strict=True)
        ]
        return arrays, {"seed": seed, "reservoirs": records}

    def initialize(self, vocab_size: int, seed: int, frozen: dict) -> "DeepReadout":
        """Returns a model with these frozen arrays and trained arrays initialized as
        torch.nn.Linear does.

        With a counted model A and b_out are 0 instead, so that training begins with its
        probabilities [ours].
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
        if history(self):
            cells.append(TokenHistory(history(self)))
        heads, together = self.attention.heads, SideBySide(cells)
        attending = (
            Attention(together, frozen["attention"]["projection"], self.attention)
            if heads
            else together
        )
        rng, rank = generator(seed, Stream.WEIGHTS), self.readout.rank
        trunk = Trunk(self.readout, frozen_size(self), history(self), heads, vocab_size, rng)
        w, bias = (
            initial.uniform(rng, rank, vocab_size, rank),
            initial.uniform(rng, rank, vocab_size),
        )
        if not self.readout.is_counted:
            return DeepReadout(self, attending, trunk, FullRankReadout(w[...], bias[...]))
        readout = FullRankReadout(jnp.zeros_like(w[...]), jnp.zeros_like(bias[...]))
        return DeepReadout(
            self, attending, trunk, readout, CountedBigram(vocab_size, **frozen["counted"])
        )


class DeepReadout(RecurrentModel):
    """The frozen cells (`frozen`), the trunk (`layers`), A and b_out (`readout`) and a counted
    model (`counted`)."""

    config: DeepReadoutConfig

    def __init__(
        self,
        config: DeepReadoutConfig,
        frozen: SideBySide | Attention,
        layers: Trunk,
        readout: FullRankReadout,
        counted: CountedBigram | None = None,
    ) -> None:
        self.config, self.frozen, self.layers, self.readout, self.counted = (
            config,
            frozen,
            layers,
            readout,
            counted,
        )

    @property
    def cell(self) -> SideBySide | Attention:
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
    def states_in_features(self) -> int:
        return self.config.readout.rank

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
        frozen = 0 if self.counted is None else self.counted.pairs
        together = self.frozen
        if isinstance(together, Attention):
            frozen += together.projection[...].size
            together = together.cells
        for each in together.cells:
            is_reservoir = isinstance(each, Reservoir | Stack)
            frozen += reservoir_nonzeros(each) if is_reservoir else each.nonzeros
        return Counts(expected.trainable, expected.trainable + frozen, expected.entries)


def frozen_size(config: DeepReadoutConfig) -> int:
    """Returns the size of h, the features that the frozen cells compute."""
    in_reservoirs = config.reservoirs * config.reservoir.layers * config.reservoir.state_size
    return in_reservoirs + config.diagonal.units + config.gru.units


def history(config: DeepReadoutConfig) -> int:
    """Returns the number of last tokens that the trunk reads."""
    return max(config.readout.history, config.attention.history)


def _member_seed(seed: int, member: int) -> int:
    """Returns the seed of reservoir number `member`; the first one has the run's seed."""
    return int(generator(seed, Stream.MEMBER, member).integers(1 << 31))
