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
    said = capsys.readouterr().err
    assert f"profile: {trace}: open it at https://ui.perfetto.dev" in said


def test_a_run_that_does_not_make_these_updates_says_so(small, tmp_path, capsys):
    assert train_run(small("short"), traced=Span(2000, 2001)) == 0
    assert "warning: no profile: update 2000 was not made here" in capsys.readouterr().err
    assert train_run(small("short"), traced=Span(2, 3)) == 0
    assert "warning: no profile: update 2 was not made here" in capsys.readouterr().err
    Profile(None, tmp_path / "profile").warn_if_missing()
    Profile(Span(2, 3), tmp_path).warn_if_missing()  # it was written when the run was trained
    assert capsys.readouterr().err == ""


def test_a_trace_begins_and_ends_between_two_updates(tmp_path):
    profile = Profile(Span(3, 5), tmp_path)
    assert [step for step in range(9) if profile.begins_after(step)] == [2] and not profile.ends_after(5)
    profile.tracing = True
    assert [step for step in range(9) if profile.ends_after(step)] == [5] and not profile.begins_after(2)
    assert not Profile(None, tmp_path).begins_after(0)


def test_a_trace_that_is_cut_short_is_written(tmp_path, capsys):
    with pytest.raises(KeyboardInterrupt), Profile(Span(1, 5), tmp_path) as profile:
        profile.begin()
        raise KeyboardInterrupt
    assert "warning: the profile ends before its last update\n" in capsys.readouterr().err
    assert list(tmp_path.glob("plugins/profile/*/*.trace.json.gz"))


def test_a_place_that_cannot_be_written_stops_nothing(tmp_path, capsys):
    (tmp_path / "profile").write_text("")
    with Profile(Span(1, 1), tmp_path / "profile") as profile:
        profile.begin()
        assert not profile.tracing
    assert capsys.readouterr().err.startswith(f"warning: {tmp_path / 'profile'}: no profile: ")


def test_two_updates_are_read():
    assert parse_span("100:110") == (100, 110)
    for wrong in ("5", "0:3", "7:6", "a:b"):
        with pytest.raises(InputError, match=f"^--profile {wrong}: "):
            parse_span(wrong)
