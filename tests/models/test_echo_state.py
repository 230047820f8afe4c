"""Parameter counts of the paper's tables, and of models that are really initialized."""

import jax
import numpy as np
import pytest

from esnlm.models.echo_state import EchoStateConfig
from esnlm.readout.linear import ReadoutConfig
from esnlm.reservoir.topology import Ring
from esnlm.reservoir.weights import ReservoirConfig

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
