"""What the states of a network hold: of its past input, and of dimensions.

    memory_capacity   how far back a linear readout can recover an input
    sample            states over text, with the share of saturated units; effective_rank of the states

A cell is a reservoir as `for_device` returns it.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax import lax

from esnlm.errors import InputError
from esnlm.reservoir.cell import Reservoir, Stack

SATURATED = 0.99  # |f(.)|


@dataclass(frozen=True)
class MemoryCapacity:
    """How much of its past input a linear readout of the state recovers."""

    total: float  # the sum of `by_delay`
    by_delay: np.ndarray  # (K,): squared correlation at delays 1 .. K, on held-out samples
    chance: float  # the total that no memory at all would give: K / held-out samples


def memory_capacity(
    cell: Reservoir | Stack,
    *,
    delays: int = 100,
    samples: int = 2048,
    washout: int = 200,
    input_scale: float = 0.1,
    ridge: float = 1e-6,
    seed: int = 0,
) -> MemoryCapacity:
    """Short-term memory capacity (Jaeger 2001): sum over k >= 1 of r^2(u(n - k), y_k(n)), y_k the best linear readout.

    A language model has no scalar input, so one takes W_in's place: u(n) ~ U(-0.5, 0.5), independent, enters through
    `driving_vector`. States are sampled in eight independent runs, of which two are held out. No network of N units
    exceeds N. Compare totals of the same settings only: a weaker input leaves the network more linear and remembers
    more; the ridge acts like noise on the states; and with samples not well above N (fewer take the dual form) the
    readout is not the best one and the total falls short: by default by a seventh at 1,024 units, a quarter at 4,096.

    Args:
        delays: K, the largest delay asked for.
        samples: of the state, in all runs together; 4 N bytes each.
        washout: steps before the first sample; at least `delays` are taken.
        ridge: relative to the mean diagonal of the smaller Gram matrix, of units or of samples.

    Raises:
        InputError: fewer than 64 samples or no delay, or states that stay at 0 or are not finite.
    """
    if samples < 64 or delays < 1:
        raise InputError(f"memory capacity: {samples} samples and {delays} delays; give at least 64 and 1")
    rng = np.random.default_rng([seed, 1])
    runs, held_out, length = 8, 2, samples // 8
    before = max(washout, delays)
    u = rng.uniform(-0.5, 0.5, (before + length, runs))  # (T, B)
    states = np.asarray(_driven(cell, driving_vector(cell, input_scale, seed), u.astype(np.float32), before))
    _require_finite(states, "memory capacity")
    x = states.reshape(length * runs, -1)  # (T B, N)
    y = np.stack([u[before - k : before - k + length] for k in range(1, delays + 1)], axis=-1).reshape(len(x), delays)
    test = np.tile(np.arange(runs) >= runs - held_out, length)
    predicted = _ridge_predictions(x, y, test, ridge)
    correlation = np.array(
        [np.corrcoef(p, t)[0, 1] if np.ptp(p) else 0.0 for p, t in zip(predicted.T, y[test].T, strict=True)]
    )
    return MemoryCapacity(float((correlation**2).sum()), correlation**2, delays / int(test.sum()))


def driving_vector(cell: Reservoir | Stack, input_scale: float, seed: int) -> np.ndarray:
    """The vector through which `memory_capacity` drives a network, (N,) float32: N(0, input_scale^2) in every unit."""
    return np.random.default_rng(seed).normal(0, input_scale, cell.mask_size).astype(np.float32)


@partial(jax.jit, static_argnames="washout")
def _driven(cell, vector, u, washout):
    """States after the washout, (T - washout, B, N), for the inputs u (T, B)."""

    def advance(h, inputs):
        return cell.advance(h, vector[:, None] * inputs)

    def record(h, inputs):
        h = advance(h, inputs)
        return h, cell.output(h).T

    h = lax.fori_loop(0, washout, lambda t, h: advance(h, u[t]), cell.initial_state(u.shape[1]))
    return lax.scan(record, h, u[washout:])[1]


def _ridge_predictions(x, y, test, ridge):
    """Ridge regression of y (S, K) on x (S, N) with an intercept, fitted where not `test`, evaluated where it is."""
    train = ~test
    mean = x[train].mean(axis=0, dtype=np.float64), y[train].mean(axis=0)
    y_train = y[train] - mean[1]
    if x.shape[1] <= train.sum():
        x = x - mean[0]
        solve = _regularised(x[train].T @ x[train], ridge)
        return x[test] @ solve(x[train].T @ y_train) + mean[1]
    gram = _gram(x, mean[0])  # the dual, with K of samples: y = K (K + lambda I)^-1 y_train
    solve = _regularised(gram[np.ix_(train, train)], ridge)
    return gram[np.ix_(test, train)] @ solve(y_train) + mean[1]


def _regularised(gram, ridge):
    level = ridge * np.trace(gram) / len(gram)
    if not level > 0:
        raise InputError(
            f"memory capacity: ridge {ridge:g} times the states' mean square is {level:g}; both must be above 0"
        )
    factor = scipy.linalg.cho_factor(gram + level * np.eye(len(gram)))
    return lambda right: scipy.linalg.cho_solve(factor, right)


@dataclass(frozen=True)
class Samples:
    """States on the way through text, as a readout sees them."""

    states: np.ndarray  # (S, N) float32, step by step, the slots of a step together
    saturated: float | None  # share of |f(.)| > 0.99 over units and samples; None under ReLU


def sample(cell: Reservoir | Stack, tokens: np.ndarray, *, washout: int = 0) -> Samples:
    """The states after each token from step `washout` on, of slots that start at 0.

    Saturation is that of the activation's output, which with a leak outside of it is not the state.

    Args:
        tokens: (T, B) int32; (T - washout) B states of 4 N bytes are kept.
    """
    states, saturated = _recorded(cell, jnp.asarray(tokens), washout)
    share = None if cell.activation == "relu" else float(np.asarray(saturated, np.float64).mean())
    return Samples(np.asarray(states).reshape(-1, cell.output_size), share)


@partial(jax.jit, static_argnames="washout")
def _recorded(cell, tokens, washout):
    h = lax.scan(lambda h, token: (cell.step(h, token), None), cell.initial_state(tokens.shape[1]), tokens[:washout])[0]

    def record(h, token):
        saturated = (jnp.abs(cell.activations(h, cell.embed(token))) > SATURATED).mean(axis=0)
        h = cell.step(h, token)
        return h, (cell.output(h).T, saturated)

    return lax.scan(record, h, tokens[washout:])[1]


def effective_rank(states: np.ndarray) -> float:
    """exp of the entropy of the normalised singular values of states (S, N) (Roy and Vetterli 2007), from 1 to min(S, N).

    It grows with S: quote S beside it. States are not centred. Singular values come from the smaller Gram matrix, in
    float64; those below 1e-8 of the largest drown in its rounding.

    Raises:
        InputError: all states are 0, or one is not finite.
    """
    _require_finite(states, "effective rank")
    gram = _gram(states if states.shape[0] <= states.shape[1] else states.T, 0.0)
    singular = np.sqrt(np.maximum(np.linalg.eigvalsh(gram), 0))
    if not singular.any():
        raise InputError("effective rank: all states are 0; sample the states of a network that is driven")
    p = singular / singular.sum()
    p = p[p > 0]
    return float(np.exp(-(p * np.log(p)).sum()))


def _require_finite(states, what) -> None:
    if not np.isfinite(states).all():
        raise InputError(f"{what}: the states grow beyond float32; lower the spectral radius")


def _gram(x, mean) -> np.ndarray:
    """(x - mean) (x - mean)^T in float64, (S, S), without a float64 copy of x (S, N)."""
    mean = np.broadcast_to(mean, x.shape[1])
    total = np.zeros((len(x), len(x)))
    for start in range(0, x.shape[1], 4096):
        part = x[:, start : start + 4096] - mean[start : start + 4096]
        total += part @ part.T
    return total
