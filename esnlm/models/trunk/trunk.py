"""The trunk of a deep readout: the trained feed-forward part between frozen features and the last
matrix A.

    z = gated blocks of (B h + embeddings of the last tokens and n-grams);   o = A z + b_out

h is the output of the frozen cells, with `normalize` standardized for each token. With `counted`
the readout adds the log p of a counted model to o [ours], for which the trunk passes on the last
token.
"""

from dataclasses import field
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from esnlm.base.settings import Count, settings
from esnlm.machine.matmul import matmul
from esnlm.models.token_history import ids_of
from esnlm.models.trunk import initial
from esnlm.models.trunk.gated_mlp import GatedMlp, GatedMlpConfig
from esnlm.models.trunk.hashed_ngrams import HashedNgrams, HashedNgramsConfig
from esnlm.models.trunk.recent_tokens import RecentTokens, RecentTokensConfig

TINY = 1e-6  # added to the variance, so that an h of equal numbers becomes zeros


@settings
class TrunkConfig:
    """A deep readout. Without its optional sections it is W_out = A B (Ueda et al. 2025a)."""

    rank: Count = 512  # r, width of the input of the last matrix A (Ueda et al. 2025a) [r_out]
    # standardize h for each token: subtract its mean, divide by its standard deviation
    normalize: bool = False
    # add log p of a bigram model counted in the text [ours] to the logits
    counted: Literal["none", "bigram"] = "none"
    recent_tokens: RecentTokensConfig = field(default_factory=RecentTokensConfig)
    ngrams: HashedNgramsConfig = field(default_factory=HashedNgramsConfig)
    gated_mlp: GatedMlpConfig = field(default_factory=GatedMlpConfig)

    def __post_init__(self) -> None:
        tokens = self.recent_tokens
        if tokens.tied and tokens.width != self.rank:
            raise ValueError(
                f"recent_tokens.width is {tokens.width}: tied to the readout it must be rank ="
                f" {self.rank}"
            )
        if tokens.tied and self.is_counted:
            # With a counted model A begins at 0, and so would all tied embeddings.
            raise ValueError("recent_tokens.tied is true: it must be false with a counted model")

    @property
    def history(self) -> int:
        """Number of last tokens needed beside h."""
        return max(self.recent_tokens.history, self.ngrams.history, 1 if self.is_counted else 0)

    @property
    def is_counted(self) -> bool:
        """Whether the logits include a counted model, which needs the last token."""
        return self.counted != "none"

    def parameters(self, width: int, heads: int, vocab_size: int) -> int:
        """Returns the number of trained entries with A and b_out, for a width of h and attention
        heads."""
        rank = self.rank
        by_token = self.recent_tokens.parameters(vocab_size, rank, heads) + self.ngrams.parameters(
            rank
        )
        ends = self.rank * (width + vocab_size) + vocab_size
        return ends + by_token + self.gated_mlp.parameters(self.rank)


class Trunk(nnx.Module):
    """`b` (r, N), and `recent_tokens`, `ngrams` and `gated_mlp` if the settings have them."""

    def __init__(
        self,
        config: TrunkConfig,
        width: int,
        history: int,
        heads: int,
        vocab_size: int,
        rng: np.random.Generator,
    ) -> None:
        rank = config.rank
        self.width, self.history, self.normalize = width, history, config.normalize
        self.appends_id = config.is_counted
        self.b = initial.uniform(rng, width, rank, width)
        tokens, ngrams = config.recent_tokens, config.ngrams
        self.recent_tokens = (
            RecentTokens(tokens, heads, vocab_size, rank, rng) if tokens.vectors(heads) else None
        )
        self.ngrams = HashedNgrams(ngrams, rank, rng) if ngrams.orders else None
        self.gated_mlp = GatedMlp(config.gated_mlp, rank, rng) if config.gated_mlp.blocks else None

    def __call__(self, features: jax.Array, a: jax.Array, precision: str) -> jax.Array:
        """Returns z (C, r); with a counted model, z and the id of the last token, (C, r + 1).

        Args:
            features: side by side h (C, N), the last tokens in the form of TokenHistory (C, K), and
                attention weights.
            a: the last matrix, (V, r), whose rows are tied embeddings.
            precision: of the products (ops/matmul.py).
        """
        h, history, attention = jnp.split(features, (self.width, self.width + self.history), axis=1)
        z, ids = (
            matmul(_standardized(h) if self.normalize else h, self.b[...], (1, 1), precision),
            ids_of(history),
        )
        if self.recent_tokens is not None:
            z = z + self.recent_tokens(ids, attention, a, precision)
        if self.ngrams is not None:
            z = z + self.ngrams(ids, precision)
        z = z if self.gated_mlp is None else self.gated_mlp(z, precision)
        return jnp.concatenate([z, ids[:, :1].astype(z.dtype)], axis=1) if self.appends_id else z


def _standardized(h: jax.Array) -> jax.Array:
    centred = h - h.mean(axis=1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(axis=1, keepdims=True) + TINY)
