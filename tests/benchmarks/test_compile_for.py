"""What a run hands to an H100, compiled where there is none: it starts soon, and moves little more
than it must.

ESNLM_AOT names a folder with JAX's plugin for CUDA, as benchmarks/compile_for.py says.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

# seconds at most to compile what the first update waits for, one padded size, on two cores
FIRST_UPDATE = 30


def compiled(folder: Path, *options: str) -> dict:
    """Returns what benchmarks/compile_for.py says of each program; the test is skipped without a
    compiler for GPUs."""
    if not os.environ.get("ESNLM_AOT"):
        pytest.skip("no ESNLM_AOT: no compiler for GPUs")
    warnings = [
        "-W",
        "error::DeprecationWarning",
        "-W",
        "error::FutureWarning",
    ]  # of parts of JAX that will go
    command = [
        sys.executable,
        *warnings,
        ROOT / "benchmarks" / "compile_for.py",
        "--precision",
        "tf32",
        "--out",
        folder,
    ]
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    done = subprocess.run(
        [*map(str, command), *options], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(next(folder.glob("*.json")).read_text())["programs"]


@pytest.mark.nightly
@pytest.mark.parametrize(
    "models, settings, most",
    [
        ("ESN", [], 1.3),
        ("deep readout", [], 1.3),
        ("ESN 4,096", ["training.on_nonfinite=skip", "compute.state_precision=bf16"], 1.3),
    ],
)
def test_an_update_for_a_gpu(models, settings, most, tmp_path):
    programs = compiled(
        tmp_path, "--target", "h100", "--only", models, *(["--set", *settings] if settings else [])
    )
    for name in {label.partition(", update")[0] for label in programs if label.endswith("update")}:
        update, step = programs[f"{name}, update"], programs[f"{name}, time step"]
        assert update["compiled in s"] + step["compiled in s"] < FIRST_UPDATE
        assert (update["while"], update["conditional"], step["conditional"]) == (0, 0, 0), (
            "the host would decide"
        )
        assert update["GB / least"] < most, name


@pytest.mark.nightly
def test_eight_gpus_exchange_neither_matrices_nor_moments(tmp_path):
    programs = compiled(tmp_path, "--target", "h100:1x8x1", "--only", "ESN|deep")
    assert {"ESN 4,096, update", "deep readout, update"} < programs.keys()
    for name, found in programs.items():
        # W_rec has 1 MB at N = 4,096, what a device has of B's moments 13 MB; the text of an update
        # has less than 0.1 MB.
        assert found["largest gathered MB"] < 0.1, name


def test_bytes_are_those_that_kernels_move():
    """Of a table that a kernel gathers from, and of one that it scatters into, the rows; of a loop,
    once what is in it."""
    import compile_for

    text = """
%gathers (p0: f32[1000,8], p1: s32[4]) -> f32[4,8] {
  %p0 = f32[1000,8]{1,0} parameter(0)
  %p1 = s32[4]{0} parameter(1)
  ROOT %g = f32[4,8]{1,0} gather(%p0, %p1), offset_dims={1}
}
%scatters (p0: f32[1000,8], p1: s32[4], p2: bf16[4,8]) -> f32[1000,8] {
  %p0 = f32[1000,8]{1,0} parameter(0)
  %p1 = s32[4]{0} parameter(1)
  %p2 = bf16[4,8]{1,0} parameter(2)
  %c = f32[4,8]{1,0} convert(%p2)
  ROOT %s = f32[1000,8]{1,0} scatter(%p0, %p1, %c), to_apply=%add
}
%body (t: (f32[2], f32[2])) -> (f32[2], f32[2]) {
  %t = (f32[2]{0}, f32[2]{0}) parameter(0)
  %a = f32[2]{0} get-tuple-element(%t), index=0
  %b = f32[2]{0} copy(%a)
  ROOT %r = (f32[2]{0}, f32[2]{0}) tuple(%a, %b)
}
ENTRY %main (x: f32[1000,8], i: s32[4], u: bf16[4,8], t: (f32[2], f32[2])) -> f32[4,8] {
  %x = f32[1000,8]{1,0} parameter(0)
  %i = s32[4]{0} parameter(1)
  %u = bf16[4,8]{1,0} parameter(2)
  %t = (f32[2]{0}, f32[2]{0}) parameter(3)
  %w = (f32[2]{0}, f32[2]{0}) while(%t), condition=%cond, body=%body
  %y = f32[1000,8]{1,0} fusion(%x, %i, /*index=2*/%u), kind=kInput, calls=%scatters
  ROOT %z = f32[4,8]{1,0} fusion(%y, %i), kind=kLoop, calls=%gathers
}
"""
    scattered, gathered, in_loop = 2 * 128 + 16 + 64, 2 * 128 + 16, 16
    assert compile_for.moved_bytes(text) == scattered + gathered + in_loop
