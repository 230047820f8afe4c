"""Lines on standard error: how much is said, and what a terminal and a log file get of it."""

import re

import pytest

from esnlm.io import console
from esnlm.io.console import Level, Progress, counted, detail, say, speaking, stage, tell, warn, working
from tests.terminal import in_pipe, in_terminal, python

PROGRAM = """
import time
from esnlm.io.console import Progress, say, warn
progress = Progress(100)
for done in (20, 40, 60, 80):
    time.sleep(0.25)
    progress.show(done, "epoch 1/1  update 3/4  train NLL 3.210")
    if done == 60:
        warn("something is odd")
progress.show(100, "epoch 1/1  update 4/4  train NLL 3.123", final=True)
say("done")
"""


@pytest.mark.parametrize(
    "level, shown",
    [
        (Level.QUIET, ["warning: w", "t"]),
        (Level.USUAL, ["s", "warning: w", "t", "stage"]),
        (Level.VERBOSE, ["s", "d", "warning: w", "t", "stage", "stage: 0.0 s"]),
    ],
)
def test_levels(level, shown, capfd):
    with speaking(level):
        say("s")
        detail("d")
        warn("w")
        tell("t")
        with stage("stage"):
            pass
        Progress(1).show(0, "not yet due")
        Progress(1, brief=True).show(1, "soon done", final=True)
    assert capfd.readouterr().err.splitlines() == shown


def test_the_speed_of_the_whole_work_leaves_out_what_was_done_aside(monkeypatch, capfd):
    clock = [0.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: clock[0])
    progress = Progress(100)
    clock[0] = 10
    with progress.aside():
        clock[0] = 40
    clock[0] = 50
    progress.show(100, "done", final=True)
    assert capfd.readouterr().err == "done  5 tokens/s  0:00 left\n"


@pytest.mark.parametrize("columns", [60, 100])
def test_the_line_of_progress_fits_and_makes_way_for_others(columns):
    text = in_terminal(python("-c", PROGRAM), columns)
    lines = [re.sub(r"\033\[[0-9;?]*[a-zA-Z]", "", line) for line in re.split(r"[\r\n]+|\033\[2K", text)]
    written = [line for line in lines if "tokens/s" in line and "left" in line and "3/4" in line]
    assert columns == 60 or written
    assert all(len(line) <= columns for line in lines if "4/4" not in line)
    assert "warning: something is odd" in lines and "done" in lines
    assert any(line.startswith("epoch 1/1  update 4/4  train NLL 3.123  ") and line.endswith(" left") for line in lines)


@pytest.mark.parametrize("variables", [{}, {"COLUMNS": "40", "FORCE_COLOR": "1"}])
def test_a_log_file_has_whole_lines_only(variables):
    out, err = in_pipe(python("-c", PROGRAM), variables)
    assert out == "" and "\r" not in err and "\033" not in err
    first, second, third = err.splitlines()
    assert (first, third) == ("warning: something is odd", "done")
    assert re.fullmatch(r"epoch 1/1  update 4/4  train NLL 3\.123  \d+ tokens/s  0:00 left", second)


def test_a_terminal_that_cannot_write_over_a_line_is_no_terminal():
    text = in_terminal(python("-c", PROGRAM), 80, {"TERM": "dumb"})
    assert "\033" not in text and text.count("\n") == 3


def test_work_without_a_measure_shows_its_clock_after_a_second():
    program = "import time\nfrom esnlm.io.console import working\nwith working('loading'):\n    time.sleep(1.5)\n"
    assert "loading  0:01" in in_terminal(python("-c", program), 80)


def test_long_work_has_a_line_in_a_log_now_and_then(monkeypatch, capfd):
    monkeypatch.setattr(console, "LOG_EVERY_SECONDS", 0.2)
    with working("loading"):
        console.time.sleep(0.3)
    assert capfd.readouterr().err == "loading  0:00 so far\n"


def test_one_thing_is_counted_in_the_singular():
    assert [counted(number, "pair") for number in (0, 1, 2000)] == ["0 pairs", "1 pair", "2,000 pairs"]
    assert counted(3, "set of sentences", "sets of sentences") == "3 sets of sentences"
