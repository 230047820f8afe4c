"""A run that cannot fit is refused before anything is computed; one that may fit is not."""

import dataclasses
import math

import jax
import pytest

from esnlm.compute import LONGEST_WINDOW, STEPS, ComputeConfig, choose_compute
from esnlm.config import Experiment
from esnlm.errors import InputError
from esnlm.models.echo_state import EchoStateConfig
from esnlm.models.lstm import LstmConfig
from esnlm.parallel import mesh as meshes
from esnlm.training import memory_check, plan
from esnlm.training.memory_check import require_memory
from tests.parallel.test_mesh import EIGHT


def least(experiment, vocab_size):
    """What exists at once in any case, by hand: four arrays of what is trained, the buffer of features, what is frozen."""
    model = experiment.model
    trained = 16 * model.expected_counts(vocab_size).trainable
    planned = plan.memory(experiment, "cpu", vocab_size)
    return trained + model.frozen_bytes(vocab_size) + (planned.features if model.features_are_frozen else 0)


@pytest.mark.parametrize("model", [EchoStateConfig(), LstmConfig()], ids=["esn", "lstm"])
def test_a_byte_too_little_is_refused(model, monkeypatch):
    experiment = Experiment(model=model)
    monkeypatch.setattr(memory_check, "device_memory", lambda: least(experiment, 5000))
    require_memory(experiment, 5000)
    monkeypatch.setattr(memory_check, "device_memory", lambda: least(experiment, 5000) - 1)
    with pytest.raises(InputError, match=r"^this run needs at least [\d.]+ GB of memory \(what is trained "):
        require_memory(experiment, 5000)
    monkeypatch.setenv("ESNLM_MEMORY_CHECK", "off")
    require_memory(experiment, 5000)


def test_the_advice_is_for_the_largest_part(monkeypatch):
    monkeypatch.setattr(memory_check, "device_memory", lambda: 10**9)
    with pytest.raises(InputError, match="choose a smaller compute.window_tokens, or try it all the same"):
        require_memory(Experiment(), 300)


@pytest.mark.parametrize(
    ("units", "copies_of_features"), [(1, 2), (4, 2), (8, 1)], ids=["a copy each", "two copies", "one copy"]
)
def test_devices_of_a_mesh_share_what_is_trained_and_the_features(units, copies_of_features, monkeypatch):
    """Features lie on each device by sentence and by unit, unless all share one reservoir: then both are the same."""
    monkeypatch.setattr(meshes, "_devices", lambda: EIGHT)
    monkeypatch.setattr(memory_check, "backend", lambda: "gpu")
    model, size = EchoStateConfig(), 4096
    experiment = Experiment(model=model, compute=ComputeConfig(mesh={"vocabulary": 8, "units": units}))
    window = LONGEST_WINDOW  # of each device: 8 GB would hold more
    features = copies_of_features * 4 * size * (window + window // STEPS)
    rows, columns, rank = 5120 // 8, size // 8, 512  # V is padded to a multiple of 128 x 8
    trained = 16 * (rows * (rank + 1) + columns * rank)
    least = math.ceil(model.frozen_bytes(5000) / units) + trained + features
    monkeypatch.setattr(memory_check, "device_memory", lambda: least)
    require_memory(experiment, 5000)
    resolved = dataclasses.replace(experiment, compute=choose_compute(experiment.compute, model, "gpu", 8))
    require_memory(resolved, 5000)
    monkeypatch.setattr(memory_check, "device_memory", lambda: least - 1)
    for each in (experiment, resolved):
        with pytest.raises(InputError, match=r" GB of memory on each device \(what is trained .* JAX on this cpu has "):
            require_memory(each, 5000)


def test_devices_of_a_cpu_have_one_memory(monkeypatch):
    monkeypatch.setattr(meshes, "_devices", lambda: EIGHT)
    monkeypatch.setattr(jax, "local_device_count", lambda: 8)
    monkeypatch.setattr(memory_check, "backend", lambda: "cpu")
    each = plan.memory_of_each(Experiment(), "cpu", meshes.Shape(vocabulary=8), 5000)
    together = 8 * (each.frozen + each.trained + each.features)
    monkeypatch.setattr(memory_check, "device_memory", lambda: together)
    require_memory(Experiment(), 5000)
    monkeypatch.setattr(memory_check, "device_memory", lambda: together - 1)
    with pytest.raises(InputError, match=r" GB of memory \(what is trained .* and this machine has "):
        require_memory(Experiment(), 5000)
