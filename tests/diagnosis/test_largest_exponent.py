"""The largest Lyapunov exponent of maps whose exponent is known, and of reservoirs, against a NumPy
product of Jacobians."""

import jax.numpy as jnp
import numpy as np
import pytest

import esnlm
from esnlm.base.errors import InputError
from esnlm.reservoir import functions

LN_OF_RADIUS = np.log(0.9)


def turned(state):
    """Turns by a fixed angle and shrinks, so that nothing settles but the size."""
    x, y = state
    return 0.9 * jnp.stack([0.6 * x - 0.8 * y, 0.8 * x + 0.6 * y])


def henon(state):
    x, y = state
    return jnp.stack([1 - 1.4 * x * x + y, 0.3 * x])


@pytest.mark.parametrize(
    "step, units, expected, tolerance",
    [
        (
            lambda x: 4 * x * (1 - x),
            1,
            np.log(2),
            0.03,
        ),  # the logistic map; 3,500 steps have a standard deviation of 0.01
        (turned, 2, LN_OF_RADIUS, 1e-12),
        (henon, 2, 0.419, 0.02),  # at a = 1.4 and b = 0.3 (Sprott 2003)
    ],
    ids=["logistic", "linear", "henon"],
)
def test_maps_have_their_known_exponents(step, units, expected, tolerance):
    before = dict(functions.UPDATE_RULES)
    inputs = np.zeros((4000, 1))
    inputs[0] = 0.03  # brings the state away from 0, where maps may stay
    try:
        w_in, none = 1 + 0.1 * np.arange(units)[:, None], np.zeros((units, units))
        rule = {"update_rule": lambda state, drive, leak, f: step(state) + drive}
        reservoir = esnlm.Reservoir.from_matrices(none, w_in, reads_tokens=False, **rule)
        assert reservoir.lyapunov_exponent(inputs, washout=500) == pytest.approx(
            expected, abs=tolerance
        )
    finally:
        functions.UPDATE_RULES.clear()
        functions.UPDATE_RULES.update(before)


@pytest.mark.parametrize("radius", [0.5, 4.0])
def test_a_reservoir_has_that_of_its_jacobians(radius):
    n, steps, washout = 50, 300, 50
    reservoir = esnlm.Reservoir.draw(n, inputs=1, spectral_radius=radius, leak=0.7, seed=3)
    u = 0.1 * np.random.default_rng(0).normal(size=(steps, 1))
    w_rec, w_in = (
        getattr(m, "toarray", lambda m=m: m)().astype(float)
        for m in (reservoir.w_rec, reservoir.w_in)
    )
    h, v, growth = np.zeros(n), np.random.default_rng(1).normal(size=n), []
    for each in u:
        active = np.tanh(w_rec @ h + w_in @ each)
        v = 0.3 * v + 0.7 * (1 - active**2) * (w_rec @ v)
        h = 0.3 * h + 0.7 * active
        growth.append(np.log(np.linalg.norm(v)))
        v /= np.linalg.norm(v)
    found = reservoir.lyapunov_exponent(u, washout=washout)
    # The two begin with other directions. Where they still differ after the washout, sizes do by a
    # factor below e^5.
    assert found == pytest.approx(np.mean(growth[washout:]), abs=5 / (steps - washout))
    assert (found > 0) == (radius > 1)


def test_tokens_layers_and_a_washout_that_is_too_long():
    reservoir = esnlm.Reservoir.draw(30, vocabulary=11, layers=2, spectral_radius=0.6, leak=1.0)
    ids = np.random.default_rng(0).integers(0, 11, 200)
    assert -3 < reservoir.lyapunov_exponent(ids) < np.log(0.7)
    with pytest.raises(InputError, match="^washout is 200: it must be below the 200 time steps"):
        reservoir.lyapunov_exponent(ids, washout=200)
