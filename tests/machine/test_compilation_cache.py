"""Compiled programs are kept where the user's caches lie, apart for each kind of machine, and never
change a number."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import esnlm
from esnlm.machine import compilation_cache
from esnlm.runs.directory import RunDirectory

ROOT = Path(__file__).parents[2]


def test_the_folder_is_the_users_choice(monkeypatch):
    for name in ("ESNLM_COMPILATION_CACHE", "JAX_COMPILATION_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/someone")
    machine = compilation_cache.machine()
    assert compilation_cache.choose_folder() == Path("/home/someone/.cache/esnlm/compiled", machine)
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert compilation_cache.choose_folder() == Path("/cache/esnlm/compiled", machine)
    monkeypatch.setenv("ESNLM_COMPILATION_CACHE", "/other")
    assert compilation_cache.choose_folder() == Path("/other", machine)
    monkeypatch.setenv("ESNLM_COMPILATION_CACHE", "off")
    assert compilation_cache.choose_folder() is None
    monkeypatch.delenv("ESNLM_COMPILATION_CACHE")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "/jax")
    assert compilation_cache.choose_folder() is None


def test_machines_whose_code_may_differ_have_folders_of_their_own(monkeypatch):
    names = {compilation_cache.machine(), compilation_cache.machine()}
    assert len(names) == 1, "the clock of a processor and the like do not count"
    monkeypatch.setattr(compilation_cache, "_processor", lambda: "flags\t: sse avx512f")
    names.add(compilation_cache.machine())
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3, 4}, raising=False)
    names.add(compilation_cache.machine())
    monkeypatch.setattr(compilation_cache.importlib.metadata, "version", lambda _: "0.99")
    names.add(compilation_cache.machine())
    assert len(names) == 4


SMALL = """
data: {kind: grammar, sentences: 300, validation_sentences: 40, pairs: 4}
model: {reservoir: {state_size: 48, mean_degree: 6}, readout: {rank: 8}}
training: {log_every: 2}
"""


def train(
    folder: Path, name: str, cache: Path | str, *words: str
) -> tuple[dict[str, np.ndarray], list[dict], str]:
    """The arrays, the metrics and what was said of a run in a process of its own."""
    run = folder / name
    command = [
        sys.executable,
        "train.py",
        "--config",
        str(folder / "small.yaml"),
        "--run",
        str(run),
        *words,
    ]
    environment = os.environ | {"ESNLM_COMPILATION_CACHE": str(cache)}
    # A fast machine compiles these programs in less than SHORTEST_SECONDS, and would keep none.
    environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in RunDirectory(run).metrics.read_text().splitlines()]
    for line in lines:
        for measured in ("tokens_per_second", "peak_memory_bytes"):
            line.pop(measured, None)
    return esnlm.load(run).arrays(), lines, done.stderr


@pytest.mark.nightly
def test_the_update_is_compiled_once_and_a_cold_and_a_warm_cache_end_in_the_same_bits(tmp_path):
    (tmp_path / "small.yaml").write_text(SMALL)
    cache = tmp_path / "cache"
    ends = {"none": train(tmp_path, "none", "off"), "cold": train(tmp_path, "cold", cache)}

    kept = {path: path.read_bytes() for path in cache.glob("*/jit_update*-cache")}
    used = {path: path.read_bytes() for path in cache.glob("*/jit_update*-atime")}
    assert kept and len(used) == len(kept)
    ends["warm"] = train(tmp_path, "warm", cache)
    assert all(path.read_bytes() != before for path, before in used.items()), "they were read"
    train(
        tmp_path,
        "rates",
        cache,
        "--training.learning_rate",
        "0.01",
        "--training.schedule",
        "cosine",
    )
    assert {path: path.read_bytes() for path in cache.glob("*/jit_update*-cache")} == kept, (
        "none was compiled anew"
    )

    for path in cache.glob("*/*-cache"):
        path.write_bytes(path.read_bytes()[:-20])
    ends["damaged"] = train(tmp_path, "damaged", cache)

    arrays, lines, _ = ends["none"]
    for other, other_lines, said in ends.values():
        assert all(np.array_equal(arrays[name], other[name]) for name in arrays | other)
        assert other_lines == lines
        assert "Traceback" not in said
