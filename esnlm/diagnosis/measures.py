"""Measures a reservoir, by theory and on text, with a verdict of one sentence."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from esnlm.base.console import spinner
from esnlm.base.errors import InputError
from esnlm.diagnosis import capacity, contraction, theory
from esnlm.diagnosis.contraction import Cell, DistanceCurve
from esnlm.machine.compute import in_float32
from esnlm.models.devices import choose_kernel
from esnlm.models.echo_state import EchoStateConfig
from esnlm.reservoir.arrays import as_scipy
from esnlm.reservoir.cell import ReservoirLayer, Stack

T = TypeVar("T")

WASHOUT = 100  # time steps before states are sampled
MEMORY_SEEDS = 3  # measurements of the memory capacity, each with its own driving vector and input


class Text(NamedTuple):
    """The text that drives a reservoir; all arrays are int32."""

    name: str
    tokens: np.ndarray  # common to both states of a pair, (T, B)
    history: np.ndarray  # history of one state of a pair, (H, B)
    other: np.ndarray  # history of the other state, (H, B)


@in_float32
def measure(
    name: str, config: EchoStateConfig, reservoir: ReservoirLayer | Stack, text: Text
) -> tuple[dict[str, Any], dict[str, DistanceCurve]]:
    """Returns the measurements of a reservoir, for JSON, and its curves by name.

    Rates are in nats per token. A measurement that fails, as in a ReLU network that grows without
    bound, is replaced by the reason.
    """
    settings = config.reservoir
    with spinner(f"{name}: singular value and spectral radii of W_rec", announce=True):
        decided = theory.decide(reservoir, settings.activation, settings.decay)
    kernel = choose_kernel(config.recurrence, jax.default_backend())
    ready = reservoir.for_device(kernel)
    with spinner(
        f"{name}: contraction over {text.tokens.shape[0]} tokens of {text.tokens.shape[1]}"
        " stretches of text",
        announce=True,
    ):
        contracting = contraction.state_contraction(ready, text.tokens)
        forgetting = _or_reason(
            lambda: contraction.input_forgetting(ready, text.history, text.other, text.tokens)
        )
        exponents = contraction.largest_exponent(reservoir.for_device("bcoo"), text.tokens, WASHOUT)
    with spinner(f"{name}: states and memory capacity", announce=True):
        states, saturated = map(np.asarray, capacity.sample_states(ready, text.tokens, WASHOUT))
        rank = _or_reason(lambda: capacity.effective_rank(states))
        memory = _or_reason(lambda: _measure_memory(ready))
    figures = {
        "name": name,
        "model": config.title,
        "settings": asdict(settings),
        "connections": sum(layer.nonzeros[0] for layer in reservoir.layers),
        "longest_row": max(
            int((as_scipy(layer.stored_w_rec) != 0).sum(axis=1).max()) for layer in reservoir.layers
        ),
        "vocab_size": reservoir.vocab_size,
        "verdict": verdict(decided, contracting, settings.update_rule),
        "theory": asdict(decided),
        "state_contraction": _summarize(contracting),
        "input_forgetting": _summarize(forgetting),
        "lyapunov_exponent": float(exponents.mean()),
        "saturated": float(saturated) if settings.activation == "tanh" else None,
        "sampled_states": len(states),
        "effective_rank": rank,
        "memory_capacity": memory,
    }
    curves = {"state contraction": contracting, "input forgetting": forgetting}
    return figures, {
        what: curve for what, curve in curves.items() if isinstance(curve, DistanceCurve)
    }


def verdict(decided: theory.Theory, curve: DistanceCurve, rule: str = "leaky_output") -> str:
    """Returns the theory's verdict on the echo state property and the measured rate."""
    two = "two start states" + " (membrane potentials)" * (rule == "leaky_membrane")
    first, last = curve.fitted
    if np.isinf(curve.rate):
        change = "become equal" if curve.rate < 0 else "grow apart beyond float32"
        measured = f"{change} within a token"
    elif not curve.rate < 0:
        measured = f"do not approach each other ({curve.rate:+.3g} nats per token)"
    else:
        rate = f"{-curve.rate:.3g} nats per token (tokens {first} to {last})"
        measured = f"approach each other by {rate}"
    phrases = {"undecided": "is undecided by theory", "undefined": "is not defined"}
    by_theory = phrases.get(decided.verdict, f"{decided.verdict} by theory")
    sentence = f"The echo state property {by_theory}: {decided.reason}; measured on text,"
    return f"{sentence} {two} {measured}."


def _summarize(curve: DistanceCurve | str) -> dict[str, Any] | str:
    """Returns a curve for JSON, or the reason if there is none."""
    if isinstance(curve, str):
        return curve
    return {
        "rate": curve.rate,
        "fitted": curve.fitted,
        "rate_before": curve.rate_before,
        "left": float((curve.distance[-1] / curve.distance[0]).mean()),
        "distance": np.sqrt((curve.distance**2).mean(axis=1)).tolist(),  # (T + 1,)
    }


def _measure_memory(ready: Cell) -> dict[str, Any]:
    """Returns means over MEMORY_SEEDS inputs and driving vectors."""
    capacities = [capacity.memory_capacity(ready, seed=seed) for seed in range(MEMORY_SEEDS)]
    totals = [memory.total for memory in capacities]
    return {
        "total": float(np.mean(totals)),
        "sd": float(np.std(totals, ddof=1)),
        "totals": totals,
        "by_delay": np.mean([memory.by_delay for memory in capacities], axis=0).tolist(),
        "chance": capacities[0].chance,
        "samples": capacity.default_samples(ready.output_size),
    }


def _or_reason(measure: Callable[[], T]) -> T | str:
    """Returns a measurement, or the reason if it fails."""
    try:
        return measure()
    except InputError as error:
        return str(error)
