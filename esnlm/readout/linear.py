"""The trained readout: o = W_out h + b_out, with W_out of full rank or W_out = A B; GPT-2's has no bias."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.experimental.layout import Layout, with_layout_constraint

from esnlm.errors import InputError
from esnlm.readout import cross_entropy
from esnlm.readout.scaling import SCALINGS, readout_sigmas
from esnlm.rng import Stream, generator

ROWS = 64  # drawn at once; the numbers are the same for any


@dataclass(frozen=True)
class ReadoutConfig:
    """The readout of S1 (esn_at_scale, section 2.1); rank null is the full-rank readout of S2."""

    rank: int | None = 512  # r_out of W_out = A B; null: one matrix of full rank
    scaling: str = "none"  # of initialisation and rates with N and r: none, or ntp, spectral, dynamic (S5; scaling.py)

    def check(self, field: str) -> None:
        if self.rank is not None and self.rank < 1:
            raise InputError(f"{field}.rank is {self.rank}: it must be at least 1, or null for a readout of full rank")
        if self.scaling not in SCALINGS:
            raise InputError(f"{field}.scaling is {self.scaling!r}: choose {', '.join(SCALINGS)}")
        if self.rank is None and self.scaling != "none":
            raise InputError(
                f"{field}.scaling is {self.scaling}, which is for W_out = A B: give {field}.rank, or scaling none"
            )


class LowRankReadout(nnx.Module):
    """W_out = A B: `a` (V, r), `b` (r, N), `bias` (V,), float32."""

    def __init__(self, a, b, bias):
        self.a, self.b, self.bias = nnx.Param(jnp.asarray(a)), nnx.Param(jnp.asarray(b)), nnx.Param(jnp.asarray(bias))


class FullRankReadout(nnx.Module):
    """`w` (V, N), `bias` (V,), float32."""

    def __init__(self, w, bias):
        self.w, self.bias = nnx.Param(jnp.asarray(w)), nnx.Param(jnp.asarray(bias))


def draw(config: ReadoutConfig, state_size: int, vocab_size: int, seed: int) -> LowRankReadout | FullRankReadout:
    """torch.nn.Linear's initialisation (S1): A, b_out ~ U(-1/sqrt r, 1/sqrt r), B ~ U(-1/sqrt N, 1/sqrt N).

    The readout of full rank is one nn.Linear: W_out, b_out ~ U(-1/sqrt N, 1/sqrt N). With a scaling, A, B and b_out are
    normal, with the standard deviations of readout/scaling.py.
    """
    rng = generator(seed, Stream.READOUT)

    def uniform(fan_in: int, *shape: int) -> np.ndarray:
        bound, drawn = np.float32(1 / np.sqrt(fan_in)), np.empty(shape, np.float32)
        for row in range(0, shape[0], ROWS):  # NumPy draws float64: of all at once that would be three times the array
            part = drawn[row : row + ROWS]
            part[...] = rng.uniform(-bound, bound, part.shape)
        return drawn

    if config.rank is None:
        return FullRankReadout(uniform(state_size, vocab_size, state_size), uniform(state_size, vocab_size))
    if config.scaling != "none":
        sigmas = readout_sigmas(config.scaling, state_size, config.rank, vocab_size)
        shapes = {"a": (vocab_size, config.rank), "b": (config.rank, state_size), "bias": (vocab_size,)}
        drawn = {
            name: rng.standard_normal(shape, np.float32) * np.float32(sigmas[name]) for name, shape in shapes.items()
        }
        return LowRankReadout(**drawn)
    a, bias = uniform(config.rank, vocab_size, config.rank), uniform(config.rank, vocab_size)
    return LowRankReadout(a, uniform(state_size, config.rank, state_size), bias)


def count(config: ReadoutConfig, features: int, vocab_size: int) -> int:
    """Trained parameters: (N + V) r + V, or N V + V at full rank."""
    weights = features * vocab_size if config.rank is None else (features + vocab_size) * config.rank
    return weights + vocab_size


def from_arrays(arrays: dict) -> LowRankReadout | FullRankReadout:
    """The readout of the arrays in a checkpoint: {"a", "b", "bias"} or {"w", "bias"}."""
    return FullRankReadout(**arrays) if "w" in arrays else LowRankReadout(**arrays)


def weighted_nll(params: dict, features, targets, weights, precision: str, rows: jax.Array | None = None) -> jax.Array:
    """sum_i weights_i * -log p(target_i) in nats, differentiable.

    Args:
        features: (C, N).
        targets, weights: (P,), P >= C.
        rows: (P,) int32, of the features for each prediction, of which the first C are 0 .. C - 1; None where P is C.
    """
    z, w = _last_layer(params, features, precision)
    return cross_entropy.weighted_nll(z, w, _bias(params, w), targets, weights, rows, precision)


def pair_log_probs(
    params: dict, features: jax.Array, sources: jax.Array, targets: jax.Array, precision: str
) -> jax.Array:
    """log p(target) in nats, (P,), for pairs of a row of features (C, N), by number, and a target."""
    z, w = _last_layer(params, features, precision)
    return cross_entropy.pair_log_probs(z, w, _bias(params, w), sources, targets, precision)


def logits(params: dict, features: jax.Array, precision: str) -> jax.Array:
    """o = W_out h + b_out, (C, V), of features (C, N)."""
    z, w = _last_layer(params, features, precision)
    return cross_entropy.product(z, w, (1, 1), precision) + _bias(params, w)


def _bias(params, w):
    return params["bias"] if "bias" in params else jnp.zeros(len(w), jnp.float32)  # GPT-2's readout has none


def _last_layer(params, features, precision):
    if "w" in params:
        return features, params["w"]
    return _project(features, params["b"], precision), params["a"]  # (C, r), (V, r)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _project(features, b, precision):
    """z = B h, (C, r)."""
    return cross_entropy.product(features, b, (1, 1), precision)


def _project_backward(precision, saved, dz):
    features, b = saved
    # Laid out for it first: XLA's CPU takes half as long again for a product of which it has to transpose the left side.
    dz_transposed = with_layout_constraint(dz.T, Layout(major_to_minor=(0, 1)))  # (r, C)
    db = cross_entropy.product(dz_transposed, features, (1, 0), precision)  # (r, N)
    return cross_entropy.product(dz, b, (1, 0), precision), db


_project.defvjp(lambda features, b, precision: (_project(features, b, precision), (features, b)), _project_backward)
