"""Generates text from a model, token by token."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from esnlm.base.errors import InputError
from esnlm.readout import linear
from esnlm.reservoir.on_host import HostLayer, HostRecurrence

_logits = jax.jit(linear.logits, static_argnames="precision")


class TokenReader(NamedTuple):
    """Reads B texts side by side, one token of each per call."""

    features: Callable[[np.ndarray], Any]  # from the next tokens (B,) to the features (B, F)
    logits: Callable[[Any], Any]  # from features to logits (B, V)


def read_on_device(
    features: Callable[[np.ndarray], jax.Array], readout: dict, precision: str
) -> TokenReader:
    """Returns the reader with the features of `LanguageModel.reader` and the arrays of a
    readout."""
    return TokenReader(features, partial(_logits, readout, precision=precision))


def read_on_host(layers: list[HostLayer], readout: dict) -> TokenReader:
    """Returns the reader of one text with NumPy and SciPy, from the NumPy arrays of a readout."""
    recurrence = HostRecurrence(layers)
    return TokenReader(
        lambda token: np.concatenate(recurrence.read(token)).T,
        partial(linear.logits_on_host, readout),
    )


@np.errstate(over="ignore", invalid="ignore")  # an error says that a model has diverged
def generate_each(
    reader: TokenReader,
    prompts: Sequence[np.ndarray],
    eos: int,
    *,
    length: int,
    temperature: float,
    top_k: int | None,
    seed: int,
    numbers: Sequence[int] | None = None,
    is_finished: Callable[[list[int]], bool] = lambda ids: False,
) -> list[list[int]]:
    """Continues each of several prompts once, in parallel.

    All slots read one token per step. Slots with longer prompts still read while others choose.

    Args:
        reader: has read nothing yet.
        prompts: B arrays of at least one id each.
        length, temperature, top_k: as in `Run.generate`.
        seed, numbers: slot i has its own random stream, seeded by (seed, numbers[i]); None: numbers
            from 0.
        is_finished: called after each token with the ids chosen so far; True ends the continuation.

    Returns:
        The ids chosen for each prompt, without EOS.
    """
    rngs = [np.random.default_rng((seed, number)) for number in numbers or range(len(prompts))]
    # the tokens of each slot: its prompt, then its own choices
    read = [prompt.tolist() for prompt in prompts]
    chosen: list[list[int]] = [[] for _ in prompts]
    active, time = set(range(len(prompts))), 0
    while active:
        tokens = [ids[time] if time < len(ids) else eos for ids in read]
        features = reader.features(np.array(tokens, np.int32))
        time += 1
        choosing = sorted(slot for slot in active if time >= len(read[slot]))
        logits = np.empty(0)
        if choosing:
            logits = np.asarray(reader.logits(features), np.float64)
        for slot in choosing:
            if not np.isfinite(logits[slot].max()):
                raise InputError(
                    f"the model's logits are not finite after {len(chosen[slot])} tokens: it has"
                    " diverged; try another --step"
                )
            token = choose(logits[slot], temperature, top_k, rngs[slot])
            if token != eos:
                chosen[slot].append(token)
                read[slot].append(token)
            if token == eos or len(chosen[slot]) == length or is_finished(chosen[slot]):
                active.remove(slot)
    return chosen


def choose(
    logits: np.ndarray, temperature: float, top_k: int | None, rng: np.random.Generator
) -> int:
    """Samples an id from logits (V,) in float64.

    It draws one random number, or none if the temperature is 0.
    """
    if temperature == 0:
        return int(logits.argmax())
    if top_k is not None and top_k < len(logits):
        logits = np.where(logits >= np.partition(logits, -top_k)[-top_k], logits, -np.inf)
    # A tiny temperature makes all other logits -inf, and their p 0.
    with np.errstate(over="ignore"):
        p = np.exp((logits - logits.max()) / temperature)
    # as rng.choice, whose checks of p take as long as exp
    cumulative = p.cumsum()
    return int(np.searchsorted(cumulative / cumulative[-1], rng.random(), side="right"))
