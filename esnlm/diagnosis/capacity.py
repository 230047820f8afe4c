"""The information in the states of a network: memory of past input, and number of dimensions.

A cell is a reservoir as `for_device` returns it.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from esnlm.base.errors import InputError
from esnlm.base.rng import Stream, generator
from esnlm.diagnosis.contraction import Cell, State
from esnlm.readout.base import row_blocks
from esnlm.readout.least_squares import solve

SATURATED = 0.99  # a unit is saturated if |f(.)| is above this


class MemoryCapacity(NamedTuple):
    """The part of the past input that a linear readout of the state recovers."""

    total: float  # sum of `by_delay`
    by_delay: np.ndarray  # (K,): squared correlation at delays 1 .. K, on held-out samples
    chance: float  # the total without any memory: K / held-out samples


def memory_capacity(
    cell: Cell,
    *,
    delays: int = 100,
    samples: int | None = None,
    washout: int = 200,
    input_scale: float = 0.1,
    ridge: float = 1e-6,
    seed: int = 0,
) -> MemoryCapacity:
    """Measures short-term memory capacity (Jaeger 2001): sum over k >= 1 of r^2(u(n - k), y_k(n)).

    y_k is the best linear readout for delay k. A language model has no scalar input, so a scalar
    input replaces W_in [ours]: u(n) ~ U(-0.5, 0.5), independent, enters through `driving_vector`.
    States are sampled in eight independent sequences; two are held out. With infinitely many
    samples the total is at most the number of units N.

    Compare totals of the same settings and of many samples only (docs/reservoir.md).

    Args:
        delays: K, the largest delay.
        samples: number of sampled states in all sequences together, 4 N bytes each; None:
            `default_samples(N)`.
        washout: time steps before the first sample, at least `delays`.
        input_scale: standard deviation of the driving vector.
        ridge: penalty, relative to the mean diagonal of the smaller Gram matrix (of units or of
            samples).
    """
    rng = generator(seed, Stream.MEASUREMENT, 1)
    samples = default_samples(cell.output_size) if samples is None else samples
    sequences, held_out, length = 8, 2, samples // 8
    before = max(washout, delays)
    u = rng.uniform(-0.5, 0.5, (before + length, sequences))  # (T, B)
    vector = driving_vector(cell, input_scale, seed)
    states = np.asarray(_drive(cell, vector, u.astype(np.float32), before))
    _check_finite(states, "memory capacity")
    x = states.reshape(length * sequences, -1)  # (T B, N)
    delayed = [u[before - k : before - k + length].reshape(-1) for k in range(1, delays + 1)]
    y = np.stack(delayed, axis=-1)  # (T B, K)
    test = np.tile(np.arange(sequences) >= sequences - held_out, length)
    predicted = predict_ridge(x, y, test, ridge)
    pairs = zip(predicted.T, y[test].T, strict=True)
    correlation = np.array([np.corrcoef(p, t)[0, 1] if np.ptp(p) else 0.0 for p, t in pairs])
    return MemoryCapacity(float((correlation**2).sum()), correlation**2, delays / int(test.sum()))


def default_samples(size: int) -> int:
    """Returns the number of sampled states: 16 N, at least 16,384, and at most half a gigabyte."""
    return max(64, min(max(1 << 14, 16 * size), (1 << 27) // size))


def driving_vector(cell: Cell, input_scale: float, seed: int) -> np.ndarray:
    """Returns the input weights of `memory_capacity`, (N,) float32: N(0, input_scale^2)."""
    rng = generator(seed, Stream.MEASUREMENT, 0)
    return rng.normal(0, input_scale, cell.mask_size).astype(np.float32)


@partial(jax.jit, static_argnames="washout")
def _drive(cell: Cell, vector: jax.Array, u: jax.Array, washout: int) -> jax.Array:
    """Computes the states after the washout, (T - washout, B, N), for the inputs u (T, B)."""

    def record(h: State, inputs: jax.Array) -> tuple[State, jax.Array]:
        h = cell.advance(h, vector[:, None] * inputs)
        return h, cell.output(h).T

    h = lax.fori_loop(0, washout, lambda t, h: record(h, u[t])[0], cell.initial_state(u.shape[1]))
    return lax.scan(record, h, u[washout:])[1]


@partial(jax.jit, static_argnames="washout")
def sample_states(cell: Cell, tokens: jax.Array, washout: int = 0) -> tuple[jax.Array, jax.Array]:
    """Samples the states of tokens (T, B) from time step `washout` on; every batch slot starts at
    the state 0.

    Returns the states (S, N) float32 as a readout reads them, time step by time step, and the
    saturated share of units and samples. Saturation is measured on the activation's output, which
    differs from the state if the leak is outside of the activation.
    """
    start: State = cell.initial_state(tokens.shape[1])
    h = lax.scan(lambda h, token: (cell.step(h, token), None), start, tokens[:washout])[0]

    def record(h: State, token: jax.Array) -> tuple[State, tuple[jax.Array, jax.Array]]:
        saturated = jnp.abs(cell.activations(h, cell.embed(token))) > SATURATED
        h = cell.step(h, token)
        return h, (cell.output(h).T, saturated.mean())

    states, saturated = lax.scan(record, h, tokens[washout:])[1]
    return states.reshape(-1, cell.output_size), saturated.mean()


def effective_rank(states: np.ndarray) -> float:
    """Computes the effective rank of states (S, N), from 1 to min(S, N) (Roy and Vetterli 2007).

    It is exp of the entropy of the normalized singular values. It grows with S, so report S, too.
    States are not centred. Singular values come from the smaller Gram matrix, in float64; values
    below 1e-8 of the largest are lost in rounding. Raises InputError if all states are 0, or one is
    not finite.
    """
    _check_finite(states, "effective rank")
    gram = gram_of_samples(states if states.shape[0] <= states.shape[1] else states.T, 0.0)
    singular = np.sqrt(np.maximum(np.linalg.eigvalsh(gram), 0))
    if not singular.any():
        raise InputError("effective rank: all states are 0")
    p = singular / singular.sum()
    p = p[p > 0]
    return float(np.exp(-(p * np.log(p)).sum()))


def predict_ridge(x: np.ndarray, y: np.ndarray, test: np.ndarray, ridge: float) -> np.ndarray:
    """Fits y (S, K) on x (S, F) outside the rows `test` (S,), and returns predictions for these.

    The intercept is not penalised. `ridge` is relative to the mean diagonal of the smaller Gram
    matrix, of features or of samples. If all fitted x are equal, the prediction is the mean of y.
    """
    train = np.flatnonzero(~test)
    mean_x, mean_y = (each[train].mean(axis=0, dtype=np.float64) for each in (x, y))
    size = len(train) * (mean_x @ mean_x)
    if x.shape[1] <= len(train):
        gram, cross = np.zeros((x.shape[1], x.shape[1])), np.zeros((x.shape[1], y.shape[1]))
        for block in row_blocks(len(train), x.shape[1]):
            h = x[train[block]] - mean_x
            gram += h.T @ h
            cross += h.T @ (y[train[block]] - mean_y)
        weights = solve(gram, cross, ridge * np.trace(gram) / len(gram), size)
        return (x[test] - mean_x) @ weights + mean_y
    # the dual form, with K of samples: y = K (K + lambda I)^-1 y_train
    gram = gram_of_samples(x, mean_x)
    fitted = gram[np.ix_(train, train)]
    weights = solve(fitted, y[train] - mean_y, ridge * np.trace(fitted) / len(fitted), size)
    return gram[np.ix_(test, train)] @ weights + mean_y


def gram_of_samples(x: np.ndarray, mean: np.ndarray | float) -> np.ndarray:
    """Returns (x - mean) (x - mean)^T in float64, (S, S), without a float64 copy of x (S, F)."""
    mean = np.broadcast_to(mean, x.shape[1])
    total = np.zeros((len(x), len(x)))
    for start in range(0, x.shape[1], 4096):
        part = x[:, start : start + 4096] - mean[start : start + 4096]
        total += part @ part.T
    return total


def _check_finite(states: np.ndarray, what: str) -> None:
    if not np.isfinite(states).all():
        raise InputError(f"{what}: the states grow beyond float32; lower the spectral radius")
