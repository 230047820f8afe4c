"""All that a GPU must say, tried at tiny sizes: that each part finds what it should, and that one
which hangs costs the others nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import gpu_page
import gpu_parts

ROOT = Path(__file__).parents[2]
PARTS = tuple(gpu_page.EXPECTED)


def run_all(python: str, out: Path, *arguments: str, **more: str) -> str:
    """Runs the command with an interpreter that sees this checkout and what was carried, and
    nothing of this process."""
    own = ("PATH", "HOME", "TMPDIR")
    environment = (
        {name: os.environ[name] for name in own if name in os.environ}
        | {"JAX_PLATFORMS": "cpu"}
        | more
    )
    command = [ROOT / "benchmarks" / "gpu_all.sh", "--small", *arguments]
    done = subprocess.run(
        command,
        env=environment | {"PYTHON": python, "OUT": str(out)},
        capture_output=True,
        text=True,
        timeout=330,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.nightly
def test_all_parts_on_what_the_machine_has(tmp_path):
    """ESNLM_GPU_IMAGE_PYTHON names an interpreter with the packages of the machine
    (docs/machines.md), and no others."""
    python, wheels = os.environ.get("ESNLM_GPU_IMAGE_PYTHON"), ROOT / "build" / "gpu" / "wheels"
    if not python or not wheels.exists():
        pytest.skip(
            "no ESNLM_GPU_IMAGE_PYTHON, or nothing is carried in build/gpu (docs/machines.md)"
        )
    run_all(python, tmp_path)
    found = {name: json.loads((tmp_path / f"{name}.json").read_text()) for name in PARTS}
    without_torch = {
        f"PyTorch is not installed: {what} not measured"
        for what in ("its models were", "cuSPARSE was")
    }
    for name, part in found.items():
        # a CPU's are all so
        expected = set(gpu_page.EXPECTED[name]) - {"made twice, deterministic operations"}
        assert expected <= set(part) and set(part["failures"]) <= without_torch, part["failures"]
    assert [found["train"][name]["status"] for name in ("cold", "warm", "stopped", "blimp")] == [
        0,
        0,
        75,
        0,
    ]
    assert len(found["train"]["profile"]["kernels"]) > 1 and found["large"]["large"]["status"] in (
        0,
        75,
    )
    assert found["same"]["made twice"]["differ"] == found["same"]["resumed"]["differ"] == {}
    page = (tmp_path / "gpu.md").read_text()
    assert "the numbers on this page mean nothing" in page and "arrays are the same" in page
    assert len(list(tmp_path.iterdir())) == 8  # what comes back from such a machine


def test_a_profile_is_reduced_to_its_kernels_and_the_time_between_them():
    streams = [
        {
            "name": "thread_name",
            "ph": "M",
            "pid": 1,
            "tid": 7,
            "args": {"name": "Stream #16(Compute)"},
        },
        {"name": "thread_name", "ph": "M", "pid": 1, "tid": 8, "args": {"name": "XLA Ops"}},
    ]
    spans = [
        (0, 2000, 7, "gemm"),
        (1000, 2000, 7, "adamw"),
        (5000, 1000, 7, "gemm"),
        (0, 9000, 8, "the whole"),
    ]
    events = [
        {"ph": "X", "pid": 1, "ts": ts, "dur": dur, "tid": tid, "name": name}
        for ts, dur, tid, name in spans
    ]
    found = gpu_parts.longest_kernels(streams + events)
    assert found["span_ms"] == 6 and found["busy_ms"] == 4 and found["launches"] == 3
    assert found["kernels"] == [
        {"name": "gemm", "ms": 3, "times": 2},
        {"name": "adamw", "ms": 2, "times": 1},
    ]
