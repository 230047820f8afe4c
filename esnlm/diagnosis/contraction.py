"""Measures whether a network forgets: how the distance of two states changes under common input.

    state_contraction   two random start states (Jaeger 2001)
    input_forgetting    two states after different histories (Jaeger 2001)
    largest_exponent    two states infinitely close to each other (Lyapunov exponent)

The definitions include Jaeger's erratum, which requires convergence uniform over the inputs. A
measurement follows some states and histories on one text, so it shows forgetting there and proves
no property.

A cell is a reservoir as `for_device` returns it. Distances are between carried states: membrane
potentials if the update rule has them, and all layers of a stack together.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import ArrayLike

from esnlm.base.errors import InputError
from esnlm.base.rng import Stream, generator
from esnlm.reservoir.cell import ReservoirLayer, Stack

# A distance below this share of the states' norm is float32 rounding.
FLOOR = 100 * float(np.finfo(np.float32).eps)

Cell = ReservoirLayer | Stack
State = Any  # (N, B) float32, or a tuple with one such array per layer


class DistanceCurve(NamedTuple):
    """Euclidean distance of two states that read the same tokens, one pair per batch slot.

    If the decay is not exponential, as with leaks near 0, `rate` and `rate_before` differ: each is
    for its range.
    """

    distance: np.ndarray  # before the first common token and after each, (T + 1, B)
    # nats per time step; -inf or inf if the states become equal or overflow float32 within one
    # token
    rate: float
    fitted: tuple[int, int]  # first and last time step of the fit
    rate_before: float  # rate over the time steps first / 2 to first; nan if they are too few


def state_contraction(cell: Cell, tokens: np.ndarray, *, seed: int = 0) -> DistanceCurve:
    """Measures state contraction (Jaeger 2001, definition 3.1) under the input tokens (T, B).

    Two random start states per slot are uniform in [-1, 1]^N, the set of states that tanh allows,
    and in [0, 1]^N under ReLU. Membrane potentials and states of euler_state start there, too,
    although they are not bounded.
    """
    rng = generator(seed, Stream.MEASUREMENT, 2)
    low = 0.0 if cell.activation == "relu" else -1.0
    states = jax.tree.map(
        lambda zeros: jnp.asarray(rng.uniform(low, 1.0, zeros.shape), jnp.float32),
        cell.initial_state(2 * tokens.shape[1]),
    )
    return _fit_curve(*_follow(cell, states, tokens))


def input_forgetting(
    cell: Cell, history: np.ndarray, other: np.ndarray, tokens: np.ndarray
) -> DistanceCurve:
    """Measures input forgetting (Jaeger 2001, definition 3.3) after two histories from the state 0.

    The histories, (H, B) and (H', B) int32, differ in every batch slot; the common tokens are (T,
    B). Raises InputError if two histories lead to the same state, or one overflows float32.
    """
    states = [_last_state(cell, jnp.asarray(past)) for past in (history, other)]
    pairs = jax.tree.map(lambda *two: jnp.concatenate(two, axis=1), *states)
    return _fit_curve(*_follow(cell, pairs, tokens))


@partial(jax.jit, static_argnames="washout")
def largest_exponent(cell: Cell, inputs: jax.Array, washout: int) -> jax.Array:
    """Computes the largest Lyapunov exponent under B inputs, (B,), in nats per time step.

        lambda = lim 1/T ln |J_T ... J_1 v|,    J_t = dx_t / dx_(t-1) under the input of step t

    A random v turns towards the direction of fastest growth, whose logarithm is averaged (Benettin
    et al. 1980). States start at 0, and the first `washout` time steps, in which v still turns, are
    left out. An exponent is -inf if v becomes 0.

    Args:
        inputs: token ids (T, B), or numbers (T, D, B).
    """
    read = cell.embed if inputs.ndim == 2 else cell.layers[0].read_below
    dtype = cell.layers[0].leak[...].dtype
    start = jax.tree.map(lambda x: x.astype(dtype), cell.initial_state(inputs.shape[-1]))
    v = jax.tree.map(lambda x: jax.random.normal(jax.random.key(0), x.shape, dtype), start)

    def advance(carry: tuple[State, State], u: jax.Array) -> tuple[tuple[State, State], jax.Array]:
        state, v = jax.jvp(lambda state: cell.advance(state, read(u)), carry[:1], carry[1:])
        size = jnp.sqrt(sum(jnp.square(part).sum(axis=0) for part in jax.tree.leaves(v)))  # (B,)
        v = jax.tree.map(lambda part: part / jnp.where(size > 0, size, 1), v)
        return (state, v), jnp.log(size)

    return lax.scan(advance, (start, v), inputs)[1][washout:].mean(axis=0)


@jax.jit
def _last_state(cell: Cell, tokens: jax.Array) -> State:
    start: State = cell.initial_state(tokens.shape[1])
    return lax.scan(lambda h, token: (cell.step(h, token), None), start, tokens)[0]


@jax.jit
def _follow(cell: Cell, h: State, tokens: np.ndarray) -> tuple[jax.Array, jax.Array]:
    """Returns the distances of slots j and B + j of h (N, 2 B), and norms of j, (T + 1, B) each."""

    def measure(h: State) -> tuple[jax.Array, jax.Array]:
        first, second = jnp.split(jnp.concatenate(jax.tree.leaves(h)), 2, axis=1)
        return jnp.linalg.norm(first - second, axis=0), jnp.linalg.norm(first, axis=0)

    def advance(h: State, token: jax.Array) -> tuple[State, tuple[jax.Array, jax.Array]]:
        h = cell.step(h, jnp.concatenate([token, token]))
        return h, measure(h)

    curves = lax.scan(advance, h, jnp.asarray(tokens))[1]
    return jax.tree.map(
        lambda start, rest: jnp.concatenate([start[None], rest]), measure(h), curves
    )


def _fit_curve(distances: ArrayLike, norms: ArrayLike) -> DistanceCurve:
    """Fits the slope of the mean log distance over the second half of the steps above the floor.

    These end before any slot reaches the floor, becomes exactly 0, or is no longer finite (ReLU).
    """
    distance, norm = np.asarray(distances, np.float64), np.asarray(norms, np.float64)
    clear = np.isfinite(distance) & (distance > FLOOR * norm)
    if not np.isfinite(distance[0]).all():
        raise InputError(
            "the states grow beyond float32 before they are compared; lower the spectral radius"
        )
    if not clear[0].all():
        raise InputError(
            "the two states to compare are equal: both histories end alike, or their tokens drive"
            " no unit"
        )
    last = int(np.argmin(np.append(clear.all(axis=1), False))) - 1
    log_distance = np.log(distance[: last + 1]).mean(axis=1)

    def slope(first: int, last: int) -> float:
        if last <= first:
            return np.nan
        rate = float(np.polyfit(np.arange(first, last + 1), log_distance[first : last + 1], 1)[0])
        return rate if abs(rate) * (last - first) > FLOOR else 0.0  # rounding is not a trend

    grown = not np.isfinite(distance[:2]).all()
    rate = slope(last // 2, last) if last else np.inf if grown else -np.inf
    return DistanceCurve(distance, rate, (last // 2, last), slope(last // 4, last // 2))
