"""Which models can be computed on several devices, and who reads which sentence."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

from esnlm.compute import ComputeConfig
from esnlm.devices import DEVICES
from esnlm.errors import InputError
from esnlm.features.sharded_stream import share_out
from esnlm.models.deep_readout import DeepReadoutConfig
from esnlm.models.echo_state import EchoStateConfig
from esnlm.models.jaeger import JaegerConfig
from esnlm.models.lstm import LstmConfig
from esnlm.parallel import mesh as meshes
from esnlm.parallel.placement import Placement, deal
from esnlm.reservoir.weights import ReservoirConfig
from esnlm.trunk.hashed_ngrams import HashedNgramsConfig
from tests.parallel.test_mesh import EIGHT


def test_a_vocabulary_and_units_are_padded_to_equal_parts():
    found = Placement(meshes.make_mesh({"data": 2, "vocabulary": 4}, EIGHT), 50_257, 50, ("readout.a",), ("readout.b",))
    assert found.padded_vocab_size == 50_688 == 99 * 128 * 4
    assert found.padded_feature_size == 56 == 7 * 8


def test_the_state_of_an_optimizer_is_cut_as_its_arrays_are():
    found = Placement(meshes.make_mesh(None, EIGHT), 40, 16, EchoStateConfig().token_arrays, ("readout.b",))
    params = {"readout": {"a": np.zeros((40, 3)), "b": np.zeros((3, 16)), "bias": np.zeros(40)}}
    specs = found.specs(optax.adam(0.1).init(params))[0]
    by_token = P(meshes.VOCABULARY)
    cut = {"readout": {"a": by_token, "b": P(None, meshes.ALL), "bias": by_token}}
    assert (specs.count, specs.mu, specs.nu) == (P(), cut, cut)


def test_what_is_dealt_out_comes_back():
    cards = np.arange(24).reshape(2, 12)
    dealt = deal(cards, 3)
    np.testing.assert_array_equal(dealt[0], [0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11])
    np.testing.assert_array_equal(deal(dealt, 4), cards)
    shared = Placement(meshes.make_mesh({"vocabulary": 6, "units": 3}, EIGHT), 9, 10, (), ("readout.b",))
    np.testing.assert_array_equal(shared.without_padding(dealt), cards[:, :10])


UNITS_OF_3 = ComputeConfig(mesh={"vocabulary": 3, "units": 3})


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (LstmConfig(width=8), f"{LstmConfig(width=8).title} has no frozen reservoir, which alone is cut by unit"),
        (
            EchoStateConfig(reservoir=ReservoirConfig(state_size=48), train_input=True),
            "ESN+i 48, rank 512 has no frozen reservoir, which alone is cut by unit",
        ),
        (
            EchoStateConfig(reservoir=ReservoirConfig(state_size=4096)),
            "it does not divide model.reservoir.state_size, which is 4,096",
        ),
        (
            EchoStateConfig(reservoir=ReservoirConfig(state_size=48, update_rule="euler")),
            "the update rule euler is a program's own, and may read other units",
        ),
        (
            EchoStateConfig(reservoir=ReservoirConfig(state_size=48, update_rule="residual_shift")),
            "the update rule residual_shift reads other units",
        ),
    ],
)
def test_units_that_cannot_be_divided_are_refused(model, why, monkeypatch):
    monkeypatch.setattr(meshes, "_devices", lambda: EIGHT)
    with pytest.raises(InputError) as caught:
        model.mesh(UNITS_OF_3)
    assert str(caught.value) == f"compute.mesh.units is 3: {why}; leave it out"


def test_a_reservoir_is_cut_where_a_copy_takes_more_than_half_of_a_device():
    """By hand: W_rec of 131,072 units has 4 N^2 = 68.7 GB, of which a device of 84.9 GB takes 42.5."""
    h100, compute = DEVICES["h100"], ComputeConfig()

    def units(memory=h100.memory, most=8, **settings):
        model = EchoStateConfig(reservoir=ReservoirConfig(**settings))
        return model.shared_by(most, memory, compute, "gpu", 50_257)

    dense = {"connectivity": 0.25, "input_connectivity": 0.001}
    assert [units(state_size=size, **dense) for size in (65_536, 131_072, 262_144)] == [1, 2, 8]
    assert units(state_size=131_072, most=6, **dense) == 2
    assert units(state_size=1 << 20) == 1, "8 bytes for each of 32 entries a row: 0.3 GB"
    assert units(state_size=1 << 20, mean_degree=8192) == 2, "68.7 GB"
    assert units(state_size=99_999, most=9, memory=10**9, **dense) == 9, (
        "the most that divide the units, though it is too few"
    )
    assert units(state_size=1024, memory=1) == 8
    assert EchoStateConfig(train_input=True).shared_by(8, 1, compute, "gpu", 50_257) == 1
    assert LstmConfig().shared_by(8, 1, compute, "gpu", 50_257) == 1


def test_the_units_are_chosen_by_the_kind_of_the_devices(monkeypatch):
    h100 = [dataclasses.replace(device, device_kind=DEVICES["h100"].kinds[0]) for device in EIGHT]
    model = EchoStateConfig(reservoir=ReservoirConfig(state_size=131_072, connectivity=0.25, input_connectivity=0.001))
    monkeypatch.setattr(meshes, "_devices", lambda: h100)
    found = [model.placement(ComputeConfig(mesh=mesh), 50_257) for mesh in (None, {"vocabulary": 8, "units": 4})]
    assert [placement.units for placement in found] == [2, 4]
    monkeypatch.setattr(meshes, "_devices", lambda: EIGHT)  # of a kind that nobody knows
    assert model.placement(ComputeConfig(), 50_257).units == 1


@pytest.mark.parametrize(
    "model",
    [JaegerConfig(), DeepReadoutConfig(), LstmConfig(ngrams=HashedNgramsConfig(orders=(2,)))],
    ids=["reads its own predictions", "deep readout", "LSTM with n-grams"],
)
def test_a_model_whose_arrays_cannot_be_cut_takes_one_device(model, monkeypatch):
    monkeypatch.setattr(meshes, "_devices", lambda: EIGHT)
    assert model.mesh(ComputeConfig()) is None
    assert model.mesh(ComputeConfig(mesh={"vocabulary": 1})) is None
    with pytest.raises(InputError) as caught:
        model.mesh(ComputeConfig(mesh={"vocabulary": 8}))
    assert str(caught.value) == (
        f"compute.mesh asks for several devices: {model.title} can be computed on one only; give null"
    )
    monkeypatch.setattr(meshes, "_devices", lambda: [SimpleNamespace(process_index=process) for process in (0, 1)])
    with pytest.raises(InputError) as caught:  # each process would train all of it
        model.mesh(ComputeConfig())
    assert str(caught.value) == f"{model.title} is computed on one device only, and 2 processes were started: start one"


def test_devices_read_about_equally_much():
    lengths = [9, 2, 7, 7, 3, 1, 5]
    shares = share_out(lengths, 3)
    assert sorted(np.concatenate(shares)) == list(range(7))
    assert sorted(sum(lengths[s] for s in share) for share in shares) == [11, 11, 12]
    assert sorted(len(share) for share in share_out([4], 3)) == [0, 0, 1]
