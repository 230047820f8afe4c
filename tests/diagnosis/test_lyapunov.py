"""The largest Lyapunov exponent of maps whose exponent is known, and of reservoirs, against a NumPy product of Jacobians."""

import numpy as np
import pytest

import esnlm
from esnlm.reservoir import functions

INPUT = np.zeros((4000, 1))
INPUT[0] = 0.3  # brings the state away from 0, where all maps stay


@pytest.fixture(autouse=True)
def forget_rules():
    """Takes the rules of these tests away again."""
    before = dict(functions.UPDATE_RULES)
    yield
    functions.UPDATE_RULES.clear()
    functions.UPDATE_RULES.update(before)


def exponent(step, units=1, inputs=INPUT):
    """Returns that of the map `step` of states (N, B), to which the first input is added."""

    def rule(state, drive, leak, f):
        return step(state) + drive

    w_in = 1 + 0.1 * np.arange(units)[:, None]
    none = np.zeros((units, units))
    reservoir = esnlm.Reservoir.from_matrices(none, w_in, reads_tokens=False, update_rule=rule)
    [found] = reservoir.lyapunov_exponent([inputs], washout=500)
    return found


def test_the_logistic_map_has_ln_2():
    """At r = 4; 3,500 steps leave a standard deviation of about 0.01."""
    assert exponent(lambda x: 4 * x * (1 - x)) == pytest.approx(np.log(2), abs=0.03)


def test_a_linear_map_has_the_logarithm_of_its_radius():
    """It turns states by a fixed angle, and so in two dimensions nothing settles but the size."""

    def turn(state):
        import jax.numpy as jnp

        x, y = state
        return 0.9 * jnp.stack([0.6 * x - 0.8 * y, 0.8 * x + 0.6 * y])

    assert exponent(turn, units=2) == pytest.approx(np.log(0.9), abs=1e-12)


def test_the_henon_map_has_its_published_exponent():
    """0.419 at a = 1.4 and b = 0.3 (Sprott 2003)."""

    def henon(state):
        import jax.numpy as jnp

        x, y = state
        return jnp.stack([1 - 1.4 * x * x + y, 0.3 * x])

    assert exponent(henon, units=2, inputs=INPUT / 10) == pytest.approx(0.419, abs=0.02)


@pytest.mark.parametrize("radius", [0.5, 4.0])
def test_a_reservoir_has_that_of_its_jacobians(radius):
    n, steps, washout = 50, 300, 50
    reservoir = esnlm.Reservoir.draw(n, inputs=1, spectral_radius=radius, leak=0.7, seed=3)
    u = 0.1 * np.random.default_rng(0).normal(size=(steps, 1))
    w_rec, w_in = (
        np.asarray(m.toarray() if hasattr(m, "toarray") else m, float) for m in (reservoir.w_rec, reservoir.w_in)
    )
    h, v, growth = np.zeros(n), np.random.default_rng(1).normal(size=n), []
    for each in u:
        active = np.tanh(w_rec @ h + w_in @ each)
        v = 0.3 * v + 0.7 * (1 - active**2) * (w_rec @ v)
        h = 0.3 * h + 0.7 * active
        growth.append(np.log(np.linalg.norm(v)))
        v /= np.linalg.norm(v)
    [found] = reservoir.lyapunov_exponent([u], washout=washout)
    # The two begin with other directions. Where they still differ after the washout, sizes do by a factor below e^5.
    assert found == pytest.approx(np.mean(growth[washout:]), abs=5 / (steps - washout))
    assert (found > 0) == (radius > 1)


def test_tokens_and_layers():
    reservoir = esnlm.Reservoir.draw(30, vocabulary=11, layers=2, spectral_radius=0.6, leak=1.0)
    ids = [np.random.default_rng(i).integers(0, 11, 200) for i in range(3)]
    found = reservoir.lyapunov_exponent(ids)
    assert found.shape == (3,) and (found < np.log(0.7)).all() and (found > -3).all()
