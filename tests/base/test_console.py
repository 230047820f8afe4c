"""Lines on standard error by level, and what a log file gets."""

import io
import json
import logging
import sys

import pytest

from esnlm.base import console
from esnlm.base.console import (
    Progress,
    debug,
    escape_unencodable,
    info,
    notice,
    spinner,
    verbosity,
    warn,
)
from esnlm.base.screen import Screen


@pytest.mark.parametrize(
    "level, shown",
    [
        (logging.WARNING, ["warning: w", "t"]),
        (logging.INFO, ["s", "warning: w", "t", "stage"]),
        (logging.DEBUG, ["s", "d", "warning: w", "t", "stage", "stage: 0.0 s"]),
    ],
)
def test_levels(level, shown, capfd):
    with verbosity(level):
        info("s")
        debug("d")
        warn("w")
        notice("t")
        with spinner("stage", announce=True):
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


@pytest.mark.parametrize(
    "encoding, printed, lacked",
    [
        ("ascii", rb'"schl\u00e4ft \u4e2d \ud83d\ude00 \udcff"', r"'\xe4'"),
        ("latin-1", rb'"schl' + b"\xe4" + rb'ft \u4e2d \ud83d\ude00 \udcff"', r"'\u4e2d'"),
        # \udcff: a byte of a file name that is not UTF-8
        ("utf-8", '"schläft 中 😀 '.encode() + rb'\udcff"', r"'\udcff'"),
    ],
)
def test_standard_output_escapes_what_its_encoding_lacks_as_json_does(
    encoding, printed, lacked, monkeypatch, capfd
):
    text = "schläft 中 😀 \udcff"
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding))
    escape_unencodable()
    print(f'"{text}"')
    Screen().line(f'"{text}"')
    sys.stdout.flush()
    assert raw.getvalue() == 2 * (printed + b"\n")
    assert json.loads(printed.decode(encoding)) == text
    (warning,) = capfd.readouterr().err.splitlines()
    assert warning.startswith(f"warning: standard output is in {encoding}") and lacked in warning
