"""Programs compiled for devices that are not there: what is counted in their text, and that shapes stand for what a run holds."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, str(ROOT / "benchmarks" / "compile_for.py")]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}


def run(*arguments: object) -> subprocess.CompletedProcess:
    return subprocess.run([*COMMAND, *map(str, arguments)], env=ENVIRONMENT, capture_output=True, text=True)


@pytest.mark.nightly
@pytest.mark.parametrize("mesh", [(), ("--mesh", "2x2")])
def test_every_hot_program_compiles(tmp_path, mesh):
    """For a CPU, which needs no plugin. The settings make all models small."""
    small = {"ESN 4,096": ("reservoir.state_size=64", "readout.rank=8"), "LSTM": ("width=16",)}
    for name, settings in small.items():
        given = [
            "--only",
            name,
            "--vocabulary",
            300,
            "--out",
            tmp_path,
            "--set",
            *(f"model.{each}" for each in settings),
        ]
        done = run("--target", "cpu", *mesh, *given)
        assert done.returncode == 0, done.stderr
        page = (tmp_path / "compile_for.cpu.md").read_text()
        assert f"| {name}, update |" in page and f"| {name}, scoring |" in page and "does not compile" not in page
        assert ("all-" in page) == bool(mesh)


def test_kernels_loops_and_exchanges_are_counted(monkeypatch):
    text = """
  %fused = f32[8,4]{1,0:T(8,128)} fusion(%a), kind=kLoop, calls=%computation
  ROOT tuple.3 = (f32[8]{0}, /*index=1*/ s32[]) custom-call(%fused), custom_call_target="gemm"
  %all-gather-start.1 = (f32[1], f32[4]) all-gather-start(%fused), dimensions={0}
  %done = f32[4] all-gather-done(%all-gather-start.1)
  %loop = (s32[], f32[8]) while(%start), condition=%c, body=%b
"""
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")  # which the module sets; both are put back
    monkeypatch.setenv("TPU_SKIP_MDS_QUERY", "1")
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    compile_for = importlib.import_module("compile_for")
    found = compile_for.count(text)
    assert found == {"kernels": 2, "while": 1, "conditional": 0, "exchanges": "1 all-gather"}
