"""Guarantee 8: every row of the papers' tables is a configuration, and has the parameters that its paper prints."""

from pathlib import Path

import pytest

from tests.golden import inside

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
V = 50_257

# Ueda et al. 2025a, table 3: millions of trainable and of all parameters, nonzero entries only, rounded.
SCALE = {
    "esn_n1024": (26, 28),
    "esn_n2048": (27, 29),
    "esn_n4096": (28, 30),
    "esn_n8192": (30, 32),
    "esn_n16384": (34, 36),
    "esn_n32768": (43, 45),
}
SCALE |= {"esn_n65536": (59, 63), "gpt2": (124, 124), "lstm": (54, 54)}
# Ueda et al. 2025b, table 1: the same, of all entries, cut to the million.
FROZEN = {
    "esn_n64": (3, 6),
    "esn_n128": (6, 12),
    "esn_n256": (12, 25),
    "esn_n512": (25, 51),
    "esn_n1024": (51, 104),
    "esn_n2048": (102, 210),
}
FROZEN |= {
    "esn_i_n64": (6, 6),
    "esn_i_n128": (12, 12),
    "esn_i_n256": (25, 25),
    "esn_i_n512": (51, 51),
    "esn_i_n1024": (102, 104),
}
FROZEN |= {"esn_i_n2048": (205, 210), "gpt2": (124, 124), "lstm": (53, 53)}


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


def test_the_tables_are_the_reference_files(papers_table):
    """What is copied above stands so in the CSV files beside the data, and no row is missing but OpenAI's GPT-2."""

    def rows(name, title):
        table = [row for row in papers_table(name) if row["model"] != "GPT2 OpenAI"]
        return {title(row): (int(row["trainable_params_M"]), int(row["total_params_M"])) for row in table}

    def in_scale(row):
        return f"esn_n{row['state_size']}" if row["model"] == "ESN" else row["model"].split()[0].lower()

    def in_frozen(row):
        prefix = {"ESN": "esn", "ESN+i": "esn_i"}.get(row["model"])
        return f"{prefix}_n{row['state_size']}" if prefix else row["model"].split()[0].lower()

    assert rows("scale_table3.csv", in_scale) == SCALE
    assert rows("frozen_table1.csv", in_frozen) == FROZEN


def test_every_configuration_can_be_read():
    for file in {*CONFIGS.rglob("*.yaml")} - {*(CONFIGS / "studies").rglob("*.yaml")}:  # tests/studies reads the others
        inside.parameter_counts(file, [], V)
