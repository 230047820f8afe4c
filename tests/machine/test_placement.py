"""Which models can be computed on several devices, and how arrays lie there."""

from types import SimpleNamespace

import jax
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

from esnlm.base.errors import InputError
from esnlm.machine import mesh as meshes
from esnlm.machine.compute import ComputeConfig
from esnlm.machine.mesh import Placement
from esnlm.models.devices import Machine, find_machine, placement_of
from esnlm.models.echo_state import EchoStateConfig
from esnlm.models.jaeger import JaegerConfig
from esnlm.reservoir.weights import ReservoirConfig
from tests.machine.test_mesh import EIGHT


def test_the_state_of_an_optimizer_is_cut_as_its_arrays_are(monkeypatch):
    mesh, cut = meshes.make_mesh(None, EIGHT), {}
    monkeypatch.setattr(
        meshes, "shard", lambda array, mesh, spec: cut.setdefault(np.shape(array), spec)
    )
    found = Placement(mesh, 40, 1024, EchoStateConfig().token_arrays, ("readout.b",))
    params = {"readout": {"a": np.zeros((40, 3)), "b": np.zeros((3, 16)), "bias": np.zeros(40)}}
    found.shard(optax.adam(0.1).init(params))
    assert cut == {
        (): P(),
        (1024, 3): P("vocabulary"),
        (3, 16): P(None, ("data", "vocabulary")),
        (1024,): P("vocabulary"),
    }


def test_b_is_cut_if_the_devices_divide_the_units(monkeypatch):
    monkeypatch.setattr(meshes, "_devices", lambda: EIGHT)
    for size, by_unit in ((48, ("readout.b",)), (50, ())):
        model = EchoStateConfig(reservoir=ReservoirConfig(state_size=size))
        found = placement_of(model, find_machine(model, ComputeConfig()), 50_257)
        assert found.by_unit == by_unit and found.rows == 50_257 + 943, (
            "128 rows for each of 8 devices"
        )


def test_a_model_that_reads_its_own_predictions_takes_one_device(monkeypatch):
    model = JaegerConfig()
    monkeypatch.setattr(meshes, "_devices", lambda: EIGHT)
    assert find_machine(model, ComputeConfig()) == Machine("cpu")
    assert find_machine(model, ComputeConfig(mesh={"vocabulary": 1})).mesh is None
    with pytest.raises(InputError, match="^compute.mesh"):
        find_machine(model, ComputeConfig(mesh={"vocabulary": 8}))
    monkeypatch.setattr(
        meshes, "_devices", lambda: [SimpleNamespace(process_index=process) for process in (0, 1)]
    )
    with pytest.raises(InputError, match="2 processes"):  # each process would train all of it
        find_machine(model, ComputeConfig())


def test_one_device_leaves_arrays_as_they_are():
    here, tree = (
        Placement(None, 40, 40, ("readout.a",)),
        {"readout": {"a": jax.numpy.ones((40, 3))}},
    )
    assert (
        here.shard(tree)["readout"]["a"]
        is here.replicate(tree)["readout"]["a"]
        is tree["readout"]["a"]
    )
    assert here.gather(tree) is tree and here.devices == 1
