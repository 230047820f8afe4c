"""Commands as processes of their own: where their output cannot go, and where the system or the environment is against them."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import esnlm
from esnlm import config_io
from esnlm.errors import InputError
from esnlm.io.console import Progress, say
from esnlm.process import FEWEST_FILES, OUTPUT_LOST, exit_with
from esnlm.runs import checkpoint
from esnlm.workflows.train import train_run

ROOT = Path(__file__).parents[1]
SMALL = """run: new
data: {kind: grammar, sentences: 40, validation_sentences: 10, pairs: 2}
model: {reservoir: {state_size: 16, mean_degree: 4}, readout: {rank: 4}}
"""
# A command that says something on both streams, in Python's own ways too, and does its work in the end.
SPEAKS = """
import logging, pathlib, sys, warnings
from esnlm.process import exit_with
from esnlm.io.console import Progress, say
def main():
    bar = Progress(2)
    for i in range(1000):
        print("result", i)
        say("a line")
        warnings.warn("a warning")
        logging.getLogger("absl").warning("logged")
        bar.show(1, "half", final=True)
    pathlib.Path("done").touch()
sys.exit(exit_with(main))
"""


def shell(line: str, folder: Path, **environment: str) -> tuple[int, str, str]:
    """Status, stdout and stderr of a line of bash, in which $PY is this Python; a pipe has the status of what is not 0."""
    variables = os.environ | {"PYTHONPATH": str(ROOT), "PY": sys.executable, "SPEAKS": SPEAKS} | environment
    words = ["bash", "-c", f"set -o pipefail; {line}"]
    done = subprocess.run(words, cwd=folder, env=variables, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with small.yaml, a finished run, and text.txt."""
    here = tmp_path_factory.mktemp("process")
    (here / "small.yaml").write_text(SMALL)
    (here / "text.txt").write_text("The cats sleep.\nThe café sleeps.\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        assert train_run(config_io.read("small.yaml", ["--run", "run"])) == 0
    return here


@pytest.mark.parametrize(
    "line, words",
    [
        ('$PY -c "$SPEAKS" 2>/dev/null | head -1', ("result 0\n", "")),
        ('$PY -c "$SPEAKS" 2>&1 >/dev/null | head -1', ("a line\n", "")),
        ('$PY -c "$SPEAKS" 2>/dev/full | tail -1', ("result 999\n", "")),
        ('$PY -c "$SPEAKS" 2>&- | tail -1', ("result 999\n", "")),
        ('$PY -c "$SPEAKS" >&- 2>&-', ("", "")),
        ('$PY -c "$SPEAKS" <&- >&- 2>&-', ("", "")),
        ('$PY -c "$SPEAKS" >/dev/full 2>/dev/full', ("", "")),
    ],
)
def test_what_cannot_be_shown_is_dropped_and_the_status_says_so(line, words, tmp_path):
    assert shell(line, tmp_path) == (OUTPUT_LOST, *words)
    assert (tmp_path / "done").exists()


@pytest.mark.parametrize("where, reason", [("/dev/full", "No space left on device"), ("&-", "Bad file descriptor")])
def test_lost_results_are_named_where_somebody_can_read_it(where, reason, tmp_path):
    status, _, errors = shell(f"$PY -m esnlm --help >{where}", tmp_path)
    assert (status, errors) == (74, f"warning: standard output: {reason}; what it did not take is lost\n")


def test_another_status_is_kept_where_output_is_lost(tmp_path):
    stopped = "import sys; from esnlm.process import exit_with; sys.exit(exit_with(lambda: print('stopped') or 75))"
    assert shell(f'$PY -c "{stopped}" >&- 2>&-', tmp_path) == (75, "", "")
    assert shell("$PY -m esnlm cook 2>/dev/full", tmp_path) == (2, "", "")


def test_training_goes_on_where_nobody_listens(folder):
    assert shell(f"$PY {ROOT / 'train.py'} --config small.yaml 2>/dev/full | head -1 >/dev/null", folder) == (
        74,
        "",
        "",
    )
    assert checkpoint.verify(folder / "new" / "checkpoints" / "2") is None
    quiet, spoken = (
        {file.relative_to(run).as_posix() for file in run.rglob("*") if "arrays" not in file.parts}
        for run in (folder / "new", folder / "run")
    )
    assert quiet == spoken >= {"summary.json", "evaluation/blimp-paper.json"}


def test_closed_standard_files_are_not_taken_by_files_of_the_work(tmp_path):
    program = (
        "import sys; from esnlm.process import exit_with; sys.exit(exit_with(lambda: open('f', 'w').fileno() < 3))"
    )
    assert shell(f'$PY -c "{program}" <&- >&- 2>&-', tmp_path) == (0, "", "")


def test_a_character_that_the_terminal_lacks_is_an_escape(tmp_path):
    program = "import sys; from esnlm.process import exit_with; sys.exit(exit_with(lambda: print('caf\\u00e9')))"
    assert shell(f'$PY -c "{program}"', tmp_path, PYTHONIOENCODING="ascii") == (0, "caf\\xe9\n", "")


def test_a_name_that_is_too_long_and_links_without_an_end_are_one_line(tmp_path, capsys):
    (tmp_path / "loop").symlink_to("loop")
    long = tmp_path / ("a" * 256)
    assert exit_with(long.stat) == 2
    assert capsys.readouterr().err == f"error: {long}: {os.strerror(errno.ENAMETOOLONG)}; choose a shorter name\n"
    assert exit_with((tmp_path / "loop").read_text) == 2
    advice = "choose another place, or make the links anew"
    assert capsys.readouterr().err == f"error: {tmp_path}/loop: {os.strerror(errno.ELOOP)}; {advice}\n"

    def resolve():
        raise RuntimeError(f"Symlink loop from '{tmp_path}/loop'")  # as Path.resolve of Python 3.11 does

    assert exit_with(resolve) == 2
    assert capsys.readouterr().err == f"error: Symlink loop from '{tmp_path}/loop'; {advice}\n"


def test_a_library_without_standard_error_says_nothing(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stderr", None)
    say("a line")
    Progress(1).show(1, "done", final=True)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("count", [5, 8, 12, 16, 32, FEWEST_FILES - 1])
@pytest.mark.parametrize("command", ["train --config small.yaml", "score --run run", "prepare --input t --out s"])
def test_few_open_files_are_one_line(count, command, tmp_path):
    line = f"error: at most {count} files may be open at once, and 64 are needed: raise the limit (ulimit -n 1024)\n"
    assert shell(f"ulimit -n {count}; $PY -m esnlm {command}", tmp_path) == (2, "", line)


def test_a_low_limit_on_open_files_is_raised_where_the_system_lets_us(tmp_path):
    program = (
        "import resource, sys; from esnlm.process import exit_with;"
        "sys.exit(exit_with(lambda: print(resource.getrlimit(resource.RLIMIT_NOFILE))))"
    )
    assert shell(f'ulimit -Sn 8; ulimit -Hn 512; $PY -c "{program}"', tmp_path) == (0, "(512, 512)\n", "")


def test_a_device_that_is_not_here_is_one_line_that_says_which_are(folder):
    before = sorted(folder.rglob("*"))
    for command in (
        f"{ROOT / 'train.py'} --config small.yaml --run other",
        "-m esnlm score --run run --input text.txt",
    ):
        status, out, errors = shell(f"$PY {command}", folder, JAX_PLATFORMS="abacus")
        assert (status, out) == (2, "") and errors.splitlines()[-1].startswith(
            "error: JAX_PLATFORMS is abacus: no such device can be used (Backend 'abacus' is not in the list of known backends"
        )
        assert "; there are: cpu" in errors and "Traceback" not in errors
    assert {path.name for path in set(folder.rglob("*")) - set(before)} <= {"other", ".lock"}


def test_settings_of_jax_that_change_a_run_are_not_used(folder):
    expected = shell("$PY -m esnlm score --run run --input text.txt", folder)
    others = {"JAX_ENABLE_X64": "1", "JAX_NUMPY_RANK_PROMOTION": "raise"}
    status, out, errors = shell("$PY -m esnlm score --run run --input text.txt", folder, **others)
    assert (status, out) == expected[:2] and status == 0
    assert errors.splitlines() == [
        "warning: JAX_ENABLE_X64=1 is not used: esnlm computes with JAX's default, 0",
        "warning: JAX_NUMPY_RANK_PROMOTION=raise is not used: esnlm computes with JAX's default, allow",
    ]


# Random numbers as dropout masks are made of them, by a command that imports JAX when it runs, as all commands do.
DRAWS = """
from esnlm.process import exit_with
def main():
    import jax
    print(jax.random.bits(jax.random.key(0), (4,)))
exit_with(main)
"""


@pytest.mark.parametrize("name, value, default", [("THREEFRY_PARTITIONABLE", "0", 1), ("RANDOM_SEED_OFFSET", "7", 0)])
def test_settings_of_jax_that_change_dropout_masks_are_not_used(name, value, default, tmp_path):
    expected = shell('$PY -c "$DRAWS"', tmp_path, DRAWS=DRAWS)
    status, out, errors = shell('$PY -c "$DRAWS"', tmp_path, **{"DRAWS": DRAWS, f"JAX_{name}": value})
    assert (status, out) == expected[:2] and status == 0
    assert errors == f"warning: JAX_{name}={value} is not used: esnlm computes with JAX's default, {default}\n"


@pytest.mark.parametrize(
    "settings",
    [
        [],
        pytest.param(["--training.kind", "ridge"], marks=pytest.mark.slow),
        pytest.param(["--model.train_input", "true"], marks=pytest.mark.slow),
        pytest.param(["--model.family", "lstm", "--model.width", "8"], marks=pytest.mark.slow),
    ],
    ids=["adamw", "ridge", "esn+i", "lstm"],
)
def test_a_caller_in_float64_gets_the_same_bits(settings, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(SMALL if "lstm" not in str(settings) else SMALL.rsplit("model", 1)[0])
    sentences = ["The cats sleep.", "A dog sleeps."]
    found = {}
    for wide in (False, True):
        with jax.enable_x64(wide):
            assert train_run(config_io.read("small.yaml", ["--run", f"run{wide}", *settings])) == 0
            run = esnlm.load(f"run{wide}")
            scores = [run.log_probs(sentences), *run.token_log_probs(sentences), *run.states(sentences)]
            found[wide] = [*run.arrays().values(), *scores, run.generate("The", count=2, length=5)]
            assert jax.numpy.ones(1).dtype == (np.float64 if wide else np.float32)
    for narrow, wide in zip(found[False], found[True], strict=True):
        np.testing.assert_array_equal(narrow, wide)


def test_generation_takes_only_numbers_in_their_range(folder):
    run = esnlm.load(folder / "run")
    whole, finite = "it must be a whole number", "it must be a finite number"
    for name, value, line in [
        ("temperature", float("nan"), f"temperature is nan: {finite}"),
        ("temperature", float("-inf"), f"temperature is -inf: {finite}"),
        ("temperature", np.inf, f"temperature is inf: {finite}"),
        ("temperature", "1", f"temperature is '1': {finite}"),
        ("count", float("nan"), f"count is nan: {whole}"),
        ("length", float("inf"), f"length is inf: {whole}"),
        ("top_k", 2.5, f"top_k is 2.5: {whole}"),
        ("seed", None, f"seed is None: {whole}"),
        ("seed", -1, "seed is -1: it must be from 0 to 4294967295"),
    ]:
        with pytest.raises(InputError) as error:
            run.generate("The", **{name: value})
        assert str(error.value) == line
    with pytest.raises(InputError, match="^prompt is None: give a text$"):
        run.generate(None)
    coldest = run.generate("The", length=5, temperature=5e-324)
    assert coldest == run.generate("The", length=np.int64(5), temperature=np.float32(0), seed=np.uint8(3))
