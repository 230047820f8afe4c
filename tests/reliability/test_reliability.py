"""A training that is killed anywhere, and a run of which any file is damaged: nothing is lost, and
nothing wrong is used."""

import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import esnlm
from tests.golden import small
from tests.golden.small import flip
from tests.golden.test_resume import assert_same

ROOT = Path(__file__).resolve().parents[2]


def saved(run):
    """The names of checkpoints, and of those that are being saved."""
    return {path.name for path in (run / "checkpoints").glob("*")}


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(2))
def test_a_training_that_is_killed_again_and_again_ends_with_the_bits_of_an_undisturbed_one(
    seed, trained, stores, tmp_path
):
    """SIGKILL at a random moment after the beginning of each save, and the same command again."""
    run, rng, kills, status = tmp_path / "esn", random.Random(seed), 0, None
    config = small.write_config(run, stores, small.MODELS["esn"])
    command = [sys.executable, str(ROOT / "train.py"), "--config", str(config), "--quiet"]
    while status != 0:
        before = saved(run)
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        while saved(run) <= before and process.poll() is None:
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.1))
        process.kill()
        _, said = process.communicate()
        status = process.returncode
        assert status in (0, -signal.SIGKILL), said
        kills += status != 0
    print(f"{kills} kills")
    assert kills > 1
    assert_same(run, trained("esn"))


@pytest.fixture
def disk(tmp_path):
    """A function that makes the disk at the path it returns hold that many bytes, also again."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def resize(size: int) -> Path:
        remount = ["-o", f"remount,size={size}"] if folder.is_mount() else ["-o", f"size={size}"]
        command = ["mount", "-t", "tmpfs", *remount, "tmpfs", str(folder)]
        if subprocess.run(command, capture_output=True).returncode:
            pytest.skip("needs the right to mount a file system")
        return folder

    yield resize
    if folder.is_mount():
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.nightly
@pytest.mark.parametrize("share", [0.05, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95])
def test_a_training_on_a_full_disk_is_one_line_and_goes_on_with_the_same_bits(
    share, disk, trained, stores
):
    """The disk holds a share of the finished run, and later enough. Threads of TensorStore may
    print tracebacks before the line."""
    blocks = sum(path.stat().st_blocks for path in trained("esn").rglob("*"))
    run = disk(int(share * 512 * blocks)) / "esn"
    config = small.write_config(trained("esn").parent / "esn", stores, small.MODELS["esn"])
    command = [sys.executable, str(ROOT / "train.py"), "--config", str(config), "--quiet"]
    command += ["--run", str(run)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: "), done.stderr
    disk(2**26)
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert_same(run, trained("esn"))


def halve(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def results(run):
    """What a run says of itself and of text, bit for bit."""
    loaded = esnlm.load(run)
    arrays = {name: array.tobytes() for name, array in loaded.arrays().items()}
    return (
        arrays,
        loaded.step,
        loaded.log_probs(["The cat sleeps."]).tolist(),
        small.metrics(run),
        small.summary(run),
    )


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("damage", [flip, halve, Path.unlink])
def test_damage_to_any_file_of_a_run_is_named_or_changes_nothing(
    damage, trained, stores, tmp_path, capsys
):
    """The file, or of a checkpoint and of frozen arrays the folder. One that is not needed may be
    passed over in silence."""
    original, run = trained("esn"), tmp_path / "esn"
    expected = results(original)
    files = sorted(path for path in original.rglob("*") if path.is_file() and path.stat().st_size)
    for file in files:
        small.copy(original, run)
        parts = file.relative_to(original).parts
        damage(run / file.relative_to(original))
        capsys.readouterr()
        status = small.train(run, stores, small.MODELS["esn"])
        said = capsys.readouterr().err
        if not (named := parts[0] in said):
            assert status == 0, f"{file}: {said}"
            try:
                assert results(run) == expected, (
                    f"{file}: nothing is said, and the results are others"
                )
            except esnlm.InputError as error:
                named = parts[0] in str(error)
                assert named, f"{file}: {error}"
        else:
            assert status in (0, 2) and (status == 0 or said.count("error: ") == 1), (
                f"{file}: {said}"
            )
        shutil.rmtree(run)
    print(f"{len(files)} files")
