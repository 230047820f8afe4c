"""What the sections of a run tell, and what they say if something is not there."""

import shutil

import numpy as np
import pytest

import esnlm
from esnlm.data.sources.given import GivenData
from esnlm.reporting.html.blocks import Scale, Series, accuracy_chart, loss_chart, note
from esnlm.reporting.html.sections import (
    SAMPLES,
    SECTIONS,
    RunFiles,
    commands,
    diagnostics,
    losses,
    minimal_pairs,
    samples,
    worst,
    wrong_pairs,
)


@pytest.fixture(scope="module")
def full(full_run):
    return RunFiles(full_run)


def test_sections_are_in_order_and_each_is_there(full):
    assert [title for title, render in SECTIONS.items() if render(full)] == [
        *("The model", "Losses", "Minimal pairs", "By paradigm", "Wrong by the largest margin"),
        *("State diagnostics", "Samples", "How to make it again"),
    ]


def test_a_run_of_which_little_is_known(make_run):
    run = RunFiles(make_run("a"))
    assert losses(run) == [], "there is no metrics.jsonl"
    [missing] = diagnostics(run)
    assert missing["command"] == f"esnlm diagnose --run {run.path}"
    run.may_load = False
    assert "loads no model" in samples(run)[0]["text"]
    for file in run.directory.evaluation.iterdir():
        file.unlink()
    shown = minimal_pairs(RunFiles(run.directory.path))
    assert shown == [note("Not scored yet.", f"esnlm blimp --run {run.path} --data blimp")]


def test_a_model_that_cannot_be_loaded_leaves_a_line(full_run, tmp_path):
    shutil.copytree(full_run, tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy" / "checkpoints")
    assert "no checkpoint yet" in samples(RunFiles(tmp_path / "copy"))[0]["text"]


def test_no_command_trains_on_sentences_that_were_given_in_python(make_run):
    assert "esnlm train" not in str(commands(RunFiles(make_run("a", data=GivenData()))))


def test_pairs_that_are_not_kept_leave_the_command_that_makes_them(make_run):
    run = RunFiles(make_run("a", right=3))
    assert wrong_pairs(run)[1]["pairs"][0] == ("1.0 nats", "one", [("g3", True)], [("b3", True)])
    (run.directory.evaluation / "blimp-paper.pairs.jsonl").unlink()
    assert wrong_pairs(run)[0]["command"] == f"esnlm blimp --run {run.path}"


def test_samples_are_those_of_the_seed(full):
    loaded = esnlm.load(full.directory.path)
    assert samples(full)[0]["texts"][0] == loaded.generate(**SAMPLES)[0].strip()


def test_the_most_wrong_pairs():
    def line(uid, good, bad):
        return {"UID": uid, "log_prob_good": good, "log_prob_bad": bad, "right": bad < good, "tie": good == bad}

    lines = [line("one", -5.0, -5.0 + i) for i in range(-3, 5)] + [line("two", -9.0, -6.5), line("two", -9.0, -9.0)]
    assert [(each["UID"], margin) for margin, each in worst(lines)] == [("one", 4.0), ("one", 3.0), ("two", 2.5)]


def test_points_of_a_chart_stand_where_their_values_are():
    points = np.array([[10, 4.0], [100, 3.0], [1000, 2.0]])
    [shown] = loss_chart([Series("NLL", points)], "losses")
    [(colour, path)] = shown["lines"]
    places = np.array([[float(u) for u in place.split(",")] for place in path[1:].split("L")])  # of 1000
    # The range of y is that of the values and 4 % more at each end: 1.92 to 4.08.
    expected = np.array([[0, 1000 * 0.08 / 2.16], [500, 500], [1000, 1000 * 2.08 / 2.16]])
    assert places == pytest.approx(expected, abs=0.06) and colour == 0


def test_dots_and_references_of_a_chart():
    points = np.array([[1.0, 1.0], [4.0, 3.0]])
    [shown] = loss_chart([Series("", points, 1, dots=True)], "", references={"far": 3.0, "near": 2.99})
    assert shown["dots"] == [(1, [("0.00%", "96.30%"), ("100.00%", "3.70%")])]
    assert len(shown["references"]) == 2 and [name for name, _ in shown["labels"]] == ["near"], "they would overlap"
    assert not shown["legend"], "a series without a name has no legend"


@pytest.mark.parametrize(
    ("values", "log", "ticks"),
    [
        ([0, 100], False, [0, 20, 40, 60, 80, 100]),
        ([2.05, 4.75], False, [2.5, 3, 3.5, 4, 4.5]),
        ([0.01, 3], True, [0.01, 0.03, 0.1, 0.3, 1, 3]),
        ([1e-6, 1], True, [1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1]),
        ([21_000, 29_000], True, [22_000, 24_000, 26_000, 28_000]),
        ([5, 5], False, [4.6, 4.8, 5, 5.2, 5.4]),
    ],
)
def test_ticks_are_few_and_round(values, log, ticks):
    scale = Scale(np.array(values, float), log)
    assert scale.ticks() == pytest.approx(ticks)


def test_the_axis_of_accuracies_begins_below_all_that_is_shown():
    def tree(value):
        entry = {"accuracy": value, "interval": [value - 5, value + 5]}
        return {"overall": entry, "phenomena": {"a_b": entry}, "paradigms": {"npi_c": entry}}

    baselines = {"length": tree(50.0), "unigram": tree(50.0)}
    shown = accuracy_chart(tree(75.0) | {"baselines": baselines, "anchors": None, "data": {"phenomena": 1}})
    assert [row["name"] for row in shown["rows"]] == ["overall", "NPI c"], "one phenomenon: its paradigms"
    assert shown["low"] == 40 and shown["ticks"] == [40, 50, 60, 70, 80, 90, 100]
    lower = {name: lower for name, (_, _, lower) in shown["marks"].items()}
    assert lower == {"length only": -2.5, "unigram only": 2.5}, "ticks at one place do not hide each other"
