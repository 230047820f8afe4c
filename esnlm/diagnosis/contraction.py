"""Does the network forget? The echo state property as it is measured (S4): two states, the same input, their distance.

    state_contraction   two start states
    input_forgetting    two histories

A cell is a reservoir as `for_device` returns it. Distances are of the carried state: of membrane potentials where the
update rule has them, and of all layers of a stack together.
"""

from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from esnlm.errors import InputError
from esnlm.reservoir.cell import Reservoir, Stack

FLOOR = 100 * float(np.finfo(np.float32).eps)  # of a distance, relative to the states: below it float32 rounding shows


@dataclass(frozen=True)
class DistanceCurve:
    """Euclidean distance of two states that read the same tokens, one pair a slot.

    Where the decay is exponential, `rate` and `rate_before` agree. Leaks that come close to 0 make it slower: with a_i
    uniform in (0, 1) the slow units alone leave sqrt(1 / (2 t + 1)) of a distance after t steps, so that the rate halves
    from one range to the next and is a property of the range.
    """

    distance: np.ndarray  # (T + 1, B): before the first common token, and after each
    rate: float  # nats a step, negative where states approach; -inf where one token was enough to become one, inf to leave float32
    fitted: tuple[int, int]  # first and last step that the rate was fitted to
    rate_before: float  # the same on the steps first / 2 to first; nan where they are too few


def state_contraction(cell: Reservoir | Stack, tokens: np.ndarray, *, seed: int = 0) -> DistanceCurve:
    """State contraction (definition 3.1): two random start states a slot, one input.

    Start states are uniform in [-1, 1]^N, the set of states that tanh allows; under ReLU in [0, 1]^N. So are membrane
    potentials, which no set bounds.

    Args:
        tokens: a sequence a slot, (T, B) int32. Take text: how strongly it drives the network decides the outcome.
    """
    rng = np.random.default_rng(seed)
    low = 0.0 if cell.activation == "relu" else -1.0
    states = jax.tree.map(
        lambda zeros: jnp.asarray(rng.uniform(low, 1.0, zeros.shape), jnp.float32), cell.initial_state(2 * tokens.shape[1])
    )
    return _curve(*_follow(cell, states, tokens))


def input_forgetting(
    cell: Reservoir | Stack, history: np.ndarray, other: np.ndarray, tokens: np.ndarray
) -> DistanceCurve:
    """Input forgetting (definition 3.3): two histories from the state 0, then the same h tokens; distance against h.

    Args:
        history, other: (H, B) and (H', B) int32, which differ in every slot.
        tokens: (T, B) int32, common.

    Raises:
        InputError: two histories lead to the same state, or one out of float32's range.
    """
    states = [_last_state(cell, jnp.asarray(past)) for past in (history, other)]
    return _curve(*_follow(cell, jax.tree.map(lambda *two: jnp.concatenate(two, axis=1), *states), tokens))


@jax.jit
def _last_state(cell, tokens):
    return lax.scan(lambda h, token: (cell.step(h, token), None), cell.initial_state(tokens.shape[1]), tokens)[0]


@jax.jit
def _follow(cell, h, tokens):
    """Distances of slot j from slot B + j, and norms of slot j, both (T + 1, B), for h (N, 2B) or several of them."""

    def measure(h):
        first, second = jnp.split(jnp.concatenate(jax.tree.leaves(h)), 2, axis=1)
        return jnp.linalg.norm(first - second, axis=0), jnp.linalg.norm(first, axis=0)

    def advance(h, token):
        h = cell.step(h, jnp.concatenate([token, token]))
        return h, measure(h)

    curves = lax.scan(advance, h, jnp.asarray(tokens))[1]
    return jax.tree.map(lambda start, rest: jnp.concatenate([start[None], rest]), measure(h), curves)


def _curve(distance, norm) -> DistanceCurve:
    """The rate is the slope of the mean log distance over the second half of the steps before any slot meets the floor.

    A distance of exactly 0, or one that is no longer finite (ReLU), ends the range too, so no logarithm meets it.
    """
    distance, norm = np.asarray(distance, np.float64), np.asarray(norm, np.float64)
    clear = np.isfinite(distance) & (distance > FLOOR * norm)
    if not np.isfinite(distance[0]).all():
        raise InputError("the states grow beyond float32 before they are compared; lower the spectral radius")
    if not clear[0].all():
        slot = int(np.argmin(clear[0]))
        raise InputError(
            f"slot {slot}: the two states to be compared are the same; give histories that end differently"
        )
    last = int(np.argmin([*clear.all(axis=1), False])) - 1
    log_distance = np.log(distance[: last + 1]).mean(axis=1)

    def slope(first: int, last: int) -> float:
        return (
            float(np.polyfit(np.arange(first, last + 1), log_distance[first : last + 1], 1)[0])
            if last > first
            else np.nan
        )

    grown = not np.isfinite(distance[:2]).all()
    rate = slope(last // 2, last) if last else np.inf if grown else -np.inf
    return DistanceCurve(distance, rate, (last // 2, last), slope(last // 4, last // 2))


def plot_contraction(curves: dict[str, DistanceCurve], file: str | Path) -> str | None:
    """Draws distance against steps to a PNG file: geometric mean over slots, their range, and the fits, dashed.

    A curve that ends at a triangle is exactly 0 in some slot from the next step on. Gives None, or the one line that
    says why there is no picture.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return "no plot: matplotlib is not installed (pip install matplotlib)"
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot(yscale="log")
    for i, (name, curve) in enumerate(curves.items()):
        visible = (np.isfinite(curve.distance) & (curve.distance > 0)).all(axis=1)
        steps = np.arange(int(np.argmin([*visible, False])))
        distance, colour = curve.distance[steps], f"C{i}"
        mean = np.exp(np.log(distance).mean(axis=1))
        first, last = curve.fitted
        label = f"{name}: {curve.rate:+.3g} nats a step (steps {first} to {last})"
        axes.plot(steps, mean, color=colour, linewidth=1.6, label=label)
        axes.fill_between(steps, distance.min(axis=1), distance.max(axis=1), color=colour, alpha=0.2, linewidth=0)
        if len(steps) < len(curve.distance):
            axes.plot(steps[-1], mean[-1], "v", color=colour)
        if last > first:
            fitted = np.arange(first, last + 1)
            middle = np.exp(np.log(mean[fitted]).mean())
            axes.plot(
                fitted, middle * np.exp(curve.rate * (fitted - fitted.mean())), "--", color="black", linewidth=0.9
            )
    axes.set(xlabel="steps of common input", ylabel="distance of the two states")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", frameon=False, fontsize=9)
    figure.savefig(file, dpi=150, format="png")
    return None
