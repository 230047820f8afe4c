"""Jaeger's network is his equations, and its readout the solution of the regression."""

import numpy as np
import pytest

from examples.output_feedback import TASKS, Network

# Sums of about 30 float64 terms of order 1, over 40 contracting steps.
TOLERANCE = 40 * 30 * float(np.finfo(np.float64).eps)
RNG = np.random.default_rng(0)
U, TEACHER = RNG.uniform(-1, 1, (40, 2)), RNG.uniform(-0.9, 0.9, (40, 3))


@pytest.fixture
def network():
    drawn = Network.draw(
        25, 2, 3, feedback_scale=0.5, leak=0.6, decay=0.8, tanh_output=True, mean_degree=10
    )
    return drawn.train(U, TEACHER, washout=5, ridge=0.1)


def test_it_runs_on_the_teacher_and_then_on_itself(network):
    """Eq. 1 and 2 with dense matrices, one step at a time."""
    w, x, y = network.w.toarray(), np.zeros(25), np.zeros(3)
    found, end = network.states(U, TEACHER)
    for n in range(40):
        x = (1 - 0.8 * 0.6) * x + 0.6 * np.tanh(network.w_in @ U[n] + w @ x + network.w_back @ y)
        y = TEACHER[n]
        np.testing.assert_allclose(found[n], x, atol=TOLERANCE, rtol=0)
    alone = network.generate(end, U[:5])
    for n in range(5):
        x = (1 - 0.8 * 0.6) * x + 0.6 * np.tanh(network.w_in @ U[n] + w @ x + network.w_back @ y)
        y = np.tanh(network.w_out @ x)
        np.testing.assert_allclose(alone[n], y, atol=TOLERANCE, rtol=0)


def test_the_readout_solves_the_normal_equations(network):
    z, target = network.states(U, TEACHER)[0][5:], np.arctanh(TEACHER[5:])
    np.testing.assert_allclose(
        z.T @ (z @ network.w_out.T - target) + 0.1 * network.w_out.T, 0, atol=1e-11
    )


def test_jaegers_first_example_is_learned():
    task, published, _ = TASKS["1/2 sin^7 from sin"]
    assert task(0)["MSE"] < published["MSE"]
