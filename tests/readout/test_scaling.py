"""Scaling of the low-rank readout: the thesis's numbers, and changes in the orders of its table
1.1."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from esnlm.base.rng import Stream, generator
from esnlm.readout import linear
from esnlm.readout.linear import ReadoutConfig, readout_rates, readout_sigmas
from esnlm.training.config import TrainingConfig
from esnlm.training.optimizer import make_optimizer
from tests import oracle

N, R, V = 400, 100, 900


def test_the_readout_s_standard_deviations_and_rates():
    """Utsunomiya 2025 by hand: B (r, N), A (V, r), and b_out = sqrt(r) b_2."""
    expected = {  # sigma of B, A, b_out; rate of each under SGD, then under Adam
        "ntp": ((1 / 20, 1 / 10, 1), (1 / 400, 1 / 100, 1), (1 / 4000, 1 / 100, 1)),
        "spectral": ((1 / 40, 1 / 10, 1), (1 / 4, 9, 900), (1 / 400, 1 / 100, 1)),
        "dynamic": ((1 / 20, 1 / 100, 1 / 10), (1 / 4, 1 / 100, 1), (1 / 400, 1 / 100, 1)),
    }
    for scaling, (sigmas, sgd, adam) in expected.items():
        found = (
            readout_sigmas(scaling, N, R, V),
            readout_rates(scaling, "sgd", N, R, V),
            readout_rates(scaling, "adamw", N, R, V),
        )
        for by_name, values in zip(found, (sigmas, sgd, adam), strict=True):
            assert [by_name[name] for name in ("b", "a", "bias")] == pytest.approx(values)


@pytest.mark.parametrize("scaling", ["ntp", "spectral", "dynamic"])
def test_a_scaled_readout_is_drawn_normal(scaling):
    readout = linear.initialize(ReadoutConfig(R, scaling), N, V, seed=0)
    for name, sigma in readout_sigmas(scaling, N, R, V).items():
        values = np.asarray(getattr(readout, name))
        assert values.dtype == np.float32
        # five standard errors
        assert values.std() == pytest.approx(sigma, rel=5 / np.sqrt(2 * values.size))
        assert abs(values.mean()) < 5 * sigma / np.sqrt(values.size)
        assert np.abs(values).max() > 2.5 * sigma  # no uniform has this


def test_without_scaling_nothing_changes():
    """Bit by bit the draw of A, b_out and B, in this order, uniform as nn.Linear has it."""
    readout, rng = (
        linear.initialize(ReadoutConfig(R, "none"), N, V, seed=7),
        generator(7, Stream.READOUT),
    )
    for name, fan_in, shape in (("a", R, (V, R)), ("bias", R, V), ("b", N, (R, N))):
        bound = np.float32(1 / np.sqrt(fan_in))
        np.testing.assert_array_equal(
            getattr(readout, name)[...], rng.uniform(-bound, bound, shape).astype(np.float32)
        )


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("scaling, of_z", [("ntp", -0.5), ("spectral", 0.0), ("dynamic", 0.0)])
def test_changes_go_with_width_as_in_table_1_1(optimizer, scaling, of_z):
    """One step on one token, of N = 4 r states of order 1 and V = 10: |delta z| as of_z, the
    logits' change as r^0.

    Sums over r units are off by about r^-1/2 of themselves, 18 % at r = 32: in the mean of ten
    seeds and over a factor of 8, 0.03 in a slope. Three of these.
    """
    method, rates = (
        make_optimizer(TrainingConfig(optimizer=optimizer, weight_decay=0.0), scaling),
        jnp.full(1, 0.1),
    )
    step = jax.jit(
        lambda gradient, params: method.update(gradient, method.init(params), params, rates=rates)[
            0
        ]
    )
    ranks = (32, 256)
    changes = [
        np.mean([_changes(step, scaling, rank, seed) for seed in range(10)], axis=0)
        for rank in ranks
    ]
    slopes = np.polyfit(np.log(ranks), np.log(changes), 1)[0]
    assert slopes == pytest.approx([of_z, 0.0], abs=0.09)


def _changes(step, scaling, rank, seed):
    """Mean |delta z| and |delta o| of a step on a state h and the target of the same number as the
    seed."""
    h = np.random.default_rng(seed).uniform(-1, 1, (1, 4 * rank))
    readout = linear.initialize(ReadoutConfig(rank, scaling), 4 * rank, 10, seed)
    before = {name: np.asarray(getattr(readout, name), np.float64) for name in ("a", "b", "bias")}
    _, gradient = oracle.mean_nll_and_gradient(before, h, [seed])
    moves = step(
        *(
            {"readout": {name: np.float32(part[name]) for name in before}}
            for part in (gradient, before)
        )
    )["readout"]
    after = {name: before[name] + np.asarray(moves[name], np.float64) for name in before}
    z, moved = (h @ part["b"].T for part in (before, after))
    return np.abs(moved - z).mean(), np.abs(
        oracle.logits(after, h) - oracle.logits(before, h)
    ).mean()
