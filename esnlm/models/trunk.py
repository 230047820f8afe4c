"""The trunk of a deep readout, which is trained: from frozen features h to the last matrix A.

    z = B n(h) + sum_k W_k E[token_{t - k}] + sum_j V_j s_j + n-grams,   k = 0 .. K - 1
    s_j = sum_m d_j^m E[token_{t - m}] / sqrt(sum_m d_j^(2 m)),          m = 0 .. M - 1
    z' = z + W_down (silu(W_gate norm(z)) * W_up norm(z))    in each gated block; at the end norm(z)
    o = A z + b_out

With `normalize`, n subtracts h's mean and divides by its standard deviation; else n(h) = h. The
embeddings E give the readout what a trained W_in gives an ESN+i (Ueda et al. 2025b), without a
gradient through time. The first sum over them is the input layer of Bengio et al. 2003. A fading
sum s_j decays exponentially with the distance; its divisor makes it as large as an embedding. The
gated unit is that of Shazeer 2020, and norm(z) = g * z / sqrt(mean(z^2)) (Zhang, Sennrich 2019).

n-grams are trained embeddings of the last n tokens together, for some n, in hashed tables:

    c sum_n W_n G_n[hash(token_{t - n + 1}, ..., token_t)],   c the `multiplier`

Different n-grams may share a row: a table is far smaller than the number of n-grams, and frequent
ones dominate their rows. Most n-grams of new text are rare or unseen; with `initial_scale` 0 their
rows add no noise. Rows that begin at 0 stay small for long, since AdamW moves a number by about the
learning rate per update; a `multiplier` above 1 helps.

E is a trained array of its own, or tied to A (Press and Wolf 2017): E = sqrt(r) A. The factor is
from Vaswani et al. 2017: A begins with entries of about 1 / sqrt(r), other embeddings with about 1.
"""

from dataclasses import field
from functools import partial
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax
from pydantic import Field

from esnlm.base.settings import Count, Natural, NonNegative, Positive, settings
from esnlm.features.recurrence import ArrayCell
from esnlm.machine.matmul import einsum, matmul
from esnlm.readout.linear import append_ids, normal, uniform

Decay = Annotated[float, Field(gt=0, le=1)]
MAX_ORDER = 8  # maximum tokens of an n-gram
Order = Annotated[int, Field(ge=2, le=MAX_ORDER)]
FIRST_FACTOR, LAST_FACTOR = 0x9E3779B1, 0x85EBCA6B  # odd numbers with well-mixed bits
EPSILON = 1e-6  # added to the mean square or the variance, so that zeros give zeros


@settings
class RecentTokensConfig:
    """Trained embeddings of the last tokens."""

    # K, number of last tokens that the readout reads, the current one included; 0: none
    count: Natural = 0
    width: Count = 256  # e, size of a token's embedding
    # Use the rows of the last matrix A as embeddings (Press and Wolf 2017); width must then equal
    # the rank.
    tied: bool = False
    # d_j, the decay per token of each fading sum of embeddings; []: no sums
    decays: tuple[Decay, ...] = ()
    window: Count = 16  # M, number of last tokens in a fading sum

    def __post_init__(self) -> None:
        if self.tied and not self.input_count:
            raise ValueError("tied is true, but no embedding is used: give count or decays")

    @property
    def input_count(self) -> int:
        """Number of inputs of the size of an embedding: last tokens and fading sums."""
        return self.count + len(self.decays)

    @property
    def titles(self) -> list[str]:
        """The inputs in a few words each."""
        tied, sums, titles = "tied " if self.tied else "", len(self.decays), []
        if self.count:
            titles.append(f"{self.count} {tied}tokens of {self.width}")
        if sums:
            titles.append(f"{sums} {tied}fading sum{'s' * (sums > 1)} of {self.width}")
        return titles

    @property
    def history(self) -> int:
        """Number of last tokens needed."""
        return max(self.count, self.window if self.decays else 0)

    def parameters(self, vocab_size: int, rank: int) -> int:
        """Returns the number of trained entries."""
        embedding = 0 if self.tied or not self.input_count else vocab_size
        return self.width * (embedding + rank * self.input_count)

    def initialize(self, vocab_size: int, rank: int, rng: np.random.Generator) -> "RecentTokens":
        """Draws the trained arrays. A family with further inputs returns a subclass."""
        return RecentTokens(self, vocab_size, rank, rng)


@settings
class HashedNgramsConfig:
    """Trained embeddings of n-grams."""

    orders: tuple[Order, ...] = ()  # values of n, each with its own table; []: no n-grams
    buckets: Count = 65536  # rows per table
    width: Count = 64  # size of an embedding
    # Initial standard deviation of the embeddings; 0: an n-gram with an untrained row adds nothing.
    initial_scale: NonNegative = 1.0
    # Factor on each embedding, initial value included; above 1 it enlarges the effect of an AdamW
    # step on a row.
    multiplier: Positive = 1.0

    @property
    def title(self) -> str:
        """The n-grams in a few words; `orders` must not be empty."""
        return f"{'-, '.join(map(str, self.orders))}-grams"

    @property
    def history(self) -> int:
        """Number of last tokens needed."""
        return max(self.orders, default=0)

    def parameters(self, rank: int) -> int:
        """Returns the number of trained entries."""
        return len(self.orders) * self.width * (self.buckets + rank)


@settings
class GatedMlpConfig:
    """Gated networks between B and A."""

    blocks: Natural = 0  # number of stacked blocks; 0: none
    width: Count = 1024  # width of the hidden layer in each block

    def parameters(self, rank: int) -> int:
        """Returns the number of trained entries."""
        return self.blocks * rank * (3 * self.width + 1) + (rank if self.blocks else 0)


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
    def title(self) -> str:
        """The readout in a few words."""
        titles = list(self.recent_tokens.titles)
        if self.ngrams.orders:
            titles.append(self.ngrams.title)
        if self.gated_mlp.blocks:
            titles.append(f"MLP {self.gated_mlp.blocks} x {self.gated_mlp.width:,}")
        titles.append(f"rank {self.rank}")
        if self.is_counted:
            titles.append(f"over a counted {self.counted}")
        return ", ".join(titles)

    @property
    def history(self) -> int:
        """Number of last tokens needed in addition to h."""
        return max(self.recent_tokens.history, self.ngrams.history, 1 if self.is_counted else 0)

    @property
    def is_counted(self) -> bool:
        """Whether the logits include a counted model, which needs the last token."""
        return self.counted != "none"

    def parameters(self, width: int, vocab_size: int) -> int:
        """Returns the number of trained entries with A and b_out, for h of a width."""
        ends = self.rank * (width + vocab_size) + vocab_size
        by_token = self.recent_tokens.parameters(vocab_size, self.rank)
        by_ngram = self.ngrams.parameters(self.rank)
        return ends + by_token + by_ngram + self.gated_mlp.parameters(self.rank)


class Trunk(nnx.Module):
    """`b` (r, N), and `recent_tokens`, `ngrams` and `gated_mlp` if the settings have them."""

    def __init__(
        self, config: TrunkConfig, width: int, vocab_size: int, rng: np.random.Generator
    ) -> None:
        rank, tokens, ngrams = config.rank, config.recent_tokens, config.ngrams
        self.config, self.width = config, width
        self.b = nnx.Param(uniform(rng, (rank, width), fan_in=width))
        self.recent_tokens = (
            tokens.initialize(vocab_size, rank, rng) if tokens.input_count else None
        )
        self.ngrams = HashedNgrams(ngrams, rank, rng) if ngrams.orders else None
        self.gated_mlp = GatedMlp(config.gated_mlp, rank, rng) if config.gated_mlp.blocks else None

    def __call__(self, features: jax.Array, a: jax.Array, precision: str) -> jax.Array:
        """Returns z (C, r); with a counted model, z and the id of the last token, (C, r + 1).

        Args:
            features: side by side h (C, N), the last tokens of a TokenHistory (C, history), and any
                features of a family that extends this one (C, others).
            a: the last matrix, (V, r), whose rows are tied embeddings.
            precision: of the products (machine/matmul.py).
        """
        cuts = self.width, self.width + self.config.history
        h, history, others = jnp.split(features, cuts, axis=1)
        ids = ids_of(history)
        normalized = _standardize(h) if self.config.normalize else h
        z = matmul(normalized, self.b[...], (1, 1), precision)
        if self.recent_tokens is not None:
            z = z + self.recent_tokens(ids, others, a, precision)
        if self.ngrams is not None:
            z = z + self.ngrams(ids, precision)
        if self.gated_mlp is not None:
            z = self.gated_mlp(z, precision)
        return append_ids(z, ids[:, 0]) if self.config.is_counted else z


class RecentTokens(nnx.Module):
    """`embedding` E (V, e) unless tied, and the `weights` of all inputs, (r, inputs e)."""

    def __init__(
        self, config: RecentTokensConfig, vocab_size: int, rank: int, rng: np.random.Generator
    ) -> None:
        self.config, width = config, config.input_count * config.width
        shape = (vocab_size, config.width)
        self.embedding = None if config.tied else nnx.Param(normal(rng, shape))
        self.weights = nnx.Param(uniform(rng, (rank, width), fan_in=width))

    def __call__(
        self, ids: jax.Array, others: jax.Array, a: jax.Array, precision: str
    ) -> jax.Array:
        """Returns the contribution to z, (C, r).

        Args:
            ids: (C, history) int32, the last tokens, newest first; -1 before the sentence.
            others: (C, others), features of a family that extends this one.
            a, precision: as in Trunk.
        """
        vectors = self.input_vectors(ids, others, a, precision)
        return matmul(vectors.reshape(len(vectors), -1), self.weights[...], (1, 1), precision)

    def input_vectors(
        self, ids: jax.Array, others: jax.Array, a: jax.Array, precision: str
    ) -> jax.Array:
        """Returns the last tokens' embeddings and the fading sums, (C, inputs, e)."""
        config = self.config
        embeddings = self.embed(ids[:, : config.history], a)
        inputs = [embeddings[:, : config.count]]
        if config.decays:
            decays = jnp.array(config.decays, jnp.float32)[:, None]
            powers = decays ** jnp.arange(config.window)  # (J, M)
            scale = jnp.sqrt((powers**2).sum(axis=1, keepdims=True))  # (J, 1)
            inputs.append(_fading_sums(embeddings[:, : config.window], powers / scale, precision))
        return jnp.concatenate(inputs, axis=1)

    def embed(self, ids: jax.Array, a: jax.Array) -> jax.Array:
        """Returns E[ids], (C, L, e), for ids (C, L); 0 before the sentence."""
        if self.embedding is None:
            embeddings = self.config.width**0.5 * a[ids]
        else:
            embeddings = self.embedding[...][ids]
        return jnp.where(ids[..., None] < 0, 0, embeddings)


def _fading_sums(vectors: jax.Array, weights: jax.Array, precision: str) -> jax.Array:
    """Returns sums over M of weights (J, M) times vectors (C, M, e), (C, J, e)."""
    by_product = partial(einsum, "jm,cme->cje", precision=precision)
    return lax.platform_dependent(weights, vectors, cuda=sums_of_products, default=by_product)


def sums_of_products(weights: jax.Array, vectors: jax.Array) -> jax.Array:
    """Sums elementwise products: fused with the gather on a GPU, ten times slower on a CPU."""
    return (weights[:, :, None] * vectors[:, None]).sum(axis=2)


class HashedNgrams(nnx.Module):
    """`tables` (orders, buckets, e), and the `weights` of all side by side, (r, orders e)."""

    def __init__(self, config: HashedNgramsConfig, rank: int, rng: np.random.Generator) -> None:
        self.orders, self.multiplier = config.orders, config.multiplier
        tables, width = len(config.orders), len(config.orders) * config.width
        shape = (tables, config.buckets, config.width)
        self.tables = nnx.Param(normal(rng, shape, config.initial_scale))
        self.weights = nnx.Param(uniform(rng, (rank, width), fan_in=width))

    def __call__(self, ids: jax.Array, precision: str) -> jax.Array:
        """Returns the sum over n-grams that end with the newest token, (C, r)."""
        tables = self.tables[...]
        embeddings = [
            tables[i, hash_ngrams(ids[:, :n], tables.shape[1])] for i, n in enumerate(self.orders)
        ]
        vectors = self.multiplier * jnp.concatenate(embeddings, axis=1)
        return matmul(vectors, self.weights[...], (1, 1), precision)


def hash_ngrams(ids: jax.Array, buckets: int) -> jax.Array:
    """Returns the bucket of each n-gram, (C,) int32, for ids (C, n), -1 before the sentence.

    It mixes each id in turn into 32 bits: exclusive or, a product, and a shift of the better mixed
    high bits downwards.
    """
    mixed = jnp.zeros(len(ids), jnp.uint32)
    for column in ids.T:
        mixed = (mixed ^ (column + 1).astype(jnp.uint32)) * jnp.uint32(FIRST_FACTOR)
        mixed ^= mixed >> 15
    mixed *= jnp.uint32(LAST_FACTOR)
    mixed ^= mixed >> 13
    return (mixed % jnp.uint32(buckets)).astype(jnp.int32)


class GatedMlp(nnx.Module):
    """The blocks, and the last norm (`norm`)."""

    def __init__(self, config: GatedMlpConfig, rank: int, rng: np.random.Generator) -> None:
        self.blocks = nnx.List([GatedBlock(config.width, rank, rng) for _ in range(config.blocks)])
        self.norm = Norm(rank)

    def __call__(self, z: jax.Array, precision: str) -> jax.Array:
        """Returns the input of the last matrix, (C, r), for z (C, r)."""
        for block in self.blocks:
            z = block(z, precision)
        return self.norm(z)


class GatedBlock(nnx.Module):
    """One block: `norm`, W_gate and W_up (width, r), W_down (r, width)."""

    def __init__(self, width: int, rank: int, rng: np.random.Generator) -> None:
        self.norm = Norm(rank)
        self.gate = nnx.Param(uniform(rng, (width, rank), fan_in=rank))
        self.up = nnx.Param(uniform(rng, (width, rank), fan_in=rank))
        self.down = nnx.Param(uniform(rng, (rank, width), fan_in=width))

    def __call__(self, z: jax.Array, precision: str) -> jax.Array:
        """Returns z', (C, r)."""
        normalized = self.norm(z)
        gate = jax.nn.silu(matmul(normalized, self.gate[...], (1, 1), precision))  # (C, width)
        hidden = gate * matmul(normalized, self.up[...], (1, 1), precision)
        return z + matmul(hidden, self.down[...], (1, 1), precision)


class Norm(nnx.Module):
    """norm(z), with trained gains g (r,)."""

    def __init__(self, rank: int) -> None:
        self.gains = nnx.Param(jnp.ones(rank, jnp.float32))

    def __call__(self, z: jax.Array) -> jax.Array:
        return self.gains[...] * z * lax.rsqrt((z**2).mean(axis=1, keepdims=True) + EPSILON)


def _standardize(h: jax.Array) -> jax.Array:
    centred = h - h.mean(axis=1, keepdims=True)
    return centred * lax.rsqrt((centred**2).mean(axis=1, keepdims=True) + EPSILON)


class TokenHistory(ArrayCell):
    """A cell that remembers the last K tokens, the newest first: (K, B) float32.

    A feature is a token's id plus 1, or 0 before the sentence. Features are float32, which
    represents integers exactly up to 2^24, far beyond any vocabulary.
    """

    def __init__(self, count: int) -> None:
        self.output_size = count

    def embed(self, tokens: jax.Array, keep: jax.Array | None = None) -> jax.Array:
        return (tokens + 1).astype(jnp.float32)[None]  # (1, B)

    def advance(self, state: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.concatenate([x, state[:-1]])

    def through_time(
        self, x: jax.Array, positions: jax.Array, start: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Returns the last state and all outputs, (T, K, B), which are shifts of the tokens."""
        steps, count = len(x), self.output_size
        tokens = jnp.concatenate([start[::-1], x[:, 0]])  # (K + T, B)
        shifts = [
            jnp.where(positions >= k, tokens[count - k : count - k + steps], 0)
            for k in range(count)
        ]
        outputs = jnp.stack(shifts, axis=1)
        return outputs[-1], outputs


def ids_of(history: jax.Array) -> jax.Array:
    """Returns ids, (C, K) int32, from a TokenHistory's features; -1 before the sentence."""
    return history.astype(jnp.int32) - 1
