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
    progress.show(done, "epoch 1/1  update 3/4  train NLL 3.210", describe=lambda speed: "  memory 1.23 GB")
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
    assert capfd.readouterr().err.splitlines() == shown
    assert console.level() == Level.USUAL


def test_quiet_has_no_progress(capfd):
    with speaking(Level.QUIET):
        Progress(1).show(1, "done", final=True)
    assert capfd.readouterr().err == ""


def test_a_brief_progress_says_nothing_of_what_is_soon_done(capfd):
    Progress(1, brief=True).show(1, "done", final=True)
    assert capfd.readouterr().err == ""


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


@pytest.mark.parametrize("columns", [40, 80])
def test_the_line_of_progress_fits_and_makes_way_for_others(columns):
    text = in_terminal(python("-c", PROGRAM), columns)
    statuses = re.split(r"\r\033\[K", text)
    written = [status for status in statuses if "update 3/4" in status]
    assert len(written) == 4
    assert all(len(line) < columns and re.search(r"\d+:\d\d left", line) for line in written)
    assert all(("memory 1.23 GB" in line) == (columns == 80) for line in written)
    lines = [line.rsplit("\033[K")[-1] for line in text.split("\n")]
    assert (lines[0], lines[2:]) == ("warning: something is odd", ["done", ""])
    assert lines[1].startswith("epoch 1/1  update 4/4  train NLL 3.123  ") and lines[1].endswith("  0:00 left")


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
    assert in_terminal(python("-c", program), 80) == "\r\033[Kloading  0:01\r\033[K"


def test_long_work_has_a_line_in_a_log_now_and_then(monkeypatch, capfd):
    """The clock of the test runs twenty times as fast, in steps that the waiting for the end makes."""
    real = console.time.monotonic
    monkeypatch.setattr(console.time, "monotonic", lambda: 20 * real())
    with working("loading"):
        console.time.sleep(1.3)
    [line] = capfd.readouterr().err.splitlines()
    assert re.fullmatch(r"loading  0:2\d so far", line)


def test_parts_that_do_not_fit_are_left_out_in_turn():
    parts = ["epoch 1/9", "update 12/345", "train NLL 3.210", "1,234 tokens/s", "1:23 left"]
    whole = "epoch 1/9  update 12/345  train NLL 3.210  1,234 tokens/s  1:23 left"
    assert console._fitting(parts, "  memory 1 GB", 100) == f"{whole}  memory 1 GB"
    assert console._fitting(parts, "  memory 1 GB", len(whole)) == whole
    assert console._fitting(parts, "", 60) == "epoch 1/9  update 12/345  train NLL 3.210  1:23 left"
    assert console._fitting(parts, "", 39) == "epoch 1/9  update 12/345  1:23 left"
    assert console._fitting(parts, "", 20) == "epoch 1/9  1:23 left"
    assert console._fitting(parts, "", 12) == "epoch 1/9..."


def test_one_thing_is_counted_in_the_singular():
    assert [counted(number, "pair") for number in (0, 1, 2000)] == ["0 pairs", "1 pair", "2,000 pairs"]
    assert counted(3, "set of sentences", "sets of sentences") == "3 sets of sentences"


@pytest.mark.parametrize("text, columns", [("57", 57), ("", 80), ("wide", 80), ("3", 20)])
def test_the_width_of_no_terminal(text, columns, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", text)
    with open(tmp_path / "log", "w") as stream:
        assert console.columns(stream) == columns
