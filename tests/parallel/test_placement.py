"""Which models can be computed on several devices, and who reads which sentence."""

import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

from esnlm.compute import ComputeConfig
from esnlm.errors import InputError
from esnlm.features.sharded_stream import share_out
from esnlm.models.echo_state import EchoStateConfig
from esnlm.models.jaeger import JaegerConfig
from esnlm.parallel import mesh as meshes
from esnlm.parallel.placement import Placement
from tests.parallel.test_mesh import EIGHT


def test_a_vocabulary_and_units_are_padded_to_equal_parts():
    found = Placement(meshes.make_mesh({"data": 2, "vocabulary": 4}, EIGHT), 50_257, 50, ("readout.a",), ("readout.b",))
    assert found.padded_vocab_size == 50_688 == 99 * 128 * 4
    assert found.padded_feature_size == 56 == 7 * 8


def test_the_state_of_an_optimizer_is_cut_as_its_arrays_are():
    found = Placement(meshes.make_mesh(None, EIGHT), 40, 16, EchoStateConfig().token_arrays, ("readout.b",))
    params = {"readout": {"a": np.zeros((40, 3)), "b": np.zeros((3, 16)), "bias": np.zeros(40)}}
    specs = found.specs(optax.adam(0.1).init(params))[0]
    cut = {"readout": {"a": P("vocabulary"), "b": P(None, ("data", "vocabulary")), "bias": P("vocabulary")}}
    assert (specs.count, specs.mu, specs.nu) == (P(), cut, cut)


def test_a_model_that_reads_its_own_predictions_takes_one_device(monkeypatch):
    monkeypatch.setattr(meshes, "_devices", lambda: EIGHT)
    assert JaegerConfig().mesh(ComputeConfig()) is None
    assert JaegerConfig().mesh(ComputeConfig(mesh={"vocabulary": 1})) is None
    with pytest.raises(InputError) as caught:
        JaegerConfig().mesh(ComputeConfig(mesh={"vocabulary": 8}))
    assert str(caught.value) == (
        f"compute.mesh asks for several devices: {JaegerConfig().title} can be computed on one only; give null"
    )


def test_devices_read_about_equally_much():
    lengths = [9, 2, 7, 7, 3, 1, 5]
    shares = share_out(lengths, 3)
    assert sorted(np.concatenate(shares)) == list(range(7))
    assert sorted(sum(lengths[s] for s in share) for share in shares) == [11, 11, 12]
    assert sorted(len(share) for share in share_out([4], 3)) == [0, 0, 1]
