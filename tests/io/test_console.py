"""Lines on standard error: how much is said, and what a log file gets of it."""

import pytest

from esnlm.io import console
from esnlm.io.console import Level, Progress, detail, say, speaking, stage, tell, warn


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
