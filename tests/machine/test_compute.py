"""What is left to the device."""

import pytest

from esnlm.base.errors import InputError
from esnlm.machine.compute import ComputeConfig
from esnlm.models.devices import STEPS, WINDOW_BYTES, choose_compute
from esnlm.models.echo_state import EchoStateConfig
from esnlm.reservoir.weights import ReservoirConfig
from esnlm.training.config import Experiment


def experiment(size):
    return Experiment(model=EchoStateConfig(reservoir=ReservoirConfig(state_size=size)))


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
@pytest.mark.parametrize("size", [512, 4096, 16_384, 65_536, 2**20])
def test_a_window_fits_its_memory_and_fills_its_slots(backend, size):
    chosen = choose_compute(ComputeConfig(), experiment(size).model, backend)
    assert 4 * size * chosen.window_tokens <= WINDOW_BYTES[backend]
    assert chosen.batch_slots == 8 or chosen.batch_slots * STEPS <= chosen.window_tokens


@pytest.mark.parametrize("backend", ["gpu", "tpu"])
def test_accelerators_have_as_many_slots_as_the_longest_window_fills(backend):
    # docs/machines.md
    assert choose_compute(ComputeConfig(), experiment(512).model, backend).batch_slots == 512


def test_what_is_set_stays():
    chosen = choose_compute(
        ComputeConfig(kernel="bcoo", batch_slots=3, window_tokens=77), experiment(4096).model, "cpu"
    )
    assert (chosen.kernel, chosen.batch_slots, chosen.window_tokens) == ("bcoo", 3, 77)


@pytest.mark.parametrize("backend", ["cpu", "tpu"])
def test_tf32_is_for_gpus(backend):
    with pytest.raises(InputError, match="compute.precision is tf32"):
        choose_compute(ComputeConfig(precision="tf32"), experiment(4096).model, backend)
    assert (
        choose_compute(ComputeConfig(precision="tf32"), experiment(4096).model, "gpu").precision
        == "tf32"
    )
