"""Runs on eight devices are those on one, up to rounding: losses, what is saved, and scores."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.machine.many_devices import FAMILIES, MANY

EIGHT = "--xla_force_host_platform_device_count=8"
ROOT = Path(__file__).resolve().parents[2]
LOSS, SCORE = 1e-5, 2e-5


def on_eight_devices(program, *arguments):
    """What a program of the tests prints, in a process of its own: how many devices there are is
    decided once."""
    command = [sys.executable, "-m", program, *map(str, arguments)]
    flags = f"{os.environ.get('XLA_FLAGS', '')} {EIGHT}"
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": flags,
        "PJRT_NPROC": "16",
    }
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"name"')]


@pytest.mark.parametrize(
    "name, updates",
    [("esn", 10), *(pytest.param(name, 50, marks=pytest.mark.nightly) for name in FAMILIES)],
)
def test_runs_on_eight_devices_are_those_on_one(tmp_path, name, updates):
    """Losses, what is saved, and scores. The update gathers neither W nor its moments."""
    (found,) = on_eight_devices("tests.machine.many_devices", tmp_path, updates, name)
    one, many = np.array(found["one"]), np.array(found["many"])
    np.testing.assert_allclose(many, one, rtol=0, atol=LOSS)
    assert found["scores"] < SCORE and found["mesh"] == MANY
    if name != "ridge":
        assert len(one) == updates + 1, "the loss of every update, and the validation's"
        assert one[-1] < one[0], "something was learned"
        # Sums in another order; AdamW divides by the size of a gradient, also of one that is nearly
        # 0.
        assert found["saved"] < updates * 1e-3 * 1e-2, "a hundredth of the steps"
        assert found["gathered"] < found["largest"]


@pytest.mark.nightly
def test_more_devices_than_cores_finish(tmp_path):
    """Some hundred updates: the launches of more than 32 programs wait for those before."""
    command = [
        sys.executable,
        "train.py",
        f"--run={tmp_path / 'run'}",
        "--data.sentences=10000",
        "--training.epochs=1",
    ]
    environment = {
        name: value for name, value in os.environ.items() if name not in ("PJRT_NPROC", "NPROC")
    }
    environment |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
