"""The devices of a run as a mesh."""

import os
from dataclasses import dataclass

import jax
import numpy as np
import pytest

from esnlm.base.errors import InputError
from esnlm.machine import host, mesh


@dataclass(frozen=True)
class Device:
    """A device that is not there."""

    id: int
    process_index: int = 0
    device_kind: str = "unknown"
    platform: str = "tpu"


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
        mesh.make_mesh(
            {"data": 2, "vocabulary": 2}, [Device(i, process_index=i // 4) for i in range(8)]
        )


def test_a_tree_comes_back_as_it_was():
    tree = {"a": jax.numpy.arange(6.0).reshape(2, 3), "steps": 3}
    found = mesh.gather(tree)
    np.testing.assert_array_equal(found["a"], np.arange(6.0).reshape(2, 3))
    assert isinstance(found["a"], np.ndarray) and found["steps"] == 3


def test_devices_of_a_cpu_need_two_threads_each(monkeypatch):
    """Else the launch of a program may take the thread of the last device in a collective
    operation, for good."""
    cpu = [Device(i, platform="cpu") for i in range(4)]
    monkeypatch.setenv("PJRT_NPROC", "7")
    with pytest.raises(
        InputError, match="^4 CPU devices need 8 threads of XLA, which has 7: set PJRT_NPROC=8 "
    ):
        mesh.make_mesh(None, cpu)
    monkeypatch.setenv("PJRT_NPROC", "8")
    assert mesh.make_mesh(None, cpu) is not None
    two_processes = [Device(i, process_index=i, platform="cpu") for i in range(4)]
    monkeypatch.setenv("PJRT_NPROC", "1")
    assert mesh.make_mesh(None, two_processes) is not None, "one device of each process"


@pytest.mark.parametrize(
    "environment, threads",
    [
        ({"XLA_FLAGS": "--a=1 --xla_force_host_platform_device_count=64"}, "128"),
        ({"JAX_NUM_CPU_DEVICES": "64"}, "128"),
        ({"XLA_FLAGS": "--xla_force_host_platform_device_count=64", "PJRT_NPROC": "3"}, "3"),
        ({"XLA_FLAGS": "--a=1"}, None),
        ({"JAX_NUM_CPU_DEVICES": "many"}, None),
    ],
)
def test_commands_ask_for_threads_unless_the_user_has(monkeypatch, environment, threads):
    monkeypatch.setattr(os, "environ", dict(environment))
    host.set_threads()
    assert os.environ.get("PJRT_NPROC") == threads
