"""Rates of a schedule that counts words, against plain loops and against a schedule that counts
updates."""

import math

import numpy as np
import pytest

from esnlm.training.config import TrainingConfig
from esnlm.training.optimizer import learning_rates, make_optimizer, rates_by_words

SCHEDULES = ("constant", "linear", "cosine")


def by_words(**settings):
    return TrainingConfig(schedule_by="words", learning_rate=0.02, **settings)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_updates_of_equal_length_have_the_rates_of_a_schedule_by_updates(schedule):
    words = np.full(12, 50)
    found = rates_by_words(by_words(schedule=schedule, warmup_words=200), words)
    ours = learning_rates(
        TrainingConfig(schedule=schedule, learning_rate=0.02, warmup_updates=4), updates=12
    )
    np.testing.assert_allclose(found, ours, rtol=1e-5, atol=1e-8)


def plain_loop(config, words):
    read, rates = 0, []
    end = config.schedule_words or sum(words)
    for of_update in words:
        if read < config.warmup_words:
            share = min(1, (read + of_update) / config.warmup_words)
        else:
            done = min(1, (read - config.warmup_words) / (end - config.warmup_words))
            share = {
                "constant": 1,
                "linear": 1 - done,
                "cosine": (1 + math.cos(math.pi * done)) / 2,
            }[config.schedule]
        rates.append(config.learning_rate * share)
        read += of_update
    return rates


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("warmup, end", [(0, None), (333, None), (333, 700), (0, 10_000)])
def test_the_rates_are_those_of_a_plain_loop(schedule, warmup, end):
    end = None if schedule == "constant" else end
    config = by_words(schedule=schedule, warmup_words=warmup, schedule_words=end)
    words = np.random.default_rng(0).integers(1, 100, 20)
    found = learning_rates(config, updates=20, words=words)
    np.testing.assert_allclose(found, plain_loop(config, words.tolist()), rtol=1e-6)


def test_the_steps_of_a_training_are_the_rates():
    """With a gradient of 1 and neither momentum nor decay."""
    optimizer = make_optimizer(TrainingConfig(optimizer="sgd", momentum=0.0, weight_decay=0.0))
    one, rates = {"w": np.ones(1, np.float32)}, np.linspace(0.1, 1, 5, dtype=np.float32)
    state, steps = optimizer.init(one), []
    for _ in rates:
        change, state = optimizer.update(one, state, one, rates=rates)
        steps.append(-float(change["w"][0]))
    np.testing.assert_allclose(steps, rates, rtol=1e-6)
