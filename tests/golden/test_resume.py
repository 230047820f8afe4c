"""Guarantees 2, 3 and 9: exact resume, verified checkpoints, and frozen arrays that are saved
once."""

import warnings

import numpy as np
import pytest

import esnlm
from tests.golden import inside, small
from tests.golden.small import flip


def assert_same(run, expected):
    """Two runs have the same weights, metrics and summary, bit for bit."""
    found, wanted = esnlm.load(run), esnlm.load(expected)
    assert (found.step, found.arrays().keys()) == (wanted.step, wanted.arrays().keys())
    for name, array in wanted.arrays().items():
        assert array.tobytes() == found.arrays()[name].tobytes(), name
    assert small.metrics(run) == small.metrics(expected)
    assert small.summary(run) == small.summary(expected)


@pytest.mark.parametrize("name", small.MODELS)
def test_a_run_that_was_stopped_ends_with_the_bits_of_an_undisturbed_one(
    name, trained, interrupted, stores
):
    run = interrupted(name)
    stopped = small.summary(run)
    assert stopped["status"] == "interrupted" and 20 <= stopped["step"] < small.UPDATES
    resumed = small.copy(run, run.with_name("resumed"))
    frozen = {
        file: (file.read_bytes(), file.stat().st_mtime_ns) for file in files(resumed / "frozen")
    }
    assert small.train(resumed, stores, small.MODELS[name], **small.training_of(name)) == 0
    assert len(small.losses(resumed)) == small.UPDATES
    assert_same(resumed, trained(name))
    assert frozen == {
        file: (file.read_bytes(), file.stat().st_mtime_ns) for file in files(resumed / "frozen")
    }


def test_a_finished_run_is_left_alone(trained, stores):
    run = trained("esn")
    before = {file: file.stat().st_mtime_ns for file in files(run) if file.name != ".lock"}
    assert small.train(run, stores, small.MODELS["esn"]) == 0
    assert before == {file: file.stat().st_mtime_ns for file in before}


# ---- damage ----


def truncate(file):
    file.write_bytes(file.read_bytes()[:-1])


def steps(run):
    return sorted(
        int(folder.name) for folder in (run / "checkpoints").iterdir() if folder.name.isdigit()
    )


def files(folder):
    """The files of a folder, the largest first."""
    return sorted(
        (file for file in folder.rglob("*") if file.is_file()),
        key=lambda file: -file.stat().st_size,
    )


def test_no_damaged_file_of_a_checkpoint_is_restored(trained, tmp_path):
    run = small.copy(trained("esn"), tmp_path / "run")
    older, newest = steps(run)[-2:]
    good, passed_over = esnlm.load(run).arrays(), 0
    of_newest = [file for file in files(run / "checkpoints" / str(newest)) if file.stat().st_size]
    for file, damage in [(of_newest[0], truncate), *((file, flip) for file in of_newest)]:
        content = file.read_bytes()
        damage(file)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            found = esnlm.load(run)
        assert bool(warned) == (found.step == older)
        passed_over += found.step == older
        assert found.step == older or all(
            np.array_equal(good[name], found.arrays()[name]) for name in good
        )
        file.write_bytes(content)
    assert passed_over >= 4


def test_damaged_frozen_arrays_are_refused(trained, tmp_path):
    run = small.copy(trained("esn"), tmp_path / "run")
    good = esnlm.load(run).arrays()
    flip(files(run / "frozen")[0])
    try:
        found = esnlm.load(run).arrays()
    except esnlm.InputError as error:
        assert "frozen" in str(error)
    else:  # drawn again from the seed
        assert all(np.array_equal(good[name], found[name]) for name in good)


def test_a_run_whose_newest_checkpoint_is_damaged_goes_on_from_the_one_before(
    trained, interrupted, stores, tmp_path, capsys
):
    run = small.copy(interrupted("esn"), tmp_path / "esn")
    newest = steps(run)[-1]
    flip(files(run / "checkpoints" / str(newest))[0])
    assert small.train(run, stores, small.MODELS["esn"]) == 0
    warned = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]
    assert any(f"checkpoints/{newest}" in line for line in warned)
    assert_same(run, trained("esn"))


# ---- frozen arrays ----


@pytest.mark.parametrize("name", ["esn", "deep_readout"])
def test_frozen_arrays_are_not_in_the_optimizer(name, trained):
    run = trained(name)
    before, after = esnlm.load(run, untrained=True).arrays(), esnlm.load(run).arrays()
    changed = {key for key in after if not np.array_equal(before[key], after[key])}
    frozen = set(after) - changed
    assert frozen and all("frozen" in key or "reservoir" in key for key in frozen), frozen
    # The checkpoint has what is trained and its two moments, and nothing of the size of W_rec or
    # W_in.
    saved = inside.checkpoint_arrays(run / "checkpoints" / str(small.UPDATES))
    numbers = sum(after[key].size for key in changed)
    assert sum(array.size for array in saved.values() if array.ndim) == 3 * numbers
    assert not any(
        word in key for key in saved for word in ("frozen", "reservoir", "w_rec", "leak")
    ), sorted(saved)
    assert sum(array.size for array in inside.checkpoint_arrays(run / "frozen").values()) > 16 * 4
