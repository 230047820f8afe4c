"""A run that cannot fit is refused before anything is computed; one that may fit is not."""

from types import SimpleNamespace

import pytest

from esnlm.config import Experiment
from esnlm.errors import InputError
from esnlm.models.echo_state import EchoStateConfig
from esnlm.models.lstm import LstmConfig
from esnlm.training import memory_check, plan
from esnlm.training.memory_check import require_memory


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


def test_devices_of_a_mesh_share_what_is_trained_and_the_features(monkeypatch):
    monkeypatch.setattr(EchoStateConfig, "mesh", lambda self, compute: SimpleNamespace(size=8))
    monkeypatch.setattr(memory_check, "backend", lambda: "gpu")
    planned = plan.memory(Experiment(), "gpu", 5000)
    least = planned.frozen + planned.trained // 8 + planned.features // 8
    monkeypatch.setattr(memory_check, "device_memory", lambda: least)
    require_memory(Experiment(), 5000)
    monkeypatch.setattr(memory_check, "device_memory", lambda: least - 1)
    with pytest.raises(InputError, match=r" GB of memory on each device \(what is trained .* and JAX on this cpu has "):
        require_memory(Experiment(), 5000)
