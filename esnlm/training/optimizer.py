"""The optimizer of a run, its learning rates, its schedule and the average of its arrays.

The learning rate warms up linearly and is then constant, or falls to 0 linearly or as a cosine, by
updates or by words of text. By words, runs with different batch sizes or corpora have the same rate
after the same number of words. The rates of a run are a table that the compiled update takes as an
argument, so that runs with different rates share one compiled program.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from esnlm.readout.linear import readout_rates
from esnlm.training.config import TrainingConfig


def make_optimizer(
    config: TrainingConfig, scaling: str = "none", widths: tuple[int, int, int] | None = None
) -> optax.GradientTransformationExtraArgs:
    """Returns the optimizer of a run, with optional clipping and averaging.

    "adamw" is torch.optim.AdamW (decoupled decay on every array), "sgd" gradient descent with the
    momentum of torch.optim.SGD and the same decay. With a scaling of the readout, the steps of its
    arrays are multiplied by their rates, but their decay stays eta wd. In Utsunomiya 2025, eq.
    2.12, decay uses the one learning rate of the network, and layers' rates are the squares of its
    g_l (eq. 2.80).

    Its `update` takes a further argument `rates`, (updates,), from `learning_rates`.

    Args:
        scaling: of the readout.
        widths: N, r and V; None: those of the arrays, which then must have no padding.
    """
    direction = {
        "adamw": optax.scale_by_adam(config.beta1, config.beta2, config.epsilon),
        "sgd": optax.trace(config.momentum),
    }[config.optimizer]
    step = optax.chain(
        direction,
        *([] if scaling == "none" else [_scale_readout(scaling, config.optimizer, widths)]),
        optax.add_decayed_weights(config.weight_decay),
        scale_by_rates(),
    )
    if config.clip_norm is not None:
        step = optax.chain(optax.clip_by_global_norm(config.clip_norm), step)
    return step if config.ema is None else averaged(step, config.ema)


def _scale_readout(
    scaling: str, optimizer: str, widths: tuple[int, int, int] | None
) -> optax.GradientTransformation:
    """Multiplies the steps of each array of the readout by its rate."""

    def multiply(steps: dict, params: dict) -> dict:
        (vocab_size, rank), (_, size) = params["readout"]["a"].shape, params["readout"]["b"].shape
        rates = readout_rates(scaling, optimizer, *(widths or (size, rank, vocab_size)))
        return steps | {
            "readout": {name: rates[name] * step for name, step in steps["readout"].items()}
        }

    return optax.stateless(multiply)


# ---- learning rates ----


def learning_rates(
    config: TrainingConfig, updates: int, words: np.ndarray | None = None
) -> np.ndarray:
    """Returns the rate of each update of a run, (updates,) float32.

    A schedule by words needs the words of each update.
    """
    if config.schedule_by == "words":
        assert words is not None, "the words of each update decide the rate"
        return rates_by_words(config, words).astype(np.float32)
    if config.schedule == "constant" and not config.warmup_updates:
        # optax would compile a dozen programs
        return np.full(updates, config.learning_rate, np.float32)
    rates = _by_updates(config, updates)(jnp.arange(updates))
    return np.broadcast_to(np.asarray(rates, np.float32), updates)


def scale_by_rates() -> optax.GradientTransformationExtraArgs:
    """Multiplies each step by minus its learning rate, and counts the steps.

    Its `update` takes a further argument `rates`, the rate of each update, (updates,) float32.
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
        steps = jax.tree.map(lambda step: rate * step, steps)
        return steps, optax.ScaleByScheduleState(state.count + 1)

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
    # progress from the end of the warm-up to the end
    done = np.clip((before - warmup) / max(1, end - warmup), 0, 1)
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


# ---- the schedule of logging, checkpoints and validations ----


class Due(NamedTuple):
    """The actions due after an update."""

    log: bool  # a line of metrics
    checkpoint: bool
    permanent: bool  # the checkpoint is kept for good
    validation: bool


@dataclass(frozen=True)
class Schedule:
    """The actions due in a run, by step: the number of an update, from 1, over the whole run.

    Every epoch has the same number of updates. A line of metrics, a checkpoint and a validation are
    due at its end; the first two are also due before every other validation.
    """

    updates_per_epoch: int
    log_every: int  # steps
    checkpoint_every: int  # steps
    permanent: Collection[int] = ()  # steps whose checkpoints are kept for good
    validate_every: int | None = None  # steps; None: at the end of each epoch only

    def due(self, step: int) -> Due:
        """Returns the actions due after a step; none before the first."""

        def is_due(every: int | None) -> bool:
            return step > 0 and every is not None and step % every == 0

        validation = is_due(self.updates_per_epoch) or is_due(self.validate_every)
        permanent = step in self.permanent
        checkpoint = validation or permanent or is_due(self.checkpoint_every)
        return Due(validation or is_due(self.log_every), checkpoint, permanent, validation)


def steps_at_words(words: np.ndarray, counts: Sequence[int]) -> set[int]:
    """Returns the steps at which a run reaches the word counts, given the words of each update."""
    read = np.cumsum(words, dtype=np.int64)
    return {1 + int(np.searchsorted(read, count)) for count in counts if count <= read[-1]}


def not_reached(training: TrainingConfig, words: np.ndarray) -> list[str]:
    """Returns a line for each setting that does not fit the length of a run."""
    updates, read, lines = len(words), int(words.sum()), []
    for name, value, length in (
        ("warmup_updates", training.warmup_updates, updates),
        ("warmup_words", training.warmup_words, read),
    ):
        if value > length:
            lines.append(
                f"{name} is {value:,}, but the run has {length:,}: it never reaches its learning"
                " rate"
            )
    end = training.schedule_words
    # A schedule of a million words is meant to end near a million.
    if end is not None and read > 1.01 * end:
        lines.append(
            f"schedule_words is {end:,}, but the run reads {read:,} words: the last ones at a"
            " learning rate of 0"
        )
    lines += [
        f"checkpoint_words has {count:,}, but the run reads {read:,}: no checkpoint is kept there"
        for count in training.checkpoint_words
        if count > read
    ]
    return [f"training.{line}" for line in lines]


# ---- the average of the trained arrays ----

# After update t with arrays p_t, the exponential moving average of decay d is a weighted mean of
# the arrays after the updates so far, as an Adam moment with its bias corrected (Kingma and Ba
# 2015, section 3):
#
#     m_t = sum_{i <= t} d^(t - i) p_i / sum_{i <= t} d^(t - i) = m_{t-1} + w_t (p_t - m_{t-1}),
#     w_t = (1 - d) / (1 - d^t)
#
# It takes one more copy of the trained arrays, on the device and in each checkpoint. Training does
# not read it, so the trained arrays are bit-identical with and without it.


class Averaged(NamedTuple):
    """The state of an optimizer, and the average of the arrays that it trains."""

    inner: optax.OptState
    updates: jax.Array  # () int32, number of averaged updates
    average: Any  # a tree like that of the trained arrays


def averaged(
    optimizer: optax.GradientTransformationExtraArgs, decay: float
) -> optax.GradientTransformationExtraArgs:
    """Returns the optimizer, which also keeps the average of the arrays after its steps."""

    def init(params: Any) -> Averaged:
        # A copy, since the arrays and the state are donated separately.
        return Averaged(optimizer.init(params), jnp.int32(0), jax.tree.map(jnp.copy, params))

    def update(gradient: Any, state: Averaged, params: Any, **others: Any) -> tuple[Any, Averaged]:
        changes, inner = optimizer.update(gradient, state.inner, params, **others)
        moved = optax.apply_updates(params, changes)
        updates = state.updates + 1
        weight = (1 - decay) / -jnp.expm1(updates * math.log(decay))
        average = jax.tree.map(
            lambda mean, array: mean + weight * (array - mean), state.average, moved
        )
        return changes, Averaged(inner, updates, average)

    return optax.GradientTransformationExtraArgs(init, update)


def evaluated(params: Any, optimizer_state: Any) -> Any:
    """Returns the arrays for evaluation: their average if there is one."""
    return optimizer_state.average if isinstance(optimizer_state, Averaged) else params
