"""A trace of some updates, which changes nothing else."""

import gzip
import json

import pytest

from esnlm.base.errors import InputError
from esnlm.runs.directory import RunDirectory
from esnlm.training.interruption import parse_span
from esnlm.training.run import train_run
from tests.training.small import read, same_run, train


def test_a_trace_of_two_updates_is_written_and_the_run_has_the_same_bits(tmp_path):
    plain = train(tmp_path, "plain")
    assert train_run(read(tmp_path, "traced"), traced=range(3, 5)) == 0
    same_run(plain, tmp_path / "traced")
    [trace] = RunDirectory(tmp_path / "traced").profile.glob("plugins/profile/*/*.trace.json.gz")
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    called = [event for event in events if event.get("name") == "PjitFunction(update)"]
    assert len(called) >= 2, "Perfetto shows the calls of the compiled update"


def test_two_updates_are_read():
    assert parse_span("100:110") == range(100, 111)
    for wrong in ("5", "0:3", "7:6", "a:b"):
        with pytest.raises(InputError, match="--profile"):
            parse_span(wrong)
