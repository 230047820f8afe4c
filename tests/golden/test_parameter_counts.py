"""Guarantee 8: every row of the papers' tables is a configuration, and has the parameters that its
paper prints."""

from pathlib import Path

import pytest

from tests.golden import inside

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
V = 50_257

# Ueda et al. 2025a, table 3: millions of trainable and of all parameters, nonzero entries only,
# rounded.
SCALE = {"gpt2": (124, 124), "lstm": (54, 54)}
SCALE_ESN = [
    (26, 28),
    (27, 29),
    (28, 30),
    (30, 32),
    (34, 36),
    (43, 45),
    (59, 63),
]  # from 1,024 units, doubling
# Ueda et al. 2025b, table 1: the same, of all entries, cut to the million.
FROZEN = {"gpt2": (124, 124), "lstm": (53, 53)}
FROZEN_ESN = [(3, 6), (6, 12), (12, 25), (25, 51), (51, 104), (102, 210)]  # from 64 units
FROZEN_ESN_I = [(6, 6), (12, 12), (25, 25), (51, 51), (102, 104), (205, 210)]
SCALE |= {f"esn_n{1024 << i}": row for i, row in enumerate(SCALE_ESN)}
FROZEN |= {f"esn_n{64 << i}": row for i, row in enumerate(FROZEN_ESN)}
FROZEN |= {f"esn_i_n{64 << i}": row for i, row in enumerate(FROZEN_ESN_I)}


def counts(folder, name):
    """The counts of a row: `esn_n64` is esn.yaml with 64 units."""
    family, _, size = name.partition("_n")
    size = ["--model.reservoir.state_size", size] if size else []
    return inside.parameter_counts(CONFIGS / folder / f"{family}.yaml", size, V)


@pytest.mark.parametrize("name", SCALE)
def test_esn_at_scale_table_3(name):
    trainable, total, _ = counts("esn_at_scale", name)
    assert (round(trainable / 1e6), round(total / 1e6)) == SCALE[name]


@pytest.mark.parametrize("name", FROZEN)
def test_frozen_rnn_table_1(name):
    trainable, _, entries = counts("frozen_rnn", name)
    assert (trainable // 10**6, entries // 10**6) == FROZEN[name]


def test_every_configuration_can_be_read():
    # tests/studies reads the others
    for file in {*CONFIGS.rglob("*.yaml")} - {*(CONFIGS / "studies").rglob("*.yaml")}:
        inside.parameter_counts(file, [], V)
