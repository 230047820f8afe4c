"""A reservoir in the hand runs as the equations say, and refuses what it cannot be, in one line."""

import pickle
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import esnlm
from esnlm.api.reservoir import Reservoir
from esnlm.base.errors import InputError
from esnlm.loaded_run import Run
from esnlm.models.echo_state import EchoStateConfig
from esnlm.readout.linear import ReadoutConfig
from esnlm.reservoir import functions
from esnlm.reservoir.arrays import as_scipy
from esnlm.reservoir.topology import TOPOLOGIES
from esnlm.reservoir.weights import ContinuousTime, ReservoirConfig, initialize_reservoir
from esnlm.training.config import ComputeConfig, Experiment
from tests import oracle
from tests.evaluation.small_run import TOKENIZER

U = np.random.default_rng(5).normal(size=(40, 3))
TOKENS = [np.array([4, 0, 11, 4, 7]), np.array([2]), np.array([11, 11, 3])]


def dense(matrix):
    return matrix.toarray() if scipy.sparse.issparse(matrix) else matrix


@pytest.fixture(scope="module")
def series():
    return esnlm.Reservoir.draw(
        60, inputs=3, spectral_radius=0.9, leak=(0.2, 1), mean_degree=6, seed=2
    )


@pytest.fixture
def registered():
    """Forgets what a test registers."""
    before = {
        id(known): dict(known)
        for known in (functions.ACTIVATIONS, functions.UPDATE_RULES, TOPOLOGIES)
    }
    yield
    for known in (functions.ACTIVATIONS, functions.UPDATE_RULES, TOPOLOGIES):
        for name in set(known) - set(before[id(known)]):
            del known[name]


def test_it_is_the_reservoir_that_a_training_of_these_settings_draws():
    drawn = esnlm.Reservoir.draw(
        64, vocabulary=12, mean_degree=4, spectral_radius=0.8, leak=(0.1, 0.9), seed=7
    )
    settings = ReservoirConfig(64, mean_degree=4, spectral_radius=0.8, leak_min=0.1, leak_max=0.9)
    trained = initialize_reservoir(settings, 12, 7).reservoir
    np.testing.assert_array_equal(dense(drawn.w_rec), as_scipy(trained.stored_w_rec).toarray())
    np.testing.assert_array_equal(dense(drawn.w_in), as_scipy(trained.stored_w_in).toarray())
    np.testing.assert_array_equal(drawn.leak, trained.leak[...])
    assert drawn.settings == settings


def test_states_of_tokens_are_those_of_the_equations():
    drawn = esnlm.Reservoir.draw(64, vocabulary=12, mean_degree=4, seed=7)
    for ids, states in zip(TOKENS, drawn.states(TOKENS), strict=True):
        expected = oracle.states(dense(drawn.w_rec), dense(drawn.w_in), drawn.leak, ids)
        np.testing.assert_allclose(states, expected, atol=2e-6)
        assert states.dtype == np.float32
    np.testing.assert_allclose(
        drawn.states(TOKENS[0], washout=2), drawn.states(TOKENS)[0][2:], atol=1e-6
    )


@pytest.mark.parametrize("rule", ["leaky_output", "leaky_membrane"])
def test_states_of_numbers_are_those_of_the_equations(rule):
    """In float64: 40 time steps add up at most some hundred roundings of 1e-16."""
    drawn = esnlm.Reservoir.draw(
        60, inputs=3, leak=(0.2, 1), mean_degree=6, update_rule=rule, seed=2
    )
    expected = oracle.driven_states(
        dense(drawn.w_rec), drawn.leak, U @ dense(drawn.w_in).T.astype(float), rule
    )
    np.testing.assert_allclose(drawn.states(U), expected, atol=1e-13)


def test_states_of_two_layers_stand_side_by_side():
    drawn = esnlm.Reservoir.draw(12, inputs=3, layers=2, mean_degree=3, seed=1)
    layers = [(c.stored_w_rec, c.stored_w_in, c.leak[...]) for c in drawn.cell.layers]
    np.testing.assert_allclose(drawn.states(U), oracle.stacked_states(layers, U), atol=1e-13)
    with pytest.raises(InputError, match="^this reservoir has 2 layers: see .cell.layers"):
        _ = drawn.w_rec


def test_sequences_of_several_lengths_are_read_as_each_alone(series):
    several = [U[:7], U, U[3:20], U[:1]]
    for u, states in zip(several, series.states(several), strict=True):
        np.testing.assert_allclose(states, series.states(u), atol=1e-14)
    np.testing.assert_allclose(
        series.states(np.stack([U, U[::-1]]))[1], series.states(U[::-1]), atol=1e-14
    )


def test_a_series_cut_in_two_goes_on_where_it_was_cut(series):
    first, end = series.run(U[:13])
    second, _ = series.run(U[13:], start=end)
    np.testing.assert_allclose(np.concatenate([first, second]), series.states(U), atol=1e-14)
    # rows of numbers are an array, too
    np.testing.assert_array_equal(series.run(U[:13].tolist())[0], first)
    np.testing.assert_array_equal(
        series.states(U[:13], washout=np.array(3)), series.states(U[:13])[3:]
    )


def test_parts_are_replaced_and_the_settings_say_so(series):
    w = scipy.sparse.random_array((60, 60), density=0.1, rng=np.random.default_rng(0))
    other = series.replace(
        w_rec=w, spectral_radius=0.5, leak=np.linspace(0, 1, 60), w_in=np.eye(60, 3)
    )
    assert max(abs(np.linalg.eigvals(dense(other.w_rec)))) == pytest.approx(0.5, rel=1e-5)
    assert other.measured_radius() == pytest.approx(0.5, rel=1e-5)
    expected = oracle.driven_states(dense(other.w_rec), np.linspace(0, 1, 60), U @ np.eye(60, 3).T)
    np.testing.assert_allclose(other.states(U), expected, atol=1e-7)  # leaks are float32
    settings = other.settings
    assert (settings.topology.kind, settings.topology.nonzeros) == ("from_matrix", 360)
    assert (settings.leak_min, settings.leak_max, settings.input_scale) == (0, 1, 1)
    assert settings.input_connectivity == pytest.approx(3 / 180)
    # the first one is as it was
    assert dense(series.w_rec).any() and series.settings.topology.kind == "erdos_renyi"


@pytest.mark.parametrize("connectivity", [1.0, 0.1])  # W_in is dense, and sparse
def test_each_input_may_have_its_own_scale(connectivity):
    """W_in with columns times s reads u as W_in reads s times u."""
    settings = {"inputs": 3, "input_connectivity": connectivity, "mean_degree": 6, "seed": 2}
    scales = np.array([2.0, 0.5, 0.0])
    expected = esnlm.Reservoir.draw(60, **settings).states(U * scales)
    scaled = esnlm.Reservoir.draw(60, **settings, input_scale=scales)
    np.testing.assert_allclose(scaled.states(U), expected, rtol=1e-12)
    weights = dense(scaled.w_in)
    weights = weights[weights != 0]
    assert scaled.settings.input_scale == pytest.approx(np.sqrt(np.mean(weights**2)))
    for wrong in ([1.0, 2.0], [1.0, 2.0, -1.0]):
        with pytest.raises(InputError, match="one number, or one for each of the 3 inputs"):
            esnlm.Reservoir.draw(60, **settings, input_scale=wrong)


@pytest.mark.parametrize("layers, input_connectivity", [(1, 0.3), (2, 0.3), (1, 1.0)])
def test_the_reservoir_of_an_esn_plus_i_is_frozen_as_it_was_trained(layers, input_connectivity):
    settings = ReservoirConfig(
        state_size=12, mean_degree=4, layers=layers, input_connectivity=input_connectivity
    )
    config = EchoStateConfig(reservoir=settings, readout=ReadoutConfig(rank=None), train_input=True)
    model = config.initialize(
        TOKENIZER.vocab_size, 0, config.initialize_frozen(TOKENIZER.vocab_size, 0)[0]
    )
    trained = model.with_params(jax.tree.map(lambda array: 1.5 * array, model.params))
    compute = ComputeConfig(kernel="csr", batch_slots=8, window_tokens=64, chunk_tokens=16)
    run = Run(Path("esni"), Experiment(model=config, compute=compute), 3, trained, TOKENIZER)
    reservoir = esnlm.Reservoir.of(run)
    again = pickle.loads(pickle.dumps(reservoir))
    ids = np.array([TOKENIZER.bos, *TOKENIZER.encode("The cats sleep.")])
    np.testing.assert_allclose(again.states(ids), reservoir.states(ids), rtol=1e-6)
    expected = run.states(["The cats sleep."])[0]  # behind EOS, too
    np.testing.assert_allclose(reservoir.states(np.append(ids, TOKENIZER.eos)), expected, atol=1e-6)


def test_a_leak_of_continuous_time_is_not_replaced_alone():
    settings = {
        "state_size": 12,
        "mean_degree": 4,
        "continuous": ContinuousTime(decay=2.0, step=0.3),
    }
    drawn = initialize_reservoir(ReservoirConfig(**settings), 12, 0).reservoir
    reservoir = Reservoir(ReservoirConfig(**settings), drawn, True)
    with pytest.raises(InputError, match="^leak: in continuous time"):
        reservoir.replace(leak=0.3)
    assert reservoir.replace(spectral_radius=0.5).settings.continuous == settings["continuous"]


def test_a_reservoir_of_matrices(registered):
    """A delay line, which no topology that is scaled could be: its spectral radius is 0."""
    line = esnlm.Reservoir.from_matrices(
        np.eye(4, k=-1), np.eye(4, 1), reads_tokens=False, activation=lambda x: x
    )
    u = np.arange(1.0, 7)[:, None]
    np.testing.assert_array_equal(line.states(u)[-1], [6, 5, 4, 3])
    assert line.settings.spectral_radius == 0
    large = np.full((4, 1), 1e20, np.float32)  # its square is beyond float32
    assert line.replace(w_in=large).settings.input_scale == pytest.approx(1e20)


def test_sparse_matrices_of_ones_own_are_never_dense(registered):
    """Dense zeros of this size are 40 GB."""
    line = scipy.sparse.eye_array(100_000, k=-1, format="csr")
    first = scipy.sparse.csr_array(([1.0], ([0], [0])), shape=(100_000, 1))
    delays = esnlm.Reservoir.from_matrices(line, first, reads_tokens=False, activation=lambda x: x)
    np.testing.assert_array_equal(delays.states(np.arange(1.0, 4)[:, None])[-1, :4], [3, 2, 1, 0])


def test_functions_of_ones_own(registered):
    """An activation, an update rule and a topology, as they stand in a notebook's cell."""

    def chain(state_size, rng, weight: float = 2.0):
        return weight * np.roll(np.eye(state_size), 1, axis=0)

    def softsign(x):
        return x / (1 + abs(x))

    def euler(state, drive, leak, f):
        return state + 0.1 * leak * f(drive - 0.01 * state)

    given = {"topology": chain, "activation": softsign, "update_rule": euler}
    drawn = esnlm.Reservoir.draw(16, inputs=3, spectral_radius=0.7, leak=(0.5, 1), **given)
    np.testing.assert_allclose(dense(drawn.w_rec), 0.7 * np.roll(np.eye(16), 1, axis=0), rtol=1e-6)
    w, w_in, leak = dense(drawn.w_rec).astype(float), dense(drawn.w_in), drawn.leak.astype(float)
    h = np.zeros(16)
    for t, u in enumerate(U):
        h = h + 0.1 * leak * softsign(w @ h + w_in @ u - 0.01 * h)
        np.testing.assert_allclose(drawn.states(U)[t], h, atol=1e-13)
    line = (
        r"^activation <softsign \d+> is not registered: it cannot be pickled; write"
        r" @esnlm.activation"
    )
    with pytest.raises(InputError, match=line):
        pickle.dumps(drawn)

    esnlm.topology(chain), esnlm.activation(softsign), esnlm.update_rule(euler)
    named = esnlm.Reservoir.draw(16, inputs=3, spectral_radius=0.7, leak=(0.5, 1), **given)
    assert (named.settings.topology.kind, named.settings.activation) == ("chain", "softsign")
    np.testing.assert_array_equal(named.states(U), drawn.states(U))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(named)).states(U), named.states(U))
    other = esnlm.Reservoir.draw(
        16, inputs=3, topology={"kind": "chain", "weight": 1.0}, spectral_radius=0.7
    )
    np.testing.assert_allclose(dense(other.w_rec), dense(named.w_rec), rtol=1e-6)


def test_a_function_that_is_written_again_is_not_taken_for_the_old_one(registered):
    """As where a notebook's cell runs twice: no program that was compiled for the first one serves
    the second."""
    found = []
    for factor in (1.0, 0.5):

        def scaled(x, factor=factor):
            return factor * jnp.tanh(x)

        esnlm.activation(scaled)
        found.append(
            esnlm.Reservoir.draw(8, inputs=3, mean_degree=2, leak=1.0, activation="scaled").states(
                U[:1]
            )
        )
    np.testing.assert_allclose(found[1], found[0] / 2)
