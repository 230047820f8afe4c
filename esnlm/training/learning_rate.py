"""The learning rate of each update: linear warm-up, then constant, linear or cosine down to 0, by
updates or by words of text.

By words, runs with different batch sizes or corpora have the same rate after the same number of
words. The rates of a whole run are a table that the compiled update takes as an argument, so that
runs with different rates share one compiled program.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from esnlm.config import TrainingConfig


def learning_rates(
    config: TrainingConfig, updates: int, words: np.ndarray | None = None
) -> np.ndarray:
    """Returns the rate of each update of a run, (updates,) float32. A schedule by words needs the
    words of each update."""
    if config.schedule_by == "words":
        assert words is not None, "the words of each update decide the rate"
        return rates_by_words(config, words).astype(np.float32)
    if config.schedule == "constant" and not config.warmup_updates:
        return np.full(
            updates, config.learning_rate, np.float32
        )  # optax would compile a dozen programs
    rates = _by_updates(config, updates)(jnp.arange(updates))
    return np.broadcast_to(np.asarray(rates, np.float32), updates)


def scale_by_rates() -> optax.GradientTransformationExtraArgs:
    """Returns the transformation that multiplies each step by minus its learning rate, and counts
    the steps.

    Its `update` takes a further argument `rates`, (updates,) float32: the rate of each update of
    the run.
    """

    def init(params: Any) -> optax.ScaleByScheduleState:
        return optax.ScaleByScheduleState(jnp.int32(0))

    def update(
        steps: Any,
        state: optax.ScaleByScheduleState,
        params: Any = None,
        *,
        rates: jax.Array,
        **others: Any,
    ) -> tuple[Any, optax.ScaleByScheduleState]:
        rate = -jnp.asarray(rates)[state.count]
        return jax.tree.map(lambda step: rate * step, steps), optax.ScaleByScheduleState(
            state.count + 1
        )

    return optax.GradientTransformationExtraArgs(init, update)


def rates_by_words(config: TrainingConfig, words: np.ndarray) -> np.ndarray:
    """Returns the rate of each update of a run whose schedule counts words, (updates,) float64.

    Warm-up counts the words up to and including the update, so that the first update has a rate
    above 0. The decay counts the words before the update. So if all updates have the same number of
    words, a schedule by updates is equal.
    """
    with_it = np.cumsum(words, dtype=np.float64)
    before = with_it - words
    warmup = config.warmup_words
    end = with_it[-1] if config.schedule_words is None else config.schedule_words
    done = np.clip(
        (before - warmup) / max(1, end - warmup), 0, 1
    )  # progress from the end of the warm-up to the end
    share = {
        "constant": np.ones_like(done),
        "linear": 1 - done,
        "cosine": (1 + np.cos(np.pi * done)) / 2,
    }
    climbing = np.minimum(1, with_it / warmup) if warmup else 1
    return config.learning_rate * np.where(before < warmup, climbing, share[config.schedule])


def _by_updates(config: TrainingConfig, updates: int) -> optax.Schedule:
    decaying = max(1, updates - config.warmup_updates)
    after_warmup = {
        "constant": optax.constant_schedule(config.learning_rate),
        "linear": optax.linear_schedule(config.learning_rate, 0.0, decaying),
        "cosine": optax.cosine_decay_schedule(config.learning_rate, decaying),
    }[config.schedule]
    # Warm-up climbs from 1 / warmup_updates of the rate, not from 0, so that the first update has
    # an effect.
    first = config.learning_rate / max(1, config.warmup_updates)
    warmup = optax.linear_schedule(first, config.learning_rate, max(1, config.warmup_updates - 1))
    return optax.join_schedules([warmup, after_warmup], [config.warmup_updates])
