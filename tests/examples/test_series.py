"""The series are solutions of their equations."""

import numpy as np
import pytest
from scipy.integrate import quad

from examples.series import mackey_glass, narma10, nrmse, sine


def test_mackey_glass_is_the_solution_by_the_method_of_steps():
    """While y(t - 17) is known, the equation is linear in y: first with a constant drive, then with
    an integral."""
    first = 0.2 * 1.2 / (1 + 1.2**10) / 0.1  # what y tends to as long as y(t - 17) is 1.2

    def early(t):
        return first + (1.2 - first) * np.exp(-0.1 * t)

    def late(t):
        def drive(s):
            return np.exp(-0.1 * (t - s)) * 0.2 * early(s - 17) / (1 + early(s - 17) ** 10)

        return (
            np.exp(-0.1 * (t - 17)) * early(17) + quad(drive, 17, t, epsabs=1e-13, epsrel=1e-13)[0]
        )

    found = mackey_glass(35, discard=0)[:, 0]
    expected = np.array([early(t) if t <= 17 else late(t) for t in range(35)])
    # A step is off by its fifth power / 5! times a fifth derivative, which is below 0.1 here; there
    # are 340 of them.
    np.testing.assert_allclose(found, expected, atol=340 * 0.1**5 / 120 * 0.1, rtol=0)


def test_mackey_glass_is_the_attractor_of_the_literature():
    """Mean and variance of the chaotic signal at tau 17, about 0.93 and 0.05, and no period."""
    y = mackey_glass(4000)
    assert (
        y.shape == (4000, 1)
        and y.mean() == pytest.approx(0.93, abs=0.02)
        and y.var() == pytest.approx(0.05, abs=0.01)
    )
    assert 0.2 < y.min() < 0.5 and 1.2 < y.max() < 1.4


def test_narma10_is_its_equation():
    u, y = narma10(200, seed=1)
    assert u.shape == y.shape == (200, 1) and u.min() >= 0 and u.max() <= 0.5
    u, y = u[:, 0], y[:, 0]
    for n in range(10, 200):  # y[n] is y(n+1)
        expected = (
            0.3 * y[n - 1]
            + 0.05 * y[n - 1] * sum(y[n - 1 - i] for i in range(10))
            + 1.5 * u[n - 9] * u[n]
            + 0.1
        )
        assert y[n] == pytest.approx(expected, rel=1e-14)


def test_sine():
    assert sine(50, power=7).shape == (50, 1)
    assert sine(50, power=7)[13, 0] == pytest.approx(0.5 * np.sin(13 / 5) ** 7, rel=1e-15)


def test_nrmse_of_the_mean_is_1():
    y = sine(100)
    assert nrmse(np.full_like(y, y.mean()), y) == pytest.approx(1) and nrmse(y, y) == 0
    assert nrmse(y + 0.3, y, variance=0.09) == pytest.approx(1)


def test_nrmse_is_of_one_shape_and_by_column():
    """A (T, 1) beside a (T,) would quietly be (T, T); and outputs of different means are no easier
    to predict."""
    target = np.stack([np.sin(np.arange(50.0)), 100 + np.cos(np.arange(50.0))], axis=1)
    assert nrmse(np.tile(target.mean(0), (50, 1)), target) == pytest.approx(1)
    with pytest.raises(ValueError, match="shape"):
        nrmse(target[:, 0], target)
    assert nrmse([1.0, 2.0], [1.0, 3.0]) == pytest.approx(0.5**0.5)
