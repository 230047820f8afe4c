"""The devices of a run as a mesh."""

from dataclasses import dataclass

import jax
import numpy as np
import pytest

from esnlm.errors import InputError
from esnlm.parallel import mesh


@dataclass(frozen=True)
class Device:
    """A device that is not there."""

    id: int
    process_index: int = 0
    device_kind: str = "unknown"


EIGHT = [Device(i) for i in range(8)]


@pytest.mark.parametrize(
    "setting, devices, shape",
    [
        (None, 8, {"data": 1, "vocabulary": 8}),
        ({"data": 2, "vocabulary": 3}, 8, {"data": 2, "vocabulary": 3}),
        (None, 1, None),
        ({"vocabulary": 1}, 8, None),
    ],
)
def test_a_mesh_has_the_devices_that_are_asked_for_or_all(setting, devices, shape):
    found = mesh.make_mesh(setting, EIGHT[:devices])
    assert found is None if shape is None else mesh.describe(found) == shape


def test_devices_that_are_not_there_or_are_left_out_by_several_processes_are_refused():
    with pytest.raises(InputError, match="^compute.mesh: data 3 x vocabulary 4"):
        mesh.make_mesh({"data": 3, "vocabulary": 4}, EIGHT)
    with pytest.raises(InputError, match="^compute.mesh: .* 2 processes"):
        mesh.make_mesh({"data": 2, "vocabulary": 2}, [Device(i, process_index=i // 4) for i in range(8)])


def test_a_tree_comes_back_as_it_was():
    tree = {"a": jax.numpy.arange(6.0).reshape(2, 3), "steps": 3}
    found = mesh.fetch(tree)
    np.testing.assert_array_equal(found["a"], np.arange(6.0).reshape(2, 3))
    assert isinstance(found["a"], np.ndarray) and found["steps"] == 3
