"""A reservoir that devices share computes the states that one device computes, and devices have equally much to do."""

import numpy as np
import pytest

from esnlm.reservoir import by_unit
from esnlm.reservoir.topology.scale_free import ScaleFree
from esnlm.reservoir.weights import ReservoirConfig, initialize_reservoir
from tests.parallel.test_many_devices import on_eight_devices
from tests.reservoir.cut_by_unit import CASES

QUICK = ["layers"]
# Over 20 contracting steps float32 stays within a few hundred roundings of float64.
TOLERANCE = 300 * float(np.finfo(np.float32).eps)


def assert_right(*names):
    found = {each["name"]: each["difference"] for each in on_eight_devices("tests.reservoir.cut_by_unit", *names)}
    assert set(found) == set(names)
    assert max(found.values()) < TOLERANCE, found


def test_states_of_eight_devices_are_those_of_the_oracle():
    assert_right(*QUICK)


@pytest.mark.slow
def test_states_are_those_of_the_oracle_however_they_are_computed():
    assert_right(*(name for name in CASES if name not in QUICK))


def test_devices_have_equally_many_entries_of_a_graph_with_hubs():
    size, devices = 2048, 8
    config = ReservoirConfig(state_size=size, topology=ScaleFree(edges=16), input_connectivity=0.1)
    w_rec = initialize_reservoir(config, 9, seed=0).reservoir.stored_w_rec
    parts = [by_unit._part_of_matrix(w_rec, number, devices, reads_units=True) for number in range(devices)]
    entries = np.array([part.nse for part in parts])
    assert entries.sum() == w_rec.nse and entries.max() < 1.02 * entries.mean()
    first_block = int((np.asarray(w_rec.indices)[:, 0] < size // devices).sum())
    assert first_block > 2.5 * entries.mean(), "which is why units are dealt out, and not cut in blocks"


def test_the_parts_of_a_matrix_are_its_rows_with_dealt_columns():
    w_rec = initialize_reservoir(ReservoirConfig(state_size=24, mean_degree=4), 9, seed=0).reservoir.stored_w_rec
    whole = np.asarray(w_rec.todense())
    for number in range(3):
        sparse = by_unit._part_of_matrix(w_rec, number, 3, reads_units=True)
        dense = by_unit._part_of_matrix(whole, number, 3, reads_units=True)
        by_hand = whole[number::3][:, np.r_[0:24:3, 1:24:3, 2:24:3]]
        np.testing.assert_array_equal(sparse.todense(), by_hand)
        np.testing.assert_array_equal(dense, by_hand)
