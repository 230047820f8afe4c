"""The frozen arrays are the papers': connectivity, distributions, radius, leak."""

import jax
import numpy as np
import pytest

from esnlm.models.echo_state import EchoStateConfig
from esnlm.reservoir.cell import from_arrays
from esnlm.reservoir.topology import FixedInDegree, bernoulli_positions
from esnlm.reservoir.weights import ReservoirConfig, initialize_reservoir
from tests import oracle
from tests.reservoir.test_topology import KINDS


def test_a_reservoir_is_as_the_paper_draws_it():
    initialized = initialize_reservoir(
        ReservoirConfig(
            state_size=300, mean_degree=20, spectral_radius=0.9, leak_min=0.2, leak_max=0.7
        ),
        1000,
        seed=0,
    )
    reservoir = initialized.reservoir
    w_rec, w_in = oracle.dense(reservoir.w_rec), oracle.dense(reservoir.w_in)
    assert w_rec.shape == (300, 300) and w_in.shape == (300, 1000)
    assert abs(np.linalg.eigvals(w_rec)).max() == pytest.approx(0.9, rel=2e-3)
    for w, nonzeros in ((w_rec, 300 * 20), (w_in, 1000 * 20)):
        assert abs(np.count_nonzero(w) - nonzeros) < 5 * np.sqrt(nonzeros)
    values = w_in[w_in != 0]  # N(0, 1)
    assert abs(values.mean()) < 5 / np.sqrt(len(values)) and abs(values.std() - 1) < 5 / np.sqrt(
        2 * len(values)
    )
    leak = np.asarray(reservoir.leak)
    assert (
        leak.min() >= 0.2
        and leak.max() <= 0.7
        and abs(leak.mean() - 0.45) < 5 * 0.5 / np.sqrt(12 * 300)
    )


def test_leaks_that_are_spaced_by_logarithm():
    """The stream is that of uniform leaks: u becomes low^(1 - u) high^u. A third of them lies in
    each third of the scales."""
    config = ReservoirConfig(state_size=3000, mean_degree=2, leak_min=0.001, leak_spacing="log")
    leak = np.asarray(initialize_reservoir(config, 10, seed=3).reservoir.leak)
    u = np.random.default_rng([3, 2]).uniform(size=3000)
    # float32 rounds once
    np.testing.assert_allclose(leak, np.exp(np.log(0.001) * (1 - u)), rtol=1e-7)
    shares = np.histogram(leak, [0.001, 0.01, 0.1, 1])[0] / 3000
    assert np.abs(shares - 1 / 3).max() < 4 * np.sqrt(2 / 9 / 3000)
    one = ReservoirConfig(
        state_size=30, mean_degree=2, leak_min=0.3, leak_max=0.3, leak_spacing="log"
    )
    assert set(np.asarray(initialize_reservoir(one, 10, seed=3).reservoir.leak)) == {
        np.float32(0.3)
    }


@pytest.mark.parametrize("connectivity", [0.1, 0.5])
def test_erdos_renyi_is_initialized_from_its_streams_and_nothing_else(connectivity):
    """Positions, values and leaks are NumPy's own from [seed, part]: what an earlier version drew,
    this one draws."""
    frozen = initialize_reservoir(
        ReservoirConfig(state_size=40, connectivity=connectivity), 30, seed=5
    ).reservoir
    parts = []
    for key, columns in (([5, 0, 0], 40), ([5, 1], 30)):
        rng, w = np.random.default_rng(key), np.zeros((40, columns), np.float32)
        if connectivity < 0.25:
            row, column = bernoulli_positions(40, columns, connectivity, rng)
            w[row, column] = rng.standard_normal(len(row), dtype=np.float32)
        else:
            w = rng.standard_normal((40, columns), dtype=np.float32)
            w[rng.random((40, columns), dtype=np.float32) >= connectivity] = 0
        parts.append(w)
    w_rec = oracle.dense(frozen.w_rec)
    scale = np.float32(0.99 / np.abs(np.linalg.eigvals(parts[0].astype(np.float64))).max())
    np.testing.assert_allclose(w_rec, parts[0] * scale, rtol=1e-6, atol=0)
    assert np.array_equal(oracle.dense(frozen.w_in), parts[1])
    assert np.array_equal(
        frozen.leak, np.random.default_rng([5, 2]).uniform(0, 1, 40).astype(np.float32)
    )


@pytest.mark.parametrize("topology", KINDS, ids=lambda topology: topology.kind)
def test_every_topology_is_scaled_to_the_radius_and_leaves_the_rest_alone(topology):
    config = ReservoirConfig(state_size=60, mean_degree=6, topology=topology, spectral_radius=0.8)
    initialized, again = (initialize_reservoir(config, 50, seed=1) for _ in range(2))
    w_rec = oracle.dense(initialized.reservoir.w_rec)
    assert np.abs(np.linalg.eigvals(w_rec)).max() == pytest.approx(0.8, rel=1e-5)
    plain = initialize_reservoir(
        ReservoirConfig(state_size=60, mean_degree=6), 50, seed=1
    ).reservoir
    assert np.array_equal(oracle.dense(initialized.reservoir.w_in), oracle.dense(plain.w_in))
    assert np.array_equal(initialized.reservoir.leak, plain.leak)
    assert np.array_equal(w_rec, oracle.dense(again.reservoir.w_rec))


@pytest.mark.parametrize("topology", KINDS, ids=lambda topology: topology.kind)
def test_every_topology_has_the_parameters_that_are_expected(topology):
    config = EchoStateConfig(
        reservoir=ReservoirConfig(state_size=60, mean_degree=6, topology=topology)
    )
    expected = config.expected_counts(50)
    actual = config.initialize(50, 0, config.initialize_frozen(50, 0)[0]).counts()
    assert (actual.trainable, actual.entries) == (expected.trainable, expected.entries)
    # W_in is Binomial, and so are blocks
    assert abs(actual.total - expected.total) < 5 * np.sqrt((60 + 50) * 6)


def test_a_topology_that_is_dense_is_stored_dense():
    arrays = [
        initialize_reservoir(
            ReservoirConfig(state_size=64, topology=FixedInDegree(degree=d)), 50, 0
        ).reservoir.arrays()
        for d in (15, 16)
    ]
    assert ["indices" in array["recurrent"] for array in arrays] == [True, False]
    assert np.count_nonzero(arrays[1]["recurrent"]["values"]) == 64 * 16


def test_an_embedding_is_normal_and_leaves_w_rec_and_the_leaks_alone():
    embedded, plain = (
        initialize_reservoir(
            ReservoirConfig(state_size=60, mean_degree=20, embedding=width), 2000, seed=3
        ).reservoir
        for width in (40, None)
    )
    embedding = np.asarray(embedded.embedding[...], np.float64)
    assert embedding.shape == (40, 2000) and embedded.w_in.shape == (60, 40)
    assert abs(embedding.mean()) < 5 / np.sqrt(80_000) and abs(embedding.std() - 1) < 5 / np.sqrt(
        160_000
    )
    assert abs(embedded.w_in.nse - 40 * 20) < 5 * np.sqrt(40 * 20)
    assert np.array_equal(embedded.w_rec.data, plain.w_rec.data) and np.array_equal(
        embedded.leak, plain.leak
    )
    assert plain.embedding is None


@pytest.mark.parametrize("settings", [{"mean_degree": 10.0}, {"connectivity": 0.5}])
def test_layers_are_initialized_apart_and_the_first_is_that_of_one_layer(settings):
    config = {"state_size": 100, "spectral_radius": 0.8, "input_scale": 3.0} | settings
    initialized, one = (
        initialize_reservoir(ReservoirConfig(layers=3, **config), 50, seed=2),
        initialize_reservoir(ReservoirConfig(**config), 50, seed=2).reservoir,
    )
    layers = initialized.reservoir.layers
    assert len(layers) == len(initialized.radii) == 3
    for part in ("stored_w_rec", "stored_w_in"):
        assert np.array_equal(
            oracle.dense(getattr(layers[0], part)), oracle.dense(getattr(one, part))
        )
    assert np.array_equal(layers[0].leak, one.leak)
    for number, layer in enumerate(layers):
        w_rec = oracle.dense(layer.stored_w_rec)
        assert np.abs(np.linalg.eigvals(w_rec)).max() == pytest.approx(0.8, rel=2e-3)
        for other in layers[:number]:
            assert not np.array_equal(
                oracle.dense(other.stored_w_rec), w_rec
            ) and not np.array_equal(other.leak, layer.leak)
        if number:
            gamma = ReservoirConfig(**config).recurrent_gamma
            w_in = oracle.dense(layer.stored_w_in)
            values = w_in[w_in != 0]
            assert w_in.shape == (100, 100) and ("indices" in layer.arrays()["input"]) == (
                gamma < 0.25
            )
            assert abs(len(values) - gamma * 100**2) < 5 * np.sqrt(gamma * 100**2)
            # A unit that is fed by outputs of size 1 is driven by N(0, input_scale^2), as by a
            # token that reaches it.
            assert (w_in**2).sum(axis=1).mean() == pytest.approx(
                9, abs=5 * 9 * np.sqrt((2 + 1) / len(values))
            )
    assert not np.array_equal(
        oracle.dense(layers[1].stored_w_in), oracle.dense(layers[2].stored_w_in)
    )


@pytest.mark.parametrize("connectivity", [2**-3, 2**-2])
def test_a_dense_reservoir_is_stored_dense_and_still_shown_as_bcoo(connectivity):
    reservoir = initialize_reservoir(
        ReservoirConfig(state_size=64, connectivity=connectivity), 50, 0
    ).reservoir
    assert ("indices" in reservoir.arrays()["recurrent"]) == (connectivity < 2**-2)
    nonzeros = np.count_nonzero(oracle.dense(reservoir.w_rec))
    assert abs(nonzeros - 4096 * connectivity) <= 5 * np.sqrt(
        4096 * connectivity * (1 - connectivity)
    )
    assert reservoir.w_rec.nse == nonzeros
    assert reservoir.nonzeros == (nonzeros, np.count_nonzero(oracle.dense(reservoir.w_in)))


@pytest.mark.parametrize(
    "settings", [{}, {"connectivity": 0.5}, {"layers": 2, "embedding": 7, "connectivity": 0.5}]
)
def test_arrays_bring_embeddings_and_stacks_back(settings):
    arrays = initialize_reservoir(
        ReservoirConfig(**{"state_size": 64, "mean_degree": 8.0} | settings), 50, 0
    ).reservoir.arrays()
    back = from_arrays(arrays, 50)
    assert len(back.layers) == settings.get("layers", 1) and back.vocab_size == 50
    again = jax.tree.map(np.array_equal, arrays, back.arrays())
    assert jax.tree.all(again) and len(jax.tree.leaves(again)) >= 3


def test_a_nilpotent_matrix_is_initialized_again_and_said_so():
    """At a mean degree of 1 about one W_rec in 20 has radius 0; the first such seed is found and
    followed."""
    config = ReservoirConfig(state_size=12, mean_degree=1.0)
    with pytest.warns(
        UserWarning, match=r"radius 0 \(nilpotent\); initializing it again \(attempt 2\)"
    ):
        initialized = next(
            found
            for seed in range(200)
            if (found := initialize_reservoir(config, 10, seed)).redraws
        )
    radius = abs(np.linalg.eigvals(oracle.dense(initialized.reservoir.w_rec))).max()
    assert radius == pytest.approx(0.99, rel=1e-4)
