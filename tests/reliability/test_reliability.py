"""The programs that kill and damage, at tiny sizes: they run, they see what they must, and nothing is lost."""

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from esnlm.io.atomic import NewFolder
from tests.reliability import faults, kills, rot
from tests.reliability.compare import REPOSITORY, compare_files
from tests.reliability.fork_server import ForkServer


def command(*arguments):
    return subprocess.run([sys.executable, "-m", *map(str, arguments)], cwd=REPOSITORY, capture_output=True, text=True)


def frame(place):
    code = place.__code__
    return f'  File "{code.co_filename}", line {code.co_firstlineno + 1} in {code.co_name}\n'


def test_a_kill_s_place_is_the_innermost_that_has_a_name():
    waiting = 'Thread 0x01 (most recent call first):\n  File "/x/threading.py", line 320 in wait\n\n'
    outer = frame(kills.PrecomputedUpdates.run) + frame(kills.train_run) + frame(kills.exit_with)
    main = "Thread 0x02 (most recent call first):\n"
    assert kills.phase(waiting + main + frame(kills.checkpoint.save) + outer) == "save"
    assert kills.phase(waiting + main + outer) == "updates"
    in_log = '  File "' + kills.log.__file__ + '", line 80 in whatever\n'
    assert kills.phase(main + in_log + frame(kills.train_run) + frame(kills.exit_with)) == "updates"
    assert kills.phase(waiting) == kills.phase("") == "start"


def test_a_save_under_way_is_seen(tmp_path):
    assert kills.half_saved(tmp_path) == set()
    with NewFolder(tmp_path / "checkpoints" / "3") as new:
        assert kills.half_saved(tmp_path) == {new.path}


def test_what_differs_between_two_folders_is_found(tmp_path):
    for name in ("one", "other"):
        (tmp_path / name / "a").mkdir(parents=True)
        (tmp_path / name / "a" / "same").write_text("x")
    assert compare_files(tmp_path / "one", tmp_path / "other") == []
    (tmp_path / "other" / "a" / "same").write_text("y")
    (tmp_path / "other" / "more").write_text("")
    assert compare_files(tmp_path / "one", tmp_path / "other") == [
        f"{tmp_path}/other/a/same",
        f"{tmp_path}/other/more",
    ]


@pytest.mark.parametrize(
    "status, told, same, outcome",
    [
        (2, "error: /r/config.yaml: changed", True, "refused"),
        (2, "error: something", True, "failed"),
        (1, "Traceback", True, "failed"),
        (0, "warning: /r/config.yaml: changed", True, "warned"),
        (0, "warning: /r/config.yaml: changed", False, "told"),
        (0, "fine", True, "harmless"),
        (0, "fine", False, "silent"),
    ],
)
def test_silence_with_another_result_is_a_fault(status, told, same, outcome):
    assert rot.judge(Path("config.yaml"), status, told, lambda: same) == outcome


def test_damage_is_one_bit_or_half_a_file(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(bytes(100))
    rot.flip(file, random.Random(0))
    assert sum(byte.bit_count() for byte in file.read_bytes()) == 1
    rot.truncate(file, random.Random(0))
    assert file.stat().st_size == 50


def test_a_fault_is_told_in_one_line_beside_what_is_always_said():
    usual = "epoch 1/1  update 1/3  train NLL 6.812  1,234 tokens/s  0:00 left\n"
    error = "error: /r/checkpoints/3: checkpoint not saved: Input/output error\n"
    assert faults.judge(2, usual.replace("6.812", "6.9") + error, usual) == []
    assert faults.judge(0, usual + "warning: tracking csv failed: OSError\n", usual) == []
    assert faults.judge(1, usual, usual) == ["status 1"]
    assert faults.judge(2, error + usual, usual)[0].startswith("not one line: ")
    assert faults.judge(2, error + error, usual)[0].startswith("not one line: ")
    late = (
        "Traceback (most recent call last):\n"
        + error  # the threads of Orbax print while we do
        + '  File "/lib/asyncio/base_events.py", line 519, in _check_closed\n'
        + "    raise RuntimeError('Event loop is closed')\nRuntimeError: Event loop is closed\n"
    )
    assert faults.judge(2, late, usual) == []
    assert faults.judge(2, late.replace("base_events", "other"), usual)[0].startswith("not one line: ")
    assert faults.judge(0, late.replace(error, ""), usual)[0].startswith("also said: Traceback")
    assert faults.judge(2, "RuntimeError: another\n" + error, usual)[0].startswith("also said: Runtime")
    assert faults.judge(0, error, usual)[0].startswith("also said: error")


needs_cc = pytest.mark.skipif(
    shutil.which("cc") is None, reason="needs a C compiler, cc, for tests/reliability/faults.c"
)


@needs_cc
def test_faults_of_a_save_and_of_a_preparation(tmp_path):
    """Of Orbax's calls, a folder that is not made, a rename and an open; of Python's calls, a write and a sync."""
    with ForkServer(faults.compile_library(tmp_path)) as server:
        assert sum(faults.undisturbed(tmp_path, server, "saving").values()) > 80
        assert sum(faults.undisturbed(tmp_path, server, "preparation").values()) > 30
        kinds = [line.split()[1] for line in faults.read_log(tmp_path)]
        calls = {"saving": [9, 29, 57], "preparation": [kinds.index(kind) + 1 for kind in ("write", "sync")]}
        rows = [faults.try_case(tmp_path, server, faults.Case(name, n)) for name in calls for n in calls[name]]
    assert [(row["status"], row["faults"]) for row in rows] == [(2, [])] * 5


@needs_cc
@pytest.mark.nightly
def test_faults_of_a_training_and_of_an_evaluation(tmp_path):
    calls = ["4", "13", "22", "150", "300", "450", "600", "630"]
    done = command("tests.reliability.faults", "--only", "training", "evaluation", "--calls", *calls, "--out", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(json.loads((tmp_path / "faults.json").read_text())["rows"]) == 11


@pytest.mark.nightly
def test_kills(tmp_path):
    tiny = [
        "--kills",
        "3",
        "--other-kills",
        "1",
        "--size",
        "32",
        "--vocab",
        "300",
        "--sentences",
        "300",
        "--window-tokens",
        "1500",
    ]
    done = command("tests.reliability.kills", *tiny, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "kills.json").read_text())
    assert len(record["kills"]) == 5 and record["differences"] == []


@pytest.mark.nightly
def test_rot(tmp_path):
    done = command(
        "tests.reliability.rot",
        "--size",
        "16",
        "--only",
        "^(config.yaml|summary.json|checkpoints/12/m)",
        "--flips",
        "1",
        "--out",
        tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((tmp_path / "rot.json").read_text())["rows"]
    assert {row["outcome"] for row in rows if row["file"] == "config.yaml"} == {"refused"}
