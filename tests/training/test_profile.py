"""A trace of some updates, which changes nothing else."""

import gzip
import json

import numpy as np
import pytest

import esnlm
from esnlm import config_io
from esnlm.errors import InputError
from esnlm.runs.directory import RunDirectory
from esnlm.training.profile import Profile, Span, parse_span
from esnlm.workflows.train import train_run


@pytest.fixture
def small(tmp_path):
    (tmp_path / "small.yaml").write_text(
        "data: {kind: grammar, sentences: 200, validation_sentences: 20, pairs: 2}\n"
        "model: {reservoir: {state_size: 16, mean_degree: 4}, readout: {rank: 4}}\n"
    )

    def read(name, *settings):
        return config_io.read(tmp_path / "small.yaml", ["--run", str(tmp_path / name), *settings])

    return read


def test_a_trace_of_two_updates_is_written_and_the_run_has_the_same_bits(small, tmp_path, capsys):
    assert train_run(small("plain")) == 0
    assert train_run(small("traced"), traced=Span(3, 4)) == 0
    plain, traced = (esnlm.load(tmp_path / name).model.params["readout"] for name in ("plain", "traced"))
    assert all(np.array_equal(plain[name], traced[name]) for name in plain)

    [trace] = RunDirectory(tmp_path / "traced").profile.glob("plugins/profile/*/*.trace.json.gz")
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    called = [event for event in events if event.get("name") == "PjitFunction(update)"]
    assert len(called) >= 2, "Perfetto shows the calls of the compiled update"
    assert f"profile: {tmp_path / 'traced' / 'profile'}: open its *.trace.json.gz" in capsys.readouterr().err


def test_a_trace_begins_and_ends_between_two_updates(tmp_path):
    profile = Profile(Span(3, 5), tmp_path)
    assert [step for step in range(9) if profile.is_due(step)] == [2]
    profile.tracing = True
    assert [step for step in range(9) if profile.is_due(step)] == [5]
    assert not Profile(None, tmp_path).is_due(0)


def test_a_trace_that_is_cut_short_is_written(tmp_path):
    with pytest.raises(KeyboardInterrupt), Profile(Span(1, 5), tmp_path) as profile:
        profile.switch()
        raise KeyboardInterrupt
    assert list(tmp_path.glob("plugins/profile/*/*.trace.json.gz"))


def test_a_trace_that_cannot_be_begun_stops_nothing(tmp_path, capsys):
    with Profile(Span(1, 1), tmp_path) as outer, Profile(Span(1, 1), tmp_path) as inner:
        outer.switch()
        inner.switch()
        assert outer.tracing and not inner.tracing
    assert capsys.readouterr().err.startswith(f"warning: {tmp_path}: no profile: ")


def test_two_updates_are_read():
    assert parse_span("100:110") == (100, 110)
    for wrong in ("5", "0:3", "7:6", "a:b"):
        with pytest.raises(InputError, match=f"^--profile {wrong}: "):
            parse_span(wrong)
