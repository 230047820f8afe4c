"""The settings of a run that goes on, on other devices than those that it was begun on."""

import dataclasses

import pytest

from esnlm.base.errors import InputError
from esnlm.machine import mesh as meshes
from esnlm.machine.compute import ComputeConfig
from esnlm.models import devices
from esnlm.models.devices import Machine, find_machine
from esnlm.runs.directory import RunDirectory
from esnlm.training import settings
from esnlm.training.config import Experiment, hash_settings, resolved
from tests.machine.test_mesh import EIGHT


@pytest.fixture
def gpus(monkeypatch):
    """Lets there be so many GPUs, until it is called again."""
    monkeypatch.setattr(devices, "backend", lambda: "gpu")
    return lambda count: monkeypatch.setattr(meshes, "_devices", lambda: EIGHT[:count])


def test_a_run_that_was_begun_on_a_gpu_goes_on_on_a_cpu(gpus, tmp_path):
    directory, experiment = (
        RunDirectory(tmp_path),
        Experiment(compute=ComputeConfig(precision="bf16")),
    )
    gpus(1)
    machine = find_machine(experiment.model, experiment.compute)
    begun, _ = settings.decide(experiment, machine, directory)
    assert begun.compute.kernel == "fused"
    found, changes = settings.decide(experiment, Machine("cpu"), directory)
    assert found.compute.kernel != "fused"
    assert [change.partition(" -> ")[0] for change in changes] == ["compute.kernel fused"]
    fused = dataclasses.replace(experiment, compute=ComputeConfig(precision="bf16", kernel="fused"))
    with pytest.raises(InputError, match="^compute.kernel is fused: it is for GPUs"):
        settings.decide(fused, Machine("cpu"), directory)


def test_what_devices_choose_is_not_in_the_hash_of_the_settings(gpus):
    one, four = Experiment(compute=ComputeConfig(mesh={"vocabulary": 1})), Experiment()
    gpus(4)
    runs = [resolved(each, find_machine(each.model, each.compute)) for each in (one, four)]
    assert runs[0].compute.window_tokens < runs[1].compute.window_tokens
    assert len({hash_settings(run, with_seed=True) for run in (one, four, *runs)}) == 1
    bf16 = Experiment(compute=ComputeConfig(precision="bf16"))
    assert hash_settings(bf16) != hash_settings(one), "which rounds otherwise"


def test_of_two_seeds_one_hash_is_the_same():
    one, two = Experiment(), Experiment(seed=2)
    assert hash_settings(one) == hash_settings(two)
    assert hash_settings(one, with_seed=True) != hash_settings(two, with_seed=True)
