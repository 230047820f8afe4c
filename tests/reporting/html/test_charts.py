"""Charts: where points, ticks and marks stand."""

import numpy as np
import pytest

from esnlm.reporting.html.charts import Axis, Bar, Scale, Series, accuracy_chart, line_chart, plane


def test_points_stand_where_their_values_are():
    points = np.array([[10, 4.0], [100, 3.0], [1000, 2.0]])
    shown = line_chart([Series("NLL", points)], Axis("tokens", log=True), Axis("nats"), "losses")
    [(colour, path)] = shown["lines"]
    places = np.array([[float(u) for u in place.split(",")] for place in path[1:].split("L")])  # of 1000
    # The range of y is that of the values and 4 % more at each end: 1.92 to 4.08.
    expected = np.array([[0, 1000 * 0.08 / 2.16], [500, 500], [1000, 1000 * 2.08 / 2.16]])
    assert places == pytest.approx(expected, abs=0.06) and colour == 0


def test_dots_and_references():
    points = np.array([[0.0, 1.0], [4.0, 3.0]])
    shown = line_chart([Series("", points, 1, dots=True)], Axis("x"), Axis("y"), "", {"far": 3.0, "near": 2.99})
    assert shown["dots"] == [(1, [("0.00%", "96.30%"), ("100.00%", "3.70%")])]
    assert len(shown["references"]) == 2 and [name for name, _, _ in shown["labels"]] == ["near"], "they would overlap"
    assert not shown["legend"], "a series without a name has no legend"


def test_a_reference_has_its_label_where_no_line_is():
    falling = [Series("", np.array([[0.0, 5.0], [4.0, 2.0]]))]
    shown = line_chart(falling, Axis("x"), Axis("y"), "", {"unigram": 4.5, "bigram": 2.5})
    assert {name: right for name, _, right in shown["labels"]} == {"unigram": True, "bigram": False}


@pytest.mark.parametrize(
    ("values", "log", "ticks"),
    [
        ([0, 100], False, ["0", "20", "40", "60", "80", "100"]),
        ([2.05, 4.75], False, ["2.5", "3.0", "3.5", "4.0", "4.5"]),
        ([-0.3, 0.01], False, ["-0.3", "-0.2", "-0.1", "0.0"]),
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
    bars = [Bar("overall", 75.0, [70.0, 80.0], {"GPT-2": 90.0, "length": 50.0, "unigram": 50.0})]
    marks = {"length": ("tick", 3), "unigram": ("tick", 5), "GPT-2": ("ring", 1)}
    shown = accuracy_chart(bars, marks, chance=50)
    assert shown["low"] == 40 and shown["ticks"] == [40, 50, 60, 70, 80, 90, 100]
    assert shown["lower"] == {"length": -2.5, "unigram": 2.5}, "ticks at one place do not hide each other"


def test_eigenvalues_in_the_plane():
    shown = plane(np.array([0.5 + 0.25j, -1j]), {"unit circle": (1.0, "reference")}, "W_rec")
    assert shown["dots"] == "M0.500,-0.250h0M-0.000,1.000h0" and shown["reach"] == "1.08"
