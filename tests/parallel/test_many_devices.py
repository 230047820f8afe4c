"""Runs on eight devices are those on one, up to rounding: losses, what is saved, and scores."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.parallel.many_devices import FAMILIES, MANY

EIGHT = "--xla_force_host_platform_device_count=8"
ROOT = Path(__file__).resolve().parents[2]
# Sums of a few hundred float32 numbers in another order differ by about 1e-6, of which AdamW makes differences of arrays
# where a gradient is nearly 0: it divides by its size.
LOSS, SCORE = 2e-5, 2e-5


def on_eight_devices(program, *arguments):
    """What a program of the tests prints, in a process of its own: how many devices there are is decided once."""
    command = [sys.executable, "-m", program, *map(str, arguments)]
    flags = f"{os.environ['XLA_FLAGS']} {EIGHT}"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"name"')]


def trained(folder, updates, *names):
    return on_eight_devices("tests.parallel.many_devices", folder, updates, *names)


def assert_same(found, updates):
    one, many = np.array(found["one"]), np.array(found["many"])
    assert len(one) == updates + 1, "the loss of every update, and the validation's"
    np.testing.assert_allclose(many, one, rtol=0, atol=LOSS)
    assert one[-1] < one[0], "something was learned"
    assert found["scores"] < SCORE


def test_a_run_that_goes_on_with_other_devices_is_the_run_on_one(tmp_path):
    (found,) = trained(tmp_path, 18, "three meshes")
    assert_same(found, 18)
    assert found["saved"] < 1e-4, "the largest array has steps of 1e-3"
    assert found["mesh"] == MANY | {"units": 4}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, (_, training) in FAMILIES.items() if "kind" not in training])
def test_two_hundred_updates_of_every_family(tmp_path, name):
    (found,) = trained(tmp_path, 200, name)
    assert_same(found, 200)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, (_, training) in FAMILIES.items() if "kind" in training])
def test_every_regression(tmp_path, name):
    (found,) = trained(tmp_path, 200, name)
    np.testing.assert_allclose(found["many"], found["one"], rtol=0, atol=LOSS)
    assert found["scores"] < SCORE
