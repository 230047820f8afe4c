"""The settings of a run that goes on, on other devices than those that it was begun on."""

import dataclasses

import pytest

from esnlm.compute import ComputeConfig
from esnlm.config import Experiment
from esnlm.errors import InputError
from esnlm.parallel import mesh as meshes
from esnlm.runs.directory import RunDirectory
from esnlm.training import settings
from esnlm.training.summary import hash_config
from tests.parallel.test_mesh import EIGHT


@pytest.fixture
def gpus(monkeypatch):
    """Lets there be so many GPUs, until it is called again."""
    monkeypatch.setattr(settings, "backend", lambda: "gpu")
    return lambda count: monkeypatch.setattr(meshes, "_devices", lambda: EIGHT[:count])


def test_a_run_that_was_begun_on_a_gpu_goes_on_on_a_cpu(gpus, tmp_path, monkeypatch):
    directory, experiment = RunDirectory(tmp_path), Experiment(compute=ComputeConfig(precision="bf16"))
    gpus(1)
    begun, _ = settings.resolve(experiment, directory)
    assert begun.compute.kernel == "fused"
    monkeypatch.setattr(settings, "backend", lambda: "cpu")
    found, changes = settings.resolve(experiment, directory)
    assert found.compute.kernel != "fused"
    assert [change.partition(" -> ")[0] for change in changes] == ["compute.kernel fused"]
    fused = dataclasses.replace(experiment, compute=ComputeConfig(precision="bf16", kernel="fused"))
    with pytest.raises(InputError, match="^compute.kernel is fused: it is for GPUs"):
        settings.resolve(fused, directory)


def test_what_devices_choose_is_in_one_hash_of_the_settings_and_not_in_the_other(gpus):
    one, four = Experiment(compute=ComputeConfig(mesh={"vocabulary": 1})), Experiment()
    gpus(4)
    runs = [settings._with_device_choices(experiment) for experiment in (one, four)]
    assert len({hash_config(run) for run in runs}) == 2, (
        "config_sha256: four devices have a window of four times as many tokens"
    )
    assert len({settings.hash_settings(run) for run in runs}) == 1, "settings_sha256"
