"""Parameter counts of the paper's tables, and of models that are really initialized."""

import jax
import numpy as np
import pytest

from esnlm.models.echo_state import EchoStateConfig
from esnlm.readout.linear import ReadoutConfig
from esnlm.reservoir.topology import Ring
from esnlm.reservoir.weights import ReservoirConfig
from tests import oracle
from tests.models.running import layers_of

TABLE_4 = {
    -12: 28,
    -11: 28,
    -10: 28,
    -9: 28,
    -8: 29,
    -7: 30,
    -6: 31,
    -5: 35,
    -4: 42,
    -3: 56,
    -2: 84,
    -1: 139,
    0: 251,
}
GPT2_VOCABULARY = 50_257


def millions(count):
    return round(count / 1e6)


@pytest.mark.parametrize("exponent", TABLE_4)
def test_table_4(exponent):
    config = EchoStateConfig(reservoir=ReservoirConfig(state_size=4096, connectivity=2.0**exponent))
    counts = config.expected_counts(GPT2_VOCABULARY)
    assert (millions(counts.trainable), millions(counts.total)) == (28, TABLE_4[exponent])


DEEP = [
    {"embedding": 40},
    {"layers": 3},
    {"layers": 2, "connectivity": 0.5},
    {
        "layers": 2,
        "topology": Ring(),
        "embedding": 20,
        "input_connectivity": 1.0,
        "update_rule": "leaky_membrane",
    },
]


@pytest.mark.parametrize("settings", DEEP, ids=str)
def test_embeddings_and_layers_are_counted(settings):
    config = EchoStateConfig(
        reservoir=ReservoirConfig(**{"state_size": 100, "mean_degree": 12} | settings),
        readout=ReadoutConfig(8),
    )
    layers, width = settings.get("layers", 1), settings.get("embedding")
    arrays, record = config.initialize_frozen(500, seed=0)
    actual, expected = (
        config.initialize(500, 0, arrays).counts(),
        config.expected_counts(500),
    )
    frozen = (
        layers * (100 * 100 + 100)
        + (layers - 1) * 100 * 100
        + (100 * width + width * 500 if width else 100 * 500)
    )
    readout = 8 * (layers * 100 + 500) + 500
    assert (
        (actual.trainable, actual.entries)
        == (readout, readout + frozen)
        == (expected.trainable, expected.entries)
    )
    values = sum(
        np.count_nonzero(array)
        for path, array in jax.tree.leaves_with_path(arrays)
        if "indices" not in str(path)
    )
    assert actual.total == readout + values and record["nonzeros"] == values
    # nonzeros are Binomial
    assert abs(actual.total - expected.total) < 5 * np.sqrt(expected.total - expected.trainable)
    stored = sum(array.nbytes for array in jax.tree.leaves(arrays))
    assert abs(config.frozen_bytes(500) - stored) < 5 * 12 * np.sqrt(stored / 12)
    assert len(record["radius_before_scaling"]) == layers


@pytest.mark.parametrize(
    "settings, rank",
    [({}, 8), ({"layers": 3}, 8), ({"layers": 2, "update_rule": "leaky_membrane"}, None)],
    ids=str,
)
def test_the_layers_are_those_of_the_reservoir_and_z(settings, rank):
    size, vocab_size, length = 40, 20, 12
    reservoir = ReservoirConfig(**{"state_size": size, "mean_degree": 6} | settings)
    config = EchoStateConfig(reservoir=reservoir, readout=ReadoutConfig(rank))
    model = config.initialize(vocab_size, 0, config.initialize_frozen(vocab_size, seed=0)[0])
    count = settings.get("layers", 1)
    names = ["features", "reservoir", *(f"layer{i}" for i in range(count))]
    assert list(model.layer_sizes) == names + ["z"] * (rank is not None)

    rng = np.random.default_rng(0)
    sentences = [rng.integers(0, vocab_size, n).astype(np.int32) for n in (length, 1, 7)]
    matrices = [oracle.matrices(layer) for layer in model.reservoir.layers]
    # A step sums some tens of terms of order 1 or less, twice in a layer, and leaks forget errors.
    tolerance = length * count * 2 * np.sqrt(size) * float(np.finfo(np.float32).eps)
    for sentence, found in zip(sentences, layers_of(model, sentences), strict=True):
        h = oracle.stacked_states(
            matrices, np.eye(vocab_size)[sentence], reservoir.update_rule, np.tanh
        )
        expected = {"features": h, "reservoir": h}
        expected |= {f"layer{i}": part for i, part in enumerate(np.split(h, count, axis=1))}
        if rank is not None:
            expected["z"] = h @ np.asarray(model.readout.b[...], np.float64).T
        assert {name: states.shape[1] for name, states in expected.items()} == model.layer_sizes
        for name, states in expected.items():
            np.testing.assert_allclose(found[name], states, atol=tolerance, err_msg=name)
