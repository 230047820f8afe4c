"""The trained readout: o = W_out h + b_out, with W_out of full rank or W_out = A B.

The modules hold the arrays. The functions below take them as a dictionary, {"a", "b", "bias"} or
{"w", "bias"}, the form that an optimizer updates. GPT-2 passes its embedding as {"w"}, a readout
without a bias. The dictionary may also have a frozen "prior", a counted model whose log p is added
to the logits (readout/prior.py) [ours]. The features then have a last column with the token's id.
"""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from esnlm.base.rng import Stream, generator
from esnlm.base.settings import Count, settings
from esnlm.machine.matmul import matmul
from esnlm.readout import cross_entropy, prior
from esnlm.readout.scaling import readout_sigmas

ROWS_AT_ONCE = 64  # rows initialized at once; the values do not depend on it


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
    scaling, A, B and b_out are normal, with the standard deviations of readout/scaling.py.
    """
    rng = generator(seed, Stream.READOUT)

    def uniform(fan_in: int, *shape: int) -> np.ndarray:
        bound, values = np.float32(1 / np.sqrt(fan_in)), np.empty(shape, np.float32)
        # NumPy draws float64; drawing all at once would take three times the memory of the array.
        for row in range(0, shape[0], ROWS_AT_ONCE):
            some = values[row : row + ROWS_AT_ONCE]
            some[...] = rng.uniform(-bound, bound, some.shape)
        return values

    if config.rank is None:
        return FullRankReadout(
            uniform(state_size, vocab_size, state_size), uniform(state_size, vocab_size)
        )
    if config.scaling == "none":
        a, bias = uniform(config.rank, vocab_size, config.rank), uniform(config.rank, vocab_size)
        return LowRankReadout(a, uniform(state_size, config.rank, state_size), bias)
    sigmas = readout_sigmas(config.scaling, state_size, config.rank, vocab_size)
    shapes = {"a": (vocab_size, config.rank), "b": (config.rank, state_size), "bias": (vocab_size,)}
    drawn = {
        name: rng.standard_normal(shape, np.float32) * np.float32(sigmas[name])
        for name, shape in shapes.items()
    }
    return LowRankReadout(**drawn)


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
        held_out = prior.held_out(params["prior"], added[sources, targets], ids[sources], targets)
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
