"""Charts: where points, ticks and marks stand."""

import re

import numpy as np
import pytest

from esnlm.reporting.html.charts import Axis, Bar, Series, _Scale, accuracy_chart, line_chart, plane


def numbers(pattern, text):
    return [[float(number) for number in found] for found in re.findall(pattern, text)]


def test_points_stand_where_their_values_are():
    points = np.array([[10, 4.0], [100, 3.0], [1000, 2.0]])
    shown = line_chart([Series("NLL", points)], Axis("tokens", log=True), Axis("nats"), "losses")
    [path] = re.findall(r'<path d="M([^"]*)" class="line s0"', shown)
    places = np.array([[float(u) for u in place.split(",")] for place in path.split("L")])  # of 1000
    # The range of y is that of the values and 4 % more at each end: 1.92 to 4.08.
    assert places == pytest.approx(
        np.array([[0, 1000 * 0.08 / 2.16], [500, 500], [1000, 1000 * 2.08 / 2.16]]), abs=0.06
    )
    assert 'aria-label="losses"' in shown


def test_dots_and_references():
    points = np.array([[0.0, 1.0], [4.0, 3.0]])
    shown = line_chart([Series("", points, 1, dots=True)], Axis("x"), Axis("y"), "", {"<b>": 3.0, "near": 2.99})
    assert numbers(r'cx="([\d.]+)%" cy="([\d.]+)%"', shown) == [[0, 96.3], [100, 3.7]]
    assert shown.count('class="reference"') == 2 and "near" in shown
    assert "&lt;b&gt;" not in shown and "<b>" not in shown, "of labels that would overlap the last is shown"
    assert "legend" not in shown, "a series without a name has no legend"


def test_a_reference_has_its_label_where_no_line_is():
    falling = [Series("", np.array([[0.0, 5.0], [4.0, 2.0]]))]
    shown = line_chart(falling, Axis("x"), Axis("y"), "", {"unigram": 4.5, "bigram": 2.5})
    places = dict(re.findall(r'<text x="([^"]*)"[^>]* dy="-5" class="tick halo(?: end)?">(\w+)', shown))
    assert places == {"100%": "unigram", "4": "bigram"}


@pytest.mark.parametrize(
    ("values", "log", "ticks"),
    [
        ([0, 100], False, ["0", "20", "40", "60", "80", "100"]),
        ([2.05, 4.75], False, ["2.5", "3.0", "3.5", "4.0", "4.5"]),
        ([2.1, 2.9], False, ["2.2", "2.4", "2.6", "2.8"]),
        ([-0.3, 0.01], False, ["-0.3", "-0.2", "-0.1", "0.0"]),
        ([10_000, 3_000_000], True, ["10k", "30k", "100k", "300k", "1M", "3M"]),
        ([1e-6, 1], True, ["10⁻⁶", "10⁻⁵", "10⁻⁴", "10⁻³", "0.01", "0.1", "1"]),
        ([21_000, 29_000], True, ["22,000", "24,000", "26,000", "28,000"]),
        ([5, 5], False, ["4.6", "4.8", "5.0", "5.2", "5.4"]),
    ],
)
def test_ticks_are_few_and_round(values, log, ticks):
    scale = _Scale(np.array(values, float), log, margin=0)
    assert [text for _, text in scale.ticks()] == ticks
    assert all(-1e-9 <= scale(value) <= 1 + 1e-9 for value, _ in scale.ticks())


def test_accuracies_beside_others():
    bars = [Bar("overall", 75.0, [70.0, 80.0], {"GPT-2": 90.0})]
    shown = accuracy_chart(bars, {"GPT-2": ("ring", "s1")}, "this run")
    assert shown.count('class="reference"') == len(bars)
    assert 'class="reference"' not in accuracy_chart(bars, {"GPT-2": ("ring", "s1")}, "this run", None)
    # The axis begins at 40: the ten below 50, less 2.
    assert numbers(r'<line x1="([\d.]+)%" x2="([\d.]+)%"[^>]*class="range"', shown) == [[50, 66.67]]
    assert numbers(r'<svg x="([\d.]+)%" y="(50)%"', shown) == [[83.33, 50], [58.33, 50]]
    assert "overall: 75.0 [70.0, 80.0], GPT-2 90.0" in shown


def test_ticks_at_one_place_do_not_hide_each_other():
    bars = [Bar("overall", 75.0, None, {"length": 50.0, "GPT-2": 90.0, "unigram": 50.0})]
    marks = {"length": ("tick", "s3"), "unigram": ("tick", "s5"), "GPT-2": ("ring", "s1")}
    assert numbers(r"translate\((0),([-\d.]+)\)", accuracy_chart(bars, marks, "this run")) == [[0, -2.5], [0, 2.5]]


def test_eigenvalues_in_the_plane():
    shown = plane(np.array([0.5 + 0.25j, -1j]), {"unit circle": (1.0, "reference")}, "two", "W_rec")
    assert '<path d="M0.500,-0.250h0M-0.000,1.000h0"' in shown and 'viewBox="-1.08 -1.08 2.16 2.16"' in shown
