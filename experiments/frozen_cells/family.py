"""The family: a deep readout with further frozen cells."""

from dataclasses import field

from esnlm.base.rng import generator
from esnlm.base.settings import settings
from esnlm.data.store import TokenStore
from esnlm.models.base import Counts
from esnlm.models.deep_readout import DeepReadout, DeepReadoutConfig, FrozenPart, frozen_size
from esnlm.models.trunk import TrunkConfig
from experiments.frozen_cells.attention import AttendedTokensConfig, Attention
from experiments.frozen_cells.diagonal import DiagonalConfig
from experiments.frozen_cells.gru import GruConfig

ATTENTION = 29  # number of the random stream


@settings
class AttendingTrunkConfig(TrunkConfig):
    """A trunk whose recent tokens may be weighted by attention."""

    recent_tokens: AttendedTokensConfig = field(default_factory=AttendedTokensConfig)


@settings
class FrozenCellsConfig(DeepReadoutConfig):
    """Reservoirs, diagonal units and a GRU side by side, under a deep readout [ours]."""

    family: str = "experiments.frozen_cells:FrozenCellsConfig"
    readout: AttendingTrunkConfig = field(default_factory=AttendingTrunkConfig)
    diagonal: DiagonalConfig = field(default_factory=DiagonalConfig)
    gru: GruConfig = field(default_factory=GruConfig)

    @property
    def frozen_parts(self) -> dict[str, FrozenPart]:
        parts = super().frozen_parts
        if self.diagonal.units:
            parts["diagonal"] = self.diagonal
        if self.gru.units:
            parts["gru"] = self.gru
        return parts

    @property
    def precomputed_width(self) -> int:
        return super().precomputed_width + self.readout.recent_tokens.attention.weights

    @property
    def projection_size(self) -> int:
        """Number of frozen entries of attention."""
        return self.readout.recent_tokens.attention.keys * frozen_size(self)

    def expected_counts(self, vocab_size: int) -> Counts:
        counts, size = super().expected_counts(vocab_size), self.projection_size
        return Counts(counts.trainable, counts.total + size, counts.entries + size)

    def frozen_bytes(self, vocab_size: int) -> int:
        return super().frozen_bytes(vocab_size) + 4 * self.projection_size

    def initialize_frozen(
        self, vocab_size: int, seed: int, text: TokenStore | None = None
    ) -> tuple[dict, dict]:
        arrays, record = super().initialize_frozen(vocab_size, seed, text)
        attention = self.readout.recent_tokens.attention
        if attention.heads:
            rng = generator(seed, ATTENTION)
            arrays["attention"] = {"projection": attention.initialize(frozen_size(self), rng)}
        return arrays, record

    def initialize(self, vocab_size: int, seed: int, frozen: dict) -> DeepReadout:
        model = super().initialize(vocab_size, seed, frozen)
        attention = self.readout.recent_tokens.attention
        if attention.heads:
            model.frozen = Attention(model.frozen, frozen["attention"]["projection"], attention)
        return model
