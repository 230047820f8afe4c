"""The table of devices, and names of devices that are not there."""

import pytest

from esnlm.devices import DEVICES, find_device, mfu, parse_devices
from esnlm.errors import InputError
from esnlm.ops.matmul import PRECISIONS


def test_every_device_has_every_precision_in_order_and_a_source():
    for name, device in DEVICES.items():
        speeds = [device.flops[precision] for precision in PRECISIONS]
        assert device.name == name and set(device.flops) == set(PRECISIONS)
        assert speeds == sorted(speeds) and speeds[0] > 1e12 and speeds[-1] < 1e16
        assert 1e10 < device.memory < 1e12 and 1e11 < device.bandwidth < 1e13
        assert device.backend in ("gpu", "tpu") and device.source.startswith(("NVIDIA, ", "Google Cloud "))


def test_a_device_is_found_by_what_jax_calls_it():
    assert find_device("NVIDIA H100 80GB HBM3") is DEVICES["h100"]
    assert find_device("TPU v5 lite") is DEVICES["tpu-v5e"]
    assert find_device("cpu") is None and find_device("NVIDIA H100") is None
    kinds = [kind for device in DEVICES.values() for kind in device.kinds]
    assert len(set(kinds)) == len(kinds)


def test_devices_that_are_not_there_are_counted():
    assert parse_devices("a100") == (DEVICES["a100"], 1)
    assert parse_devices("h100:8") == (DEVICES["h100"], 8)
    assert parse_devices("tpu-v5e:4x4") == (DEVICES["tpu-v5e"], 16)


@pytest.mark.parametrize("text", ["h100:", "h100:0", "h100:2x", "h100:two", "h100:-1", "h100:99999999", "h100:²"])
def test_no_number_of_devices_is_refused(text):
    with pytest.raises(
        InputError, match=f"^--on {text}: after the colon stands how many there are, as in h100:8 or h100:4x4$"
    ):
        parse_devices(text)


def test_the_mfu_of_a_training_as_fast_as_its_products_is_one():
    assert mfu(tokens_per_second=10, flops_per_token=3, speed=30) == 1
    assert mfu(tokens_per_second=10, flops_per_token=3, speed=30, devices=4) == 0.25
