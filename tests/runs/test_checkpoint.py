"""Nothing damaged is ever loaded in silence, and a killed process leaves whole checkpoints only."""

import os
import random
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import jax
import ml_dtypes
import numpy as np
import pytest

from esnlm.base.errors import InputError
from esnlm.runs.checkpoint import (
    all_steps,
    digest,
    latest_step,
    prune,
    restore,
    restore_latest,
    save,
    verify,
)


def tree(seed: int = 0) -> dict:
    rng = np.random.default_rng(seed)
    readout = {
        "a": rng.standard_normal((7, 3), dtype=np.float32),  # (V, r)
        "b": rng.standard_normal((3, 5), dtype=np.float32),  # (r, N)
        "bias": np.zeros(7, np.float32),  # (V,)
    }
    moments = {"readout": {name: array**2 for name, array in readout.items()}}
    return {
        "params": {"readout": readout},
        "optimizer": {"count": np.array(seed, np.int32), "nu": moments},
    }


def assert_same(restored, saved) -> None:
    """The same names, dtypes, shapes and bytes (so that nan, -0.0 and bfloat16 count too)."""
    assert jax.tree.structure(restored) == jax.tree.structure(saved)
    for ours, theirs in zip(
        jax.tree.leaves(restored), map(np.asarray, jax.tree.leaves(saved)), strict=True
    ):
        assert type(ours) is np.ndarray
        assert (ours.dtype, ours.shape, ours.tobytes()) == (
            theirs.dtype,
            theirs.shape,
            theirs.tobytes(),
        )


def files_of(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def leftovers(folder: Path) -> list[Path]:
    return list(folder.rglob(".*"))


@pytest.fixture(scope="module")
def pristine(tmp_path_factory) -> Path:
    """Steps 100 and 200, for tests that copy them."""
    checkpoints = tmp_path_factory.mktemp("pristine") / "checkpoints"
    save(checkpoints / "100", tree(100), {"step": 100})
    save(checkpoints / "200", tree(200), {"step": 200})
    return checkpoints


@pytest.fixture
def checkpoints(pristine, tmp_path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "checkpoints"))


# What is saved comes back.


def test_round_trip(tmp_path):
    arrays, metadata = (
        tree(3),
        {"step": 3, "data": {"epoch": 0, "position": 96}, "loss": 10.824912345678901},
    )
    save(tmp_path / "checkpoints" / "3", arrays, metadata)
    restored, remembered = restore(tmp_path / "checkpoints" / "3")
    assert_same(restored, arrays)
    assert remembered == metadata
    assert verify(tmp_path / "checkpoints" / "3") is None
    assert leftovers(tmp_path) == []


def test_every_dtype_and_shape_comes_back_exactly(tmp_path):
    names = [
        "bool",
        "int8",
        "uint8",
        "int32",
        "uint32",
        "int64",
        "uint64",
        "float16",
        "float32",
        "float64",
        "complex64",
    ]
    dtypes = [np.dtype(name) for name in (*names, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn)]
    shapes = [(), (1,), (5,), (2, 3), (2, 1, 4), (0,), (0, 2), (3, 0, 2)]
    rng = np.random.default_rng(0)
    arrays = {
        dtype.name: {f"shape {shape}": rng.integers(0, 2, shape).astype(dtype) for shape in shapes}
        for dtype in dtypes
    }
    arrays["special"] = {
        "floats": np.array([np.nan, -0.0, np.inf, 1e-45], np.float32),
        "transposed": np.eye(3, 4).T,
    }
    save(tmp_path / "all", arrays, {})
    assert_same(restore(tmp_path / "all")[0], arrays)


def test_the_digest_tells_names_dtypes_and_shapes_apart():
    zeros = np.zeros((2, 3), np.float32)
    others = [{"b": zeros}, {"a": zeros.astype(np.int32)}, {"a": zeros.T}, {"a": zeros + 1}]
    assert (
        digest({"a": zeros})
        == digest({"a": zeros.copy()})
        not in [digest(other) for other in others]
    )


# Damage.


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    position = random.Random(path.name).randrange(8 * len(content))
    content[position // 8] ^= 1 << position % 8
    path.write_bytes(content)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize("damage", [flip_a_bit, truncate, os.remove])
def test_damage_to_any_file_is_named_and_the_step_before_is_used(pristine, tmp_path, damage):
    names = files_of(pristine / "200")
    assert {"manifest.json", "metadata.json", "arrays/_METADATA"} < set(names) and len(names) > 8
    for name in names:
        checkpoints = Path(shutil.copytree(pristine, tmp_path / "checkpoints"))
        damage(checkpoints / "200" / name)
        problem = f"{name}: " + (
            "missing" if damage is os.remove else "changed since it was written"
        )
        assert verify(checkpoints / "200") == problem
        with pytest.raises(InputError, match=f"^{checkpoints}/200: damaged checkpoint: {problem}"):
            restore(checkpoints / "200")
        with pytest.warns(
            UserWarning, match=f"^{checkpoints}/200: damaged checkpoint, not used: {problem}"
        ):
            step, arrays, metadata = restore_latest(checkpoints)
        assert (step, metadata) == (100, {"step": 100})
        assert_same(arrays, tree(100))
        shutil.rmtree(checkpoints)


def test_an_empty_folder_and_a_missing_one_are_no_checkpoints(checkpoints):
    (checkpoints / "300").mkdir()
    assert (
        verify(checkpoints / "300") == "manifest.json: missing"
        and verify(checkpoints / "600") == "no such folder"
    )
    lines = []
    assert latest_step(checkpoints, warn=lines.append) == 200
    assert lines == [f"{checkpoints}/300: damaged checkpoint, not used: manifest.json: missing"]


def test_nothing_good_left(checkpoints):
    (checkpoints / "100" / "metadata.json").unlink()
    truncate(checkpoints / "200" / "metadata.json")
    for newest in (latest_step, restore_latest):
        with pytest.raises(InputError, match=f"^{checkpoints}: no intact checkpoint"):
            newest(checkpoints, lambda line: None)


# Steps.


def test_prune_keeps_the_newest_and_the_permanent(tmp_path):
    checkpoints = tmp_path / "checkpoints"
    for step in (9, 10, 20, 100, 200):
        save(checkpoints / str(step), tree(step), {"permanent": step == 10})
    prune(checkpoints)
    assert all_steps(checkpoints) == [10, 100, 200]
    prune(checkpoints, keep=1)
    assert all_steps(checkpoints) == [10, 200]
    assert restore(checkpoints / "10")[1] == {"permanent": True}
    assert leftovers(tmp_path) == []


def test_prune_never_counts_a_damaged_step(pristine, tmp_path):
    checkpoints = tmp_path / "checkpoints"
    for step in (1, 2, 3):
        shutil.copytree(pristine / "100", checkpoints / str(step))
    for step in (4, 5):
        shutil.copytree(pristine / "200", checkpoints / str(step))
        flip_a_bit(checkpoints / str(step) / "arrays" / "_METADATA")
    prune(checkpoints, keep=2)
    assert all_steps(checkpoints) == [2, 3, 4, 5]
    assert latest_step(checkpoints, warn=lambda line: None) == 3


# Saving where something is already.


def test_an_intact_checkpoint_is_not_overwritten(checkpoints):
    with pytest.raises(InputError, match=f"^{checkpoints}/200: exists"):
        save(checkpoints / "200", tree(1), {})
    assert_same(restore(checkpoints / "200")[0], tree(200))


def test_a_damaged_checkpoint_is_replaced(checkpoints):
    truncate(checkpoints / "200" / "manifest.json")
    save(checkpoints / "200", tree(1), {"again": True})
    assert_same(restore(checkpoints / "200")[0], tree(1))
    assert leftovers(checkpoints) == []


# Crashes, and disks that refuse.


def run_python(script: str, *arguments, **environment) -> str:
    """What the script prints; any warning in it is an error, and stderr must be empty."""
    process = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(script), *map(str, arguments)],
        env=os.environ | {"JAX_PLATFORMS": "cpu"} | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (process.returncode, process.stderr) == (0, "")
    return process.stdout


def test_killed_while_saving(tmp_path):
    """Five processes save and prune in a loop and are killed at a random moment: at any line of
    save or prune."""
    acknowledged = run_python(
        """
        import itertools, os, random, signal, sys, time, warnings
        import numpy as np
        from esnlm.runs.checkpoint import prune, save

        def save_for_ever(folder, acknowledge):
            for step in itertools.count(1):
                save(f"{folder}/{step}", {str(i): np.full((50, 50), step + i) for i in range(8)}, {"step": step})
                os.write(acknowledge, b".")
                prune(folder)

        warnings.simplefilter("ignore")  # JAX warns of forks; here it has started no thread yet
        moment = random.Random(0)
        for run in "01234":
            acknowledged, acknowledge = os.pipe()
            child = os.fork()
            if not child:
                try:
                    save_for_ever(f"{sys.argv[1]}/{run}", acknowledge)
                finally:
                    os._exit(1)
            os.close(acknowledge)
            first = os.read(acknowledged, 1)
            time.sleep(moment.uniform(0, 0.3))
            os.kill(child, signal.SIGKILL)
            assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
            print(len(first + os.read(acknowledged, 10_000)))
        """,
        tmp_path,
    )
    for run, saved in enumerate(map(int, acknowledged.split())):
        checkpoints = tmp_path / str(run)
        # without a warning, which would be an error
        step, arrays, metadata = restore_latest(checkpoints)
        assert step in (saved, saved + 1)
        assert metadata == {"step": step}
        assert_same(arrays, {str(i): np.full((50, 50), step + i) for i in range(8)})
        assert all(verify(checkpoints / str(step)) is None for step in all_steps(checkpoints))
        save(checkpoints / str(step + 1), tree(), {})
        assert leftovers(checkpoints) == []
    assert run == 4


def test_a_write_that_fails_half_way(checkpoints, monkeypatch):
    def fail(self, folder, arrays):
        folder.mkdir()
        raise ValueError("RESOURCE_EXHAUSTED: Failed writing\nat length [os_error_code='28']")

    monkeypatch.setattr("orbax.checkpoint.Checkpointer.save", fail)
    with pytest.raises(
        InputError, match=f"^{checkpoints}/300: checkpoint not saved: RESOURCE_EXHAUSTED"
    ):
        save(checkpoints / "300", tree(), {})
    assert all_steps(checkpoints) == [100, 200] and latest_step(checkpoints) == 200
    assert leftovers(checkpoints) == []
