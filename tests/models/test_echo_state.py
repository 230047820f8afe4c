"""Parameter counts of the paper's tables, and of models that are really drawn."""

import csv
from pathlib import Path

import numpy as np
import pytest

from esnlm.models import echo_state
from esnlm.models.echo_state import EchoStateConfig
from esnlm.readout.linear import ReadoutConfig
from esnlm.reservoir.weights import ReservoirConfig

# Millions of trainable and of all parameters, as printed: esn_at_scale, tables 3 and 4.
TABLE_3 = {1024: (26, 28), 2048: (27, 29), 4096: (28, 30), 8192: (30, 32), 16_384: (34, 36), 32_768: (43, 45), 65_536: (59, 63)}
TABLE_4 = {-12: 28, -11: 28, -10: 28, -9: 28, -8: 29, -7: 30, -6: 31, -5: 35, -4: 42, -3: 56, -2: 84, -1: 139, 0: 251}
GPT2_VOCABULARY = 50_257


def millions(count):
    return round(count / 1e6)


@pytest.mark.parametrize("size", TABLE_3)
def test_table_3(size):
    counts = echo_state.expected_counts(EchoStateConfig(reservoir=ReservoirConfig(state_size=size)), GPT2_VOCABULARY)
    assert (millions(counts.trainable), millions(counts.total)) == TABLE_3[size]
    assert counts.total == (size + GPT2_VOCABULARY) * (32 + 512 + 1)  # section 2.3


@pytest.mark.parametrize("exponent", TABLE_4)
def test_table_4(exponent):
    config = EchoStateConfig(reservoir=ReservoirConfig(state_size=4096, connectivity=2.0**exponent))
    counts = echo_state.expected_counts(config, GPT2_VOCABULARY)
    assert (millions(counts.trainable), millions(counts.total)) == (28, TABLE_4[exponent])


def test_the_tables_are_the_reference_files(data):
    """What is copied above stands so in the CSV files beside the data."""
    reference = data.parent / "reference"
    if not reference.is_dir():
        pytest.skip(f"needs the papers' tables, which are not at {reference}")

    def rows(name):
        lines = [line for line in (reference / name).read_text().splitlines() if not line.startswith("#")]
        return list(csv.DictReader(lines))

    esn = {int(row["state_size"]): row for row in rows("scale_table3.csv") if row["model"] == "ESN"}
    assert {size: (int(row["trainable_params_M"]), int(row["total_params_M"])) for size, row in esn.items()} == TABLE_3
    table_4 = {int(row["log2_connectivity"]): int(row["total_params_M"]) for row in rows("scale_table4_connectivity.csv")}
    assert table_4 == TABLE_4


@pytest.mark.parametrize("rank", [8, None])
def test_a_drawn_model_has_what_is_expected(rank):
    config = EchoStateConfig(reservoir=ReservoirConfig(state_size=300, mean_degree=12), readout=ReadoutConfig(rank))
    frozen, record = echo_state.draw_frozen(config, 500, seed=0)
    actual = echo_state.actual_counts(echo_state.untrained(config, 500, 0, frozen))
    expected = echo_state.expected_counts(config, 500)
    assert actual.trainable == expected.trainable and actual.entries == expected.entries
    assert abs(actual.total - expected.total) < 5 * np.sqrt(800 * 12)  # nonzeros are Binomial
    assert record["nonzeros"] == actual.total - actual.trainable


def test_only_the_readout_is_trained():
    from flax import nnx

    config = EchoStateConfig(reservoir=ReservoirConfig(state_size=64, mean_degree=8), readout=ReadoutConfig(4))
    model = echo_state.untrained(config, 50, 0, echo_state.draw_frozen(config, 50, 0)[0])
    assert [".".join(path) for path, _ in nnx.to_flat_state(nnx.state(model, nnx.Param))] == ["readout.a", "readout.b", "readout.bias"]
