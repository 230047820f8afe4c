"""Jaeger's network is his equations, step by step, and its readout the solution of the regression."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import esnlm
from esnlm.errors import InputError
from esnlm.reservoir import functions
from esnlm.reservoir.topology.fixed_in_degree import FixedInDegree
from esnlm.reservoir.topology.ring import Ring
from esnlm.rng import Stream, generator
from esnlm.signals.network import State, draw, generate, run, states, train
from esnlm.signals.series import sine

# Sums of about 30 float64 terms of order 1, over 40 contracting steps.
TOLERANCE = 40 * 30 * float(np.finfo(np.float64).eps)
STEPS, K, L = 40, 2, 3
RNG = np.random.default_rng(0)
U, TEACHER = RNG.uniform(-1, 1, (STEPS, K)), RNG.uniform(-0.9, 0.9, (STEPS, L))


def small(**settings):
    options = {"inputs": K, "outputs": L, "leak": 0.6, "decay": 0.8, "feedback_scale": 0.5, "output": "tanh"}
    return draw(25, **options | settings)


def oracle(network, u, teacher, start=None, own=False):
    """Eq. 1 and 2 with dense matrices, one step at a time: x (T, N), y (T, L)."""
    f = {"tanh": np.tanh, "relu": lambda x: np.maximum(x, 0)}[network.activation]
    f_out = {"tanh": np.tanh, "identity": lambda x: x}[network.output]
    x, y = start or (np.zeros(25), np.zeros(L))
    xs, ys = [], []
    for n in range(len(u)):
        drive = network.w_in @ u[n] + network.w.toarray() @ x
        if network.w_back is not None:
            drive = drive + network.w_back @ y
        x = (1 - network.decay * network.leak) * x + network.leak * f(drive)
        xs.append(x)
        if network.w_out is not None:
            seen = {"u": u[n], "x": x, "y": y}
            ys.append(f_out(network.w_out @ np.concatenate([seen[name] for name in network.reads])))
        y = ys[-1] if own else teacher[n]
    return np.array(xs), np.array(ys)


VARIANTS = {
    "as in the paper": {"leak": 1.0, "decay": 1.0},
    "leaky, readout on x": {"reads": "x"},
    "dense, relu, linear output": {
        "mean_degree": 20.0,
        "activation": "relu",
        "output": "identity",
        "spectral_radius": 0.5,
    },
    "ring, y read but not fed to the units": {"topology": Ring(), "feedback_scale": None, "reads": "uxy"},
}


@pytest.mark.parametrize("settings", VARIANTS.values(), ids=VARIANTS)
def test_a_network_is_its_equations(settings):
    """States and outputs with the teacher fed back, then outputs with the network's own fed back."""
    network = train(small(**settings), U, TEACHER, washout=5, ridge=0.1)
    x, y = oracle(network, U, TEACHER)
    np.testing.assert_allclose(states(network, U, TEACHER), x, atol=TOLERANCE, rtol=0)
    found, end = run(network, U, TEACHER)
    np.testing.assert_allclose(found, y, atol=TOLERANCE, rtol=0)
    np.testing.assert_allclose(end.x[:, 0], x[-1], atol=TOLERANCE, rtol=0)
    assert np.array_equal(end.y[:, 0], TEACHER[-1])
    found, _ = generate(network, end, 10, U[:10])
    _, y = oracle(network, U[:10], None, (x[-1], TEACHER[-1]), own=True)
    np.testing.assert_allclose(found, y, atol=10 * TOLERANCE, rtol=1e-12)  # feedback may double an error, not more


@pytest.mark.parametrize("ridge", [0.0, 0.3])
@pytest.mark.parametrize("output", ["identity", "tanh"])
def test_the_readout_solves_the_regression(ridge, output):
    """The normal equations hold: Z^T (Z W^T - D) + ridge W^T = 0 with Z = (u, x, y) after the washout."""
    u, teacher = RNG.uniform(-1, 1, (80, K)), RNG.uniform(-0.9, 0.9, (80, L))
    network = train(small(output=output), u, teacher, washout=7, ridge=ridge)
    before = np.vstack([np.zeros(L), teacher[:-1]])
    z = np.hstack([u, oracle(network, u, teacher)[0], before])[7:]
    target = np.arctanh(teacher[7:]) if output == "tanh" else teacher[7:]
    assert network.w_out.shape == (L, K + 25 + L)
    np.testing.assert_allclose(z.T @ (z @ network.w_out.T - target) + ridge * network.w_out.T, 0, atol=1e-11)


def test_sequences_side_by_side_are_those_one_by_one():
    network = train(small(), U, TEACHER, washout=5, ridge=0.1)
    u, teacher = RNG.uniform(-1, 1, (STEPS, K, 4)), RNG.uniform(-0.9, 0.9, (STEPS, L, 4))
    together, end = run(network, u, teacher)
    onward, _ = generate(network, end, 5, U[:5])  # u is the same for all
    assert together.shape == (STEPS, L, 4) and onward.shape == (5, L, 4)
    for b in range(4):
        alone, state = run(network, u[..., b], teacher[..., b])
        np.testing.assert_allclose(together[..., b], alone, atol=TOLERANCE, rtol=0)
        np.testing.assert_allclose(onward[..., b], generate(network, state, 5, U[:5])[0], atol=10 * TOLERANCE, rtol=0)


def test_a_run_can_be_cut_in_two():
    network = train(small(), U, TEACHER, washout=5, ridge=0.1)
    first, state = run(network, U[:15], TEACHER[:15])
    second, _ = run(network, U[15:], TEACHER[15:], state)
    np.testing.assert_allclose(np.concatenate([first, second]), run(network, U, TEACHER)[0], atol=TOLERANCE, rtol=0)


def test_a_start_of_another_type_is_taken_as_it_is():
    network = train(small(), U, TEACHER, washout=5, ridge=0.1)
    ones = State(np.ones((25, 1)), np.ones((L, 1)))
    whole = State(*(part.astype(int) for part in ones))
    lists = State(*(part.tolist() for part in ones))
    for start in (whole, lists):
        np.testing.assert_array_equal(generate(network, start, 5, U[:5])[0], generate(network, ones, 5, U[:5])[0])


def test_what_is_returned_can_be_written_to():
    network = train(small(), U, TEACHER, washout=5, ridge=0.1)
    found, end = run(network, U, TEACHER)
    for array in (states(network, U, TEACHER), found, *end, generate(network, end, 5, U[:5])[0]):
        array -= array.mean(axis=0)


def test_noise_is_inside_f_and_bounded():
    """From the state 0 without a leak, arctanh of the first state is the drive with its noise."""
    network = small(leak=1.0, decay=1.0)
    noisy, silent = (np.arctanh(states(network, U, TEACHER, noise=noise)[0]) for noise in (0.01, 0.0))
    assert 0.005 < np.abs(noisy - silent).max() < 0.01
    same, other = (states(network, U, TEACHER, noise=0.01, seed=seed) for seed in (0, 1))
    assert np.array_equal(np.arctanh(same[0]), noisy) and not np.array_equal(same, other)


def test_each_part_has_a_stream_of_its_own():
    one, again, other = (
        draw(30, inputs=2, feedback_scale=1.0),
        draw(30, inputs=3, feedback_scale=2.0),
        draw(30, inputs=2, seed=1),
    )
    assert (one.w != again.w).nnz == 0 and (one.w != other.w).nnz > 0
    np.testing.assert_array_equal(2 * one.w_back, again.w_back)
    assert not np.any(one.w_in == other.w_in) and not np.any(one.w_in[:, :1] == one.w_back)
    assert np.abs(one.w_in).max() < 1 and np.abs(again.w_back).max() > 1
    assert np.abs(np.linalg.eigvals(one.w.toarray())).max() == pytest.approx(0.9, rel=1e-5)


def test_it_learns_to_generate_a_sine():
    teacher = sine(500)
    network = train(draw(50, feedback_scale=1.0, output="tanh"), None, teacher[:300], washout=100, ridge=1e-12)
    _, state = run(network, None, teacher[:300])
    found, _ = generate(network, state, 200)
    assert np.abs(found - teacher[300:]).max() < 1e-3


def test_noise_on_the_feedback_is_in_what_is_read_and_not_in_the_target():
    """The same noise again gives the states that the regression saw; its normal equations hold for the clean teacher."""
    u, teacher = RNG.uniform(-1, 1, (80, K)), RNG.uniform(-0.9, 0.9, (80, L))
    network = train(small(output="identity"), u, teacher, washout=7, ridge=0.1, feedback_noise=0.05, seed=3)
    fed = teacher + generator(3, Stream.SIGNAL_FEEDBACK_NOISE).uniform(-0.05, 0.05, (80, L, 1))[..., 0]
    z = np.hstack([u, oracle(network, u, fed)[0], np.vstack([np.zeros(L), fed[:-1]])])[7:]
    np.testing.assert_allclose(z.T @ (z @ network.w_out.T - teacher[7:]) + 0.1 * network.w_out.T, 0, atol=1e-11)


def test_noise_on_the_feedback_makes_jaegers_generator_stable():
    """Median squared error of steps 901 to 1000 alone over five seeds, with Jaeger's settings and without noise."""
    teacher, late = sine(1400, power=7), {}
    for noise in (0.0, 1e-4):
        errors = []
        for seed in range(5):
            drawn = draw(
                100, mean_degree=5, spectral_radius=0.88, feedback_scale=1.0, output="tanh", reads="x", seed=seed
            )
            network = train(drawn, None, teacher[:300], washout=100, feedback_noise=noise, seed=seed)
            found, _ = generate(network, run(network, None, teacher[:400])[1], 1000)
            errors.append(float(np.mean((found - teacher[400:])[900:] ** 2)))
        late[noise] = np.median(errors)
    assert late[1e-4] < 1e-5 < 1e-2 < late[0.0]


def test_what_cannot_be_is_refused(monkeypatch):
    monkeypatch.setitem(functions.ACTIVATIONS, "sin", np.sin)
    network, trained = small(), train(small(), U, TEACHER, washout=5)
    without = train(small(feedback_scale=None), U, TEACHER, washout=5)
    for message, call in {
        "feeds its output back: give the teacher": lambda: run(trained, U),
        "or call generate": lambda: states(trained, U),
        "no teacher": lambda: train(network, U, None, washout=5),
        "teacher reaches 1.8: f_out = tanh": lambda: train(network, U, TEACHER * 0 + 1.8, washout=5),
        "^the states are not finite: where they grow without bound, lower the spectral radius": lambda: train(
            small(activation="relu", spectral_radius=1e9, feedback_scale=None, output="identity"),
            U + 9,
            TEACHER,
            washout=5,
        ),
        "no W_out yet": lambda: run(network, U, TEACHER),
        "feeds nothing back": lambda: generate(without, State(None, None), 5, U[:5]),
        r"washout is 40: .* 40 steps": lambda: train(network, U, TEACHER, washout=STEPS),
        r"u has the shape \(40, 3\)": lambda: run(trained, TEACHER, TEACHER),
        "teacher has 39 steps, u has 40": lambda: run(trained, U, TEACHER[1:]),
        "u is missing": lambda: run(trained, None, TEACHER),
        "u holds a number that is not finite": lambda: run(trained, U * np.nan, TEACHER),
        "mean_degree is 50: this topology has a density of its own": lambda: small(topology=Ring(), mean_degree=50),
        "reads is 'yx'": lambda: small(reads="yx"),
        "output is 'relu'": lambda: small(output="relu"),
        "activation sin cannot be traced": lambda: small(activation="sin"),
        "spectral_radius is -1": lambda: small(spectral_radius=-1),
        "spectral_radius is inf: it must be finite": lambda: small(spectral_radius=np.inf),
        "input_scale is -1.0: it must be finite and not negative": lambda: small(input_scale=-1.0),
        "feedback_scale is nan": lambda: small(feedback_scale=float("nan")),
        "seed is 4294967296: it must be from 0 to 4294967295": lambda: small(seed=1 << 32),
        "seed is None: give a whole number from 0 to": lambda: small(seed=None),
        r"^leak is \(0.0, 1.0\): give one number$": lambda: small(leak=(0.0, 1.0)),
        "^leak is 1.5: it must lie within 0 .. 1$": lambda: small(leak=1.5),
        "^network.topology.degree is 4.0: it must be a whole number$": lambda: small(
            topology=FixedInDegree(degree=4.0)
        ),
        "^decay is None: give one number$": lambda: small(decay=None),
        "^decay is inf: it must be above 0 and finite$": lambda: small(decay=np.inf),
        "^u is no array of numbers": lambda: run(trained, [[1.0], [2.0, 3.0]], TEACHER),
        "^u is 1.0: give an array with the steps first$": lambda: generate(
            trained, run(trained, U, TEACHER)[1], 5, 1.0
        ),
        "^teacher is no array of numbers": lambda: run(trained, U, [["a"]]),
        "^inputs is 2.0: give a whole number$": lambda: small(inputs=2.0),
        "^washout is 5.0: give a whole number$": lambda: train(network, U, TEACHER, washout=5.0),
        "^steps is 5.0: give a whole number$": lambda: generate(trained, run(trained, U, TEACHER)[1], 5.0, U[:5]),
        "topology is 'ring': give an object of": lambda: small(topology="ring"),
        "activation softsign is not registered here: write @esnlm.activation above its def first": lambda: states(
            dataclasses.replace(network, activation="softsign"), U, TEACHER
        ),
        "start has 24 units and 2 outputs, and the network 25 and": lambda: run(
            trained, U, TEACHER, State(np.zeros((24, 1)), np.zeros((2, 1)))
        ),
        r"start is a NoneType: it must be a State with x \(25, B\) and y \(3, B\)": lambda: generate(
            trained, None, 5, U[:5]
        ),
        "start is a tuple: it must be a State": lambda: generate(
            trained, (np.zeros((25, 1)), np.zeros((3, 1))), 5, U[:5]
        ),
        "start is a ndarray: it must be a State": lambda: run(trained, U, TEACHER, np.zeros((25, 1))),
        r"start is a State of the shapes \(25,\) and \(3,\)": lambda: generate(
            trained, State(np.zeros(25), np.zeros(3)), 5, U[:5]
        ),
        r"start is a State of the shapes \(25, 2\) and \(3, 1\)": lambda: generate(
            trained, State(np.zeros((25, 2)), np.zeros((3, 1))), 5, U[:5]
        ),
        "noise is -0.1: it must not be negative": lambda: states(network, U, TEACHER, noise=-0.1),
        "feedback_noise is 0.1: the network feeds nothing back": lambda: train(
            small(feedback_scale=None), U, TEACHER, washout=5, feedback_noise=0.1
        ),
    }.items():
        with pytest.raises(InputError, match=message):
            call()


def test_other_weights_can_be_put_in_place():
    network = dataclasses.replace(small(), w_back=np.ones((25, L)))
    np.testing.assert_allclose(states(network, U, TEACHER), oracle(network, U, TEACHER)[0], atol=TOLERANCE, rtol=0)


def test_a_function_that_is_written_again_is_not_taken_for_the_old_one(monkeypatch):
    """As where a notebook's cell runs twice: no program that was compiled for the first one serves the second."""
    monkeypatch.setitem(functions.ACTIVATIONS, "scaled", None)  # so that it is forgotten afterwards
    found = []
    for factor in (1.0, 0.5):

        def scaled(x, factor=factor):
            return factor * jnp.tanh(x)

        esnlm.activation(scaled)
        network = small(activation="scaled", leak=1.0, decay=1.0)
        found.append(states(network, U[:1], TEACHER[:1]))
    np.testing.assert_allclose(found[1], found[0] / 2, rtol=1e-12)


def test_no_trace_of_float64_is_left():
    states(small(), U, TEACHER)
    assert jnp.ones(1).dtype == np.float32
