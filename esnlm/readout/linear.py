"""The trained readout: o = W_out h + b_out, with W_out of full rank or W_out = A B.

The modules hold the arrays. The functions below take them as a dictionary, {"a", "b", "bias"} or
{"w", "bias"}, the form that an optimizer updates. GPT-2 passes its embedding as {"w"}, a readout
without a bias.

**Scaling.** Utsunomiya 2025 scales initial standard deviations and learning rates with the layer
widths, for the two linear layers N -> r -> V of the readout. A layer n -> m is drawn with the
standard deviation sigma and learns at eta lr under gradient descent, where eta is the learning rate
of the whole network (all g_l are 1, section 2.5):

              sigma of B                  lr of B    sigma of A                  lr of A
    ntp       1 / sqrt(N)                 1 / N      1 / sqrt(r)                 1 / r
    spectral  min(1, sqrt(r/N)) / sqrt(N) r / N      min(1, sqrt(V/r)) / sqrt(r) V / r
    dynamic   1 / sqrt(N)                 r / N      1 / r                       1 / r

(eq. 2.82 to 2.85 at q = 0 for ntp and q = 1/2 for dynamic, eq. 3.1 and 3.2 for spectral.) The bias
enters as sqrt(n) b_l (eq. 2.2), with b_l drawn and trained like W_l. Hence b_out = sqrt(r) b_2.

**Prior.** The dictionary may also have a frozen "prior", a counted bigram model whose log p is
added to the logits [ours]. The features then have a last column with the id of the last token v:

    o = W_out h + b_out + log p_WB( . | v),   p_WB(w | v) = (c(v, w) + t(v) p_1(w)) / (c(v) + t(v))

c counts pairs, t(v) distinct tokens follow v, and p_1 is a unigram model (Witten and Bell 1991).
With counts of all pairs, training would learn to trust counts of 1, which do not generalise. So to
predict w after v in the training text, c(v, w) is reduced by 1, as in the leaving-one-out of Ney,
Essen and Kneser 1994; t and p_1 stay. For a target with a probability near 1, two large terms of
the gradient nearly cancel, which makes it less exact in bf16.
"""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from esnlm.base.rng import Stream, generator
from esnlm.base.settings import Count, settings
from esnlm.machine.matmul import matmul
from esnlm.readout import cross_entropy

ROWS_AT_ONCE = 64  # rows drawn at once; the values do not depend on it


@settings
class ReadoutConfig:
    """The low-rank readout of Ueda et al. 2025a, section 2.1, or the full-rank one of Ueda et al.
    2025b."""

    rank: Count | None = 512  # rank of W_out = A B; null: one matrix of full rank [r_out]
    # Rule that scales initial weights and learning rates with the layer widths (Utsunomiya 2025);
    # none: no scaling.
    scaling: Literal["none", "ntp", "spectral", "dynamic"] = "none"

    def __post_init__(self) -> None:
        if self.rank is None and self.scaling != "none":
            raise ValueError(
                f"scaling is {self.scaling}, which needs W_out = A B: give rank, or scaling none"
            )


class LowRankReadout(nnx.Module):
    """W_out = A B: `a` (V, r), `b` (r, N) and `bias` (V,), float32."""

    def __init__(
        self, a: jax.typing.ArrayLike, b: jax.typing.ArrayLike, bias: jax.typing.ArrayLike
    ) -> None:
        self.a, self.b, self.bias = map(nnx.Param, jax.device_put((a, b, bias)))


class FullRankReadout(nnx.Module):
    """W_out is `w` (V, N), with `bias` (V,), float32."""

    def __init__(self, w: jax.typing.ArrayLike, bias: jax.typing.ArrayLike) -> None:
        self.w, self.bias = map(nnx.Param, jax.device_put((w, bias)))


def initialize(
    config: ReadoutConfig, state_size: int, vocab_size: int, seed: int
) -> LowRankReadout | FullRankReadout:
    """Returns a readout with random weights.

    As in torch.nn.Linear (Ueda et al. 2025a), A and b_out are uniform between -1/sqrt(r) and
    1/sqrt(r), and B, or a full-rank W_out with its b_out, between -1/sqrt(N) and 1/sqrt(N). With a
    scaling, A, B and b_out are normal, with the standard deviations of `readout_sigmas`.
    """
    rng = generator(seed, Stream.READOUT)

    rank, size = config.rank, state_size
    if rank is None:
        w = uniform(rng, (vocab_size, size), fan_in=size)
        return FullRankReadout(w, uniform(rng, (vocab_size,), fan_in=size))
    if config.scaling == "none":
        a = uniform(rng, (vocab_size, rank), fan_in=rank)
        bias = uniform(rng, (vocab_size,), fan_in=rank)
        return LowRankReadout(a, uniform(rng, (rank, size), fan_in=size), bias)
    sigmas = readout_sigmas(config.scaling, size, rank, vocab_size)
    a = normal(rng, (vocab_size, rank), sigmas["a"])
    b = normal(rng, (rank, size), sigmas["b"])
    return LowRankReadout(a, b, normal(rng, (vocab_size,), sigmas["bias"]))


def uniform(rng: np.random.Generator, shape: tuple[int, ...], fan_in: int) -> jax.Array:
    """Draws from U(-1 / sqrt(fan_in), 1 / sqrt(fan_in)), as torch.nn.Linear."""
    bound, values = np.float32(1 / np.sqrt(fan_in)), np.empty(shape, np.float32)
    # NumPy draws float64; drawing all at once would take three times the memory of the array.
    for first in range(0, len(values), ROWS_AT_ONCE):
        rows = values[first : first + ROWS_AT_ONCE]
        rows[...] = rng.uniform(-bound, bound, rows.shape)
    return jax.device_put(values)


def normal(rng: np.random.Generator, shape: tuple[int, ...], scale: float = 1.0) -> jax.Array:
    """Draws from N(0, scale^2); at scale 1 as torch.nn.Embedding."""
    return jax.device_put(np.float32(scale) * rng.standard_normal(shape, np.float32))


def readout_sigmas(scaling: str, size: int, rank: int, vocab_size: int) -> dict[str, float]:
    """Returns the standard deviations of B (r, N), A (V, r) and b_out (V,)."""
    b, a = 1 / np.sqrt(size), 1 / np.sqrt(rank)
    if scaling == "spectral":
        b *= np.minimum(1, np.sqrt(rank / size))
        a *= np.minimum(1, np.sqrt(vocab_size / rank))
    elif scaling == "dynamic":
        a /= rank**0.5
    return {"b": b, "a": a, "bias": np.sqrt(rank) * a}


def readout_rates(
    scaling: str, optimizer: str, size: int, rank: int, vocab_size: int
) -> dict[str, float]:
    """Returns the factors on the learning rates of B, A and b_out for an optimizer.

    "sgd" has those of the thesis, "adamw" our own [ours].

    Under SGD, b_out = sqrt(r) b_2 learns at r lr_2: one root comes from the gradient of b_2, the
    other from its step.

    Adam moves each entry of W_l by about its learning rate, however small the gradient. For one
    input it moves all of row i by -sign(dL/dh~_i) sign(h_j), so that |delta h~_l,i| = rate sum_j
    |h_j| = Theta(rate n_{l-1}), as |h_j| = Theta(1). This change should have the order of table
    1.1: for z = B h, r^-1/2 under NTP and 1 under Spectral and Dynamic (with n_min = r), and for
    the output 1 under all (eq. 2.45). So the rate is that order divided by n_{l-1}. A bias changes
    the output directly, so its rate is 1.
    """
    if optimizer == "adamw":
        order = rank**-0.5 if scaling == "ntp" else 1
        return {"b": order / size, "a": 1 / rank, "bias": 1.0}
    b = (1 if scaling == "ntp" else rank) / size
    a = (vocab_size if scaling == "spectral" else 1) / rank
    return {"b": b, "a": a, "bias": rank * a}


def count(config: ReadoutConfig, state_size: int, vocab_size: int) -> int:
    """Returns the number of trained parameters: (N + V) r + V, or N V + V at full rank."""
    weights = (
        state_size * vocab_size if config.rank is None else (state_size + vocab_size) * config.rank
    )
    return weights + vocab_size


def from_arrays(arrays: dict) -> LowRankReadout | FullRankReadout:
    """Returns the readout with the arrays of a checkpoint, {"a", "b", "bias"} or {"w", "bias"}."""
    return FullRankReadout(**arrays) if "w" in arrays else LowRankReadout(**arrays)


def logits(params: dict, features: jax.Array, precision: str) -> jax.Array:
    """Returns o = W_out h + b_out, (C, V), for features (C, N)."""
    z, w, bias, added, _ = _last_layer(params, features, precision)
    o = matmul(z, w, (1, 1), precision) + bias
    return o if added is None else o + added


def logits_on_host(params: dict, features: np.ndarray) -> np.ndarray:
    """Returns the result of `logits` without a prior, (C, V), in NumPy, from NumPy's arrays."""
    if "w" in params:
        return features @ params["w"].T + params["bias"]
    return features @ params["b"].T @ params["a"].T + params["bias"]


def weighted_nll(
    params: dict,
    features: jax.Array,
    targets: jax.Array,
    weights: jax.Array,
    precision: str,
    rows: jax.Array | None = None,
) -> jax.Array:
    """Returns the training loss sum_i weights_i * -log p(target_i) in nats, differentiable in
    params and features.

    With a prior, each target is left out of the counts that predict it.

    Args:
        params: the arrays of the readout.
        features: (C, N).
        targets, weights, rows: as in cross_entropy.weighted_nll.
        precision: of the products (machine/matmul.py).
    """
    z, w, bias, added, ids = _last_layer(params, features, precision)
    held_out = None
    if added is not None:
        sources = jnp.arange(len(z)) if rows is None else rows
        held_out = _held_out(params["prior"], added[sources, targets], ids[sources], targets)
    return cross_entropy.weighted_nll(
        z, w, bias, targets, weights, rows, precision, added, held_out
    )


def pair_log_probs(
    params: dict, features: jax.Array, sources: jax.Array, targets: jax.Array, precision: str
) -> jax.Array:
    """Returns log p(target) in nats, (P,), for pairs of a row of features (C, N) and a target."""
    z, w, bias, added, _ = _last_layer(params, features, precision)
    return cross_entropy.pair_log_probs(z, w, bias, sources, targets, precision, added)


def group_log_probs(
    params: dict, features: jax.Array, group: jax.Array, precision: str
) -> jax.Array:
    """Returns log p that the next token is in a group, (C,), for a mask of the group (V,)."""
    o = logits(params, features, precision)  # (C, V), with padded tokens if there are any
    group = jnp.pad(group, (0, o.shape[1] - len(group)))
    in_group = jax.nn.logsumexp(jnp.where(group, o, -jnp.inf), axis=1)
    return in_group - jax.nn.logsumexp(o, axis=1)


def append_ids(features: jax.Array, ids: jax.Array) -> jax.Array:
    """Returns features (C, F) with a last column of token ids (C,), which a prior reads."""
    return jnp.concatenate([features, ids[:, None].astype(features.dtype)], axis=1)


def _last_layer(
    params: dict, features: jax.Array, precision: str
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array | None, jax.Array]:
    """Returns z (C, r), w (V, r), the bias (V,), the prior (C, V) or None, and the ids (C,)."""
    added, ids = None, jnp.zeros(len(features), jnp.int32)
    if "prior" in params:
        table = params["prior"]["table"]
        # In a row of padding the id may be any number.
        ids = jnp.clip(features[:, -1].astype(jnp.int32), 0, len(table) - 1)
        features = features[:, :-1]
        added = table[ids]
    if "w" in params:
        z, w = features, params["w"]
    else:
        z, w = matmul(features, params["b"], (1, 1), precision), params["a"]
    if added is not None:
        added = jnp.pad(added, ((0, 0), (0, len(w) - added.shape[1])))  # rows that pad w
    return z, w, params["bias"] if "bias" in params else jnp.zeros(len(w), jnp.float32), added, ids


def _held_out(prior: dict, log_p: jax.Array, v: jax.Array, w: jax.Array) -> jax.Array:
    """Returns the change of a token's logit if its pair is left out of the counts.

    It is log (c - 1 + t p_1) - log (c + t p_1).

    Args:
        prior: "table" of log p_WB (V, V), "types" t (V,), "total" c + t (V,) and "unigram" p_1
            (V,), all float32.
        log_p: log p_WB(w | v) in nats, (P,) float32.
        v, w: the tokens, (P,) int32.

    Returns:
        The difference in nats for each pair, (P,) float32; 0 for a pair that was not counted.
    """
    backed_off = prior["types"][v] * prior["unigram"][w]  # t p_1
    # Rounding makes the count exact below about 100,000; above that, a change of 1 is negligible.
    count = jnp.round(jnp.exp(log_p) * prior["total"][v] - backed_off)
    return jnp.where(count >= 1, jnp.log(count - 1 + backed_off) - jnp.log(count + backed_off), 0)
