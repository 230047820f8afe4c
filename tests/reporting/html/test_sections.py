"""What the sections of a run tell, and what they say if something is not there."""

import shutil

import numpy as np
import pytest

import esnlm
from esnlm.data.sources.given import GivenData
from esnlm.models.echo_state import EchoStateConfig
from esnlm.reporting.html.blocks import note
from esnlm.reporting.html.charts import Scale, Series, accuracy_chart, line_chart
from esnlm.reporting.html.files import RunFiles
from esnlm.reporting.html.sections import (
    SAMPLES,
    SECTIONS,
    commands,
    diagnostics,
    eigenvalues,
    losses,
    minimal_pairs,
    samples,
    spectrum,
    worst,
    wrong_pairs,
)
from esnlm.reservoir.topology.given import Given
from esnlm.reservoir.weights import ReservoirConfig


@pytest.fixture(scope="module")
def full(full_run):
    return RunFiles(full_run)


def test_sections_are_in_order_and_each_is_there(full):
    assert [title for title, render in SECTIONS.items() if render(full)] == [
        *("The model", "Losses", "Minimal pairs", "By paradigm", "Wrong by the largest margin"),
        *("State diagnostics", "Spectrum", "Samples", "How to make it again"),
    ]


def test_a_run_of_which_little_is_known(make_run):
    run = RunFiles(make_run("a"))
    assert losses(run) == [], "there is no metrics.jsonl"
    [missing] = diagnostics(run)
    assert missing["command"] == f"esnlm diagnose --run {run.path}"
    assert "more than 1,024 units are not computed" in spectrum(run)[0]["text"]
    assert "is not loaded for a page" in samples(run)[0]["text"]
    for file in run.directory.evaluation.iterdir():
        file.unlink()
    shown = minimal_pairs(RunFiles(run.directory.path))
    assert shown == [note("Not scored yet.", f"esnlm blimp --run {run.path} --data blimp")]


def lines_of(run):
    return [block["line"] for block in commands(run) if block["kind"] == "command"]


def test_a_model_that_cannot_be_loaded_leaves_a_line(full, full_run, tmp_path):
    shutil.copytree(full_run, tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy" / "checkpoints")
    run = RunFiles(tmp_path / "copy")
    assert "no checkpoint yet" in samples(run)[0]["text"]
    generate = f"esnlm generate --run {full.path} --count 6 --length 40 --seed 0"
    assert generate in lines_of(full) and not any("generate" in line for line in lines_of(run))


def test_a_run_of_what_was_given_in_python(make_run):
    """Its sentences are nowhere else, and a W_rec that was given is drawn by no seed."""
    given = EchoStateConfig(reservoir=ReservoirConfig(topology=Given(nonzeros=4)))
    for run in (make_run("a", data=GivenData()), make_run("b", model=given)):
        assert "were given in Python" in commands(RunFiles(run))[0]["text"]


def test_pairs_that_are_not_kept_leave_the_command_that_makes_them(make_run):
    run = RunFiles(make_run("a", right=3))
    assert wrong_pairs(run)[1]["pairs"][0] == ("1.0 nats", "one", [("g3", True)], [("b3", True)])
    (run.directory.evaluation / "blimp-paper.pairs.jsonl").unlink()
    assert wrong_pairs(run)[0]["command"] == f"esnlm blimp --run {run.path}"


def test_samples_are_those_of_the_seed(full):
    assert samples(full)[1]["texts"][0] == full.loaded.generate(**SAMPLES)[0].strip()


def test_eigenvalues_with_one_leak(full):
    [layer] = full.loaded.model.reservoir.layers

    class OneLeak:
        stored_w_rec, leak, update_rule = layer.stored_w_rec, np.full(24, 0.3), "leaky_output"

    w, linear = eigenvalues(OneLeak, decay=0.5)
    assert np.abs(w).max() == pytest.approx(0.99, rel=1e-5)
    # I - alpha a + a W has the eigenvalues 1 - alpha a + a lambda, where all leaks are a.
    expected = 1 - 0.5 * 0.3 + 0.3 * w
    assert np.abs(linear[:, None] - expected).min(axis=0) == pytest.approx(0, abs=1e-6)


def test_eigenvalues_of_a_reservoir_that_shifts():
    """Near 0 a unit keeps what its neighbour had, so that the eigenvalues are not those of one without the shift."""
    drawn = esnlm.Reservoir.draw(12, inputs=1, mean_degree=3, leak=0.4, update_rule="residual_shift", seed=1)
    w = np.zeros((12, 12)) + drawn.w_rec
    _, linear = eigenvalues(drawn.cell, decay=1.0)
    expected = np.linalg.eigvals(0.6 * np.roll(np.eye(12), 1, axis=0) + 0.4 * w)
    assert np.abs(linear[:, None] - expected).min(axis=0) == pytest.approx(0, abs=1e-6)


def test_the_most_wrong_pairs():
    def line(uid, good, bad):
        return {"UID": uid, "log_prob_good": good, "log_prob_bad": bad, "right": bad < good, "tie": good == bad}

    lines = [line("one", -5.0, -5.0 + i) for i in range(-3, 5)] + [line("two", -9.0, -6.5), line("two", -9.0, -9.0)]
    margins = [(each["UID"], each["log_prob_bad"] - each["log_prob_good"]) for each in worst(lines)]
    assert margins == [("one", 4.0), ("one", 3.0), ("two", 2.5)]


def test_points_of_a_chart_stand_where_their_values_are():
    points = np.array([[10, 4.0], [100, 3.0], [1000, 2.0]])
    shown = line_chart([Series("NLL", points)], ("tokens", "nats"), "losses", (True, False))
    [(colour, path)] = shown["lines"]
    places = np.array([[float(u) for u in place.split(",")] for place in path[1:].split("L")])  # of 1000
    # The range of y is that of the values and 4 % more at each end: 1.92 to 4.08.
    expected = np.array([[0, 1000 * 0.08 / 2.16], [500, 500], [1000, 1000 * 2.08 / 2.16]])
    assert places == pytest.approx(expected, abs=0.06) and colour == 0


def test_dots_and_references_of_a_chart():
    points = np.array([[0.0, 1.0], [4.0, 3.0]])
    series = [Series("", points, 1, dots=True)]
    shown = line_chart(series, ("x", "y"), "", references={"far": 3.0, "near": 2.99})
    assert shown["dots"] == [(1, [("0.00%", "96.30%"), ("100.00%", "3.70%")])]
    assert len(shown["references"]) == 2 and [name for name, _, _ in shown["labels"]] == ["near"], "they would overlap"
    assert not shown["legend"], "a series without a name has no legend"


@pytest.mark.parametrize(
    ("values", "log", "ticks"),
    [
        ([0, 100], False, ["0", "20", "40", "60", "80", "100"]),
        ([2.05, 4.75], False, ["2.5", "3.0", "3.5", "4.0", "4.5"]),
        ([10_000, 3_000_000], True, ["10k", "30k", "100k", "300k", "1M", "3M"]),
        ([1e-6, 1], True, ["10⁻⁶", "10⁻⁵", "10⁻⁴", "10⁻³", "0.01", "0.1", "1"]),
        ([21_000, 29_000], True, ["22,000", "24,000", "26,000", "28,000"]),
        ([5, 5], False, ["4.6", "4.8", "5.0", "5.2", "5.4"]),
    ],
)
def test_ticks_are_few_and_round(values, log, ticks):
    scale = Scale(np.array(values, float), log, margin=0)
    assert [text for _, text in scale.ticks()] == ticks
    assert all(-1e-9 <= scale(value) <= 1 + 1e-9 for value, _ in scale.ticks())


def test_the_axis_of_accuracies_begins_below_all_that_is_shown():
    marks = {"GPT-2": 90.0, "length": 50.0, "unigram": 50.0}
    bars = [{"name": "overall", "value": 75.0, "interval": [70.0, 80.0], "marks": marks}]
    drawn = {"length": ("tick", 3), "unigram": ("tick", 5), "GPT-2": ("ring", 1)}
    shown = accuracy_chart(bars, drawn, chance=50)
    assert shown["low"] == 40 and shown["ticks"] == [40, 50, 60, 70, 80, 90, 100]
    assert shown["lower"] == {"length": -2.5, "unigram": 2.5}, "ticks at one place do not hide each other"
