"""Nothing damaged is ever loaded in silence, and a killed process leaves whole checkpoints only."""

import logging
import os
import random
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from esnlm.errors import InputError
from esnlm.runs.checkpoint import (
    all_steps,
    latest_step,
    metadata,
    prune,
    require_free_space,
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
    return {"params": {"readout": readout}, "optimizer": {"count": np.array(seed, np.int32), "nu": moments}}


def assert_same(restored, saved) -> None:
    """The same names, dtypes, shapes and bytes (so that nan, -0.0 and bfloat16 count too)."""
    assert jax.tree.structure(restored) == jax.tree.structure(saved)
    for ours, theirs in zip(jax.tree.leaves(restored), map(np.asarray, jax.tree.leaves(saved)), strict=True):
        assert type(ours) is np.ndarray
        assert (ours.dtype, ours.shape, ours.tobytes()) == (theirs.dtype, theirs.shape, theirs.tobytes())


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
    arrays, metadata = tree(3), {"step": 3, "data": {"epoch": 0, "position": 96}, "loss": 10.824912345678901}
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
        dtype.name: {f"shape {shape}": rng.integers(0, 2, shape).astype(dtype) for shape in shapes} for dtype in dtypes
    }
    arrays["special"] = {"floats": np.array([np.nan, -0.0, np.inf, 1e-45], np.float32), "transposed": np.eye(3, 4).T}
    save(tmp_path / "all", arrays, {})
    assert_same(restore(tmp_path / "all")[0], arrays)


def test_jax_arrays_come_back_as_numpy(tmp_path):
    arrays = {
        "w": jnp.arange(6, dtype=jnp.bfloat16).reshape(2, 3),
        "key": jax.random.key_data(jax.random.key(1)),
        "count": jnp.uint32(7),
        "none": jnp.zeros((0, 3)),
    }
    save(tmp_path / "jax", arrays, {})
    assert_same(restore(tmp_path / "jax")[0], arrays)


def test_saved_on_four_devices_restored_on_one(tmp_path):
    run_python(
        """
        import jax, jax.numpy as jnp, sys
        from esnlm.runs.checkpoint import save
        assert len(jax.devices()) == 4
        sharding = jax.sharding.NamedSharding(jax.make_mesh((4,), ("v",)), jax.sharding.PartitionSpec("v"))
        save(sys.argv[1], {"a": jax.device_put(jnp.arange(24.).reshape(8, 3), sharding)}, {})
        """,
        tmp_path / "sharded",
        XLA_FLAGS="--xla_force_host_platform_device_count=4",
    )
    assert_same(restore(tmp_path / "sharded")[0], {"a": np.arange(24, dtype=np.float32).reshape(8, 3)})


def test_a_moved_run_still_loads(checkpoints, tmp_path):
    moved = checkpoints.rename(tmp_path / "elsewhere")
    assert_same(restore(moved / "200")[0], tree(200))


def test_saving_is_silent_and_leaves_no_thread(tmp_path, caplog, capfd):
    before = set(threading.enumerate())
    with caplog.at_level(logging.DEBUG):
        save(tmp_path / "checkpoints" / "1", tree(), {})
        restore(tmp_path / "checkpoints" / "1")
    assert [record for record in caplog.records if record.name != "asyncio"] == []
    assert capfd.readouterr() == ("", "")
    deadline = time.monotonic() + 5
    while set(threading.enumerate()) - before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert set(threading.enumerate()) - before == set()


# Damage.


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    position = random.Random(path.name).randrange(8 * len(content))
    content[position // 8] ^= 1 << position % 8
    path.write_bytes(content)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


DAMAGE = {
    flip_a_bit: "{name}: changed since it was written",
    truncate: "{name}: changed since it was written",
    os.remove: "{name}: missing",
}


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda function: function.__name__)
def test_damage_to_any_file_is_named_and_the_step_before_is_used(pristine, tmp_path, damage):
    names = files_of(pristine / "200")
    assert {"manifest.json", "metadata.json", "arrays/_METADATA"} < set(names) and len(names) > 8
    for name in names:
        checkpoints = Path(shutil.copytree(pristine, tmp_path / "checkpoints"))
        size = (checkpoints / "200" / name).stat().st_size
        damage(checkpoints / "200" / name)

        problem = DAMAGE[damage].format(name=name, size=size, half=size // 2)
        if name == "manifest.json" and damage is truncate:
            problem = "manifest.json: changed since it was written"
        assert verify(checkpoints / "200") == problem
        with pytest.raises(InputError) as caught:
            restore(checkpoints / "200")
        assert str(caught.value) == (
            f"{checkpoints}/200: damaged checkpoint: {problem}; use another step or a copy of this one"
        )
        with pytest.warns(UserWarning) as warned:
            step, arrays, metadata = restore_latest(checkpoints)
        assert [str(warning.message) for warning in warned] == [
            f"{checkpoints}/200: damaged checkpoint, not used: {problem}"
        ]
        assert (step, metadata) == (100, {"step": 100})
        assert_same(arrays, tree(100))
        shutil.rmtree(checkpoints)


def test_flipped_bits_all_over_the_manifest_are_noticed(checkpoints):
    manifest = checkpoints / "200" / "manifest.json"
    content = manifest.read_bytes()
    for position in range(0, len(content), 5):
        flipped = content[position] ^ (1 << position % 8)
        manifest.write_bytes(content[:position] + bytes([flipped]) + content[position + 1 :])
        assert verify(checkpoints / "200") == "manifest.json: changed since it was written", position
    manifest.write_bytes(content + b"\n")
    assert verify(checkpoints / "200") == "manifest.json: changed since it was written"
    manifest.write_bytes(content)
    assert verify(checkpoints / "200") is None


def test_what_macos_leaves_in_a_folder_that_is_looked_at_is_no_damage(checkpoints):
    for name in (".DS_Store", "arrays/.DS_Store", "arrays/._d"):
        (checkpoints / "200" / name).write_text("of Finder")
    assert verify(checkpoints / "200") is None


def test_metadata_that_is_damaged_is_one_line(checkpoints):
    (checkpoints / "200" / "metadata.json").write_text('{"step"')
    with pytest.raises(InputError, match=r"200/metadata.json: damaged; restore it from a copy of the run$"):
        metadata(checkpoints / "200")


def test_an_empty_folder_and_a_missing_one_are_no_checkpoints(checkpoints):
    (checkpoints / "300").mkdir()
    assert verify(checkpoints / "300") == "manifest.json: missing" and verify(checkpoints / "600") == "no such folder"
    lines = []
    assert latest_step(checkpoints, warn=lines.append) == 200
    assert lines == [f"{checkpoints}/300: damaged checkpoint, not used: manifest.json: missing"]


def test_nothing_good_left(checkpoints):
    (checkpoints / "100" / "metadata.json").unlink()
    truncate(checkpoints / "200" / "metadata.json")
    lines = []
    for newest in (latest_step, restore_latest):
        with pytest.raises(InputError, match=f"^{checkpoints}: no intact checkpoint; restore one, or delete"):
            newest(checkpoints, lines.append)
    assert len(lines) == 4 and lines[0].endswith(
        "/200: damaged checkpoint, not used: metadata.json: changed since it was written"
    )


# Steps.


def test_steps_ignores_other_names(checkpoints):
    for name in (".300.partial-00000000", "0100", "best", "12.orbax", "-3", "٣"):
        (checkpoints / name).mkdir()
    (checkpoints / "0").mkdir()
    (checkpoints / "7").write_text("a file")
    assert all_steps(checkpoints) == [0, 100, 200]


def test_no_step_yet(tmp_path):
    assert all_steps(tmp_path / "none") == []
    assert latest_step(tmp_path / "none") is None
    assert restore_latest(tmp_path / "none") is None


def test_prune_keeps_the_newest_and_the_permanent(tmp_path):
    checkpoints = tmp_path / "checkpoints"
    for step in (9, 10, 20, 100, 200):
        save(checkpoints / str(step), tree(step), {"permanent": step == 10})
    prune(checkpoints)
    assert all_steps(checkpoints) == [10, 100, 200]
    prune(checkpoints, keep=3)
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
    with pytest.raises(InputError) as caught:
        save(checkpoints / "200", tree(1), {})
    assert str(caught.value) == (
        f"{checkpoints}/200: exists already; delete it or choose another folder for this checkpoint"
    )
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
    """Five processes save and prune in a loop and are killed at a random moment: at any line of save or prune."""
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
        step, arrays, metadata = restore_latest(checkpoints)  # without a warning, which would be an error
        assert step in (saved, saved + 1)
        assert metadata == {"step": step}
        assert_same(arrays, {str(i): np.full((50, 50), step + i) for i in range(8)})
        assert all(verify(checkpoints / str(step)) is None for step in all_steps(checkpoints))
        save(checkpoints / str(step + 1), tree(), {})
        assert leftovers(checkpoints) == []
    assert run == 4


@pytest.mark.parametrize(
    "function",
    [
        "sealed_folder.Manifest.add",
        "atomic.NewFolder.commit",
        "atomic.Path.rename",
    ],
)
def test_interrupted_while_saving(checkpoints, monkeypatch, function):
    """Ctrl-C at each stage: the damaged step 200 is still there, or gone, or the new one is; never a half of it."""

    def interrupt(*arguments, **options):
        monkeypatch.undo()
        raise KeyboardInterrupt

    truncate(checkpoints / "200" / "manifest.json")
    monkeypatch.setattr(f"esnlm.io.{function}", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save(checkpoints / "200", tree(1), {})
    step, arrays, _ = restore_latest(checkpoints, warn=lambda line: None)
    assert_same(arrays, tree(1 if step == 200 else step))
    save(checkpoints / "300", tree(300), {})
    assert leftovers(checkpoints) == []


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ("RESOURCE_EXHAUSTED: Failed writing\nat length [os_error_code='28']", "RESOURCE_EXHAUSTED: Failed writing"),
        ("INTERNAL: something else\nat length", "INTERNAL: something else"),
    ],
)
def test_a_write_that_fails_half_way(checkpoints, monkeypatch, told, reason):
    def fail(self, folder, arrays):
        folder.mkdir()
        raise ValueError(told)

    monkeypatch.setattr("orbax.checkpoint.Checkpointer.save", fail)
    with pytest.raises(InputError) as caught:
        save(checkpoints / "300", tree(), {})
    assert str(caught.value).startswith(f"{checkpoints}/300: checkpoint not saved: {reason}; 0.0 MB needed, ")
    assert all_steps(checkpoints) == [100, 200] and latest_step(checkpoints) == 200
    assert leftovers(checkpoints) == []


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "notes").write_text("words")
    with pytest.raises(InputError) as caught:
        save(tmp_path / "notes" / "checkpoints" / "1", tree(), {})
    assert str(caught.value).startswith(f"{tmp_path}/notes/checkpoints/1: checkpoint not saved: Not a directory; ")
    assert files_of(tmp_path) == ["notes"]


def test_a_full_disk_is_noticed_before_anything_is_written(checkpoints, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9 - 100, 100))
    with pytest.raises(InputError) as caught:
        save(checkpoints / "300", tree(), {})
    assert str(caught.value).startswith(f"{checkpoints}/300: 0.0 MB of disk needed, 0.0 MB free; free some")
    assert all_steps(checkpoints) == [100, 200] and leftovers(checkpoints) == []


def test_require_free_space_asks_the_real_disk(tmp_path):
    require_free_space(tmp_path / "not" / "yet" / "there", 1)
    with pytest.raises(InputError, match="runs: 1,000,000,000,000.0 MB of disk needed, .* MB free; free some"):
        require_free_space(tmp_path / "runs", 10**18)
