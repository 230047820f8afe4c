"""Commands as processes of their own: where their output cannot go, and where the system or the
environment is against them."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import esnlm
from esnlm.machine.process import exit_with
from esnlm.runs import checkpoint
from esnlm.training import config_io
from esnlm.training.run import train_run

ROOT = Path(__file__).parents[2]
SMALL = """run: new
data: {kind: grammar, sentences: 40, validation_sentences: 10, pairs: 2}
model: {reservoir: {state_size: 16, mean_degree: 4}, readout: {rank: 4}}
"""


PRINTS = """
import sys
from esnlm.machine.process import exit_with
sys.exit(exit_with(lambda: [print("result", i) for i in range(9999)] and 0))
"""


def shell(line: str, folder: Path, **environment: str) -> tuple[int, str, str]:
    """Status, stdout and stderr of a line of bash, in which $PY is this Python; a pipe has the
    status of what is not 0."""
    variables = os.environ | {"PYTHONPATH": str(ROOT), "PY": sys.executable} | environment
    words = ["bash", "-c", f"set -o pipefail; {line}"]
    done = subprocess.run(
        words, cwd=folder, env=variables, capture_output=True, text=True, timeout=300
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def folder(tmp_path) -> Path:
    """A folder with small.yaml."""
    (tmp_path / "small.yaml").write_text(SMALL)
    return tmp_path


def test_a_reader_that_has_seen_enough_is_no_error(folder):
    """The work is done all the same, and Python complains of nothing when it exits."""
    assert shell('$PY -c "$PRINTS" | head -1', folder, PRINTS=PRINTS) == (0, "result 0\n", "")


def test_a_command_prints_text_in_any_encoding(folder):
    prints = PRINTS.replace('"result", i', '"schl\\u00e4ft"').replace("9999", "2")
    status, out, err = shell('$PY -c "$PRINTS"', folder, PRINTS=prints, PYTHONIOENCODING="ascii")
    assert (status, out) == (0, "schl\\u00e4ft\n" * 2) and err.count("warning: ") == 1


def test_a_command_has_threads_for_the_devices_that_it_simulates(folder):
    prints = (
        PRINTS.replace('"result", i', 'os.environ["PJRT_NPROC"]')
        .replace("9999", "1")
        .replace("sys\n", "os, sys\n")
    )
    flags = "--xla_force_host_platform_device_count=300"
    assert shell('$PY -c "$PRINTS"', folder, PRINTS=prints, XLA_FLAGS=flags) == (0, "600\n", "")


@pytest.mark.nightly
def test_a_training_whose_results_nobody_reads_is_finished_by_the_same_command(folder):
    command = f"$PY {ROOT / 'train.py'} --config small.yaml 2>/dev/null"
    shell(f"{command} | head -1", folder)
    assert checkpoint.verify(folder / "new" / "checkpoints" / "2") is None
    assert shell(f"{command} >/dev/null", folder)[0] == 0
    assert (folder / "new" / "summary.json").exists()


def test_results_that_a_full_disk_does_not_take_are_an_error(folder):
    status, _, errors = shell('$PY -c "$PRINTS" >/dev/full', folder, PRINTS=PRINTS)
    assert status == 2 and errors.startswith("error: ") and "No space left on device" in errors


def test_a_file_error_is_one_line(tmp_path, capsys):
    long = tmp_path / ("a" * 256)
    assert exit_with(long.stat) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {long}: ") and error.count("\n") == 1


def test_ctrl_c_is_130(capsys):
    def interrupted():
        raise KeyboardInterrupt

    assert exit_with(interrupted) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_a_device_that_is_not_here_is_one_line_that_says_which_are(folder):
    status, out, errors = shell(
        f"$PY {ROOT / 'train.py'} --config small.yaml", folder, JAX_PLATFORMS="abacus"
    )
    assert (status, out) == (2, "") and "Traceback" not in errors
    assert errors.splitlines()[-1].startswith("error: JAX_PLATFORMS is abacus") and "cpu" in errors
    assert not (folder / "new" / "checkpoints").exists()


@pytest.mark.parametrize(
    "settings",
    [[], pytest.param(["--training.kind", "ridge"], marks=pytest.mark.nightly)],
    ids=["adamw", "ridge"],
)
def test_a_caller_in_float64_gets_the_same_bits(settings, folder, monkeypatch):
    monkeypatch.chdir(folder)
    sentences = ["The cats sleep.", "A dog sleeps."]
    found = {}
    for wide in (False, True):
        with jax.enable_x64(wide):
            assert train_run(config_io.read("small.yaml", ["--run", f"run{wide}", *settings])) == 0
            run = esnlm.load(f"run{wide}")
            scores = [
                run.log_probs(sentences),
                *run.token_log_probs(sentences),
                *run.states(sentences),
            ]
            found[wide] = [*run.arrays().values(), *scores, run.generate("The", count=2, length=5)]
            assert jax.numpy.ones(1).dtype == (np.float64 if wide else np.float32)
    for narrow, wide in zip(found[False], found[True], strict=True):
        np.testing.assert_array_equal(narrow, wide)
