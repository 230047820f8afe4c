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


def test_by_default_all_devices_lie_along_the_vocabulary():
    found = mesh.make_mesh(None, EIGHT)
    assert mesh.describe(found) == {"data": 1, "vocabulary": 8}


def test_one_device_needs_no_mesh():
    assert mesh.make_mesh(None, EIGHT[:1]) is None
    assert mesh.make_mesh({"vocabulary": 1}, EIGHT) is None
    assert mesh.describe(None) == {"data": 1, "vocabulary": 1}


def test_a_mesh_may_have_fewer_devices_than_there_are():
    found = mesh.make_mesh({"data": 2, "vocabulary": 3}, EIGHT)
    assert [device.id for device in found.devices.ravel()] == [0, 1, 2, 3, 4, 5]
    assert mesh.describe(found) == {"data": 2, "vocabulary": 3}


def test_a_mesh_of_more_devices_than_there_are_is_refused():
    with pytest.raises(InputError) as caught:
        mesh.make_mesh({"data": 3, "vocabulary": 4}, EIGHT)
    line = "compute.mesh is data 3 x vocabulary 4: it needs 12 devices and there are 8; lower it, or give null"
    assert str(caught.value) == line


def test_a_mesh_that_leaves_devices_of_several_processes_out_is_refused():
    with pytest.raises(InputError) as caught:
        mesh.make_mesh({"data": 2, "vocabulary": 2}, [Device(i, process_index=i // 4) for i in range(8)])
    assert str(caught.value) == (
        "compute.mesh is data 2 x vocabulary 2: 2 processes have 8 devices, and all must be in it; give null"
    )


def test_a_tree_comes_back_as_it_was():
    tree = {"a": jax.numpy.arange(6.0).reshape(2, 3), "steps": 3}
    found = mesh.fetch(tree)
    np.testing.assert_array_equal(found["a"], np.arange(6.0).reshape(2, 3))
    assert isinstance(found["a"], np.ndarray) and found["steps"] == 3
