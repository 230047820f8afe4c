"""How figures are written: their digits, and means over seeds."""

import math

from esnlm.evaluation.statistics import mean_over_seeds
from esnlm.reports.figures import FIGURES, format_figure, format_interval, format_mean


def test_a_figure_is_written_with_its_digits():
    assert FIGURES["val_nll"].title == "val NLL"
    assert format_figure("val_nll", 2.18349) == "2.183"
    assert format_figure("total_params", 1234567) == "1,234,567"
    assert format_figure("val_nll", 2.31e17) == "2.31e+17"
    assert (format_figure("val_nll", math.inf), format_figure("val_nll", None)) == ("inf", "")


def test_a_mean_over_seeds_is_written_with_its_deviation_or_interval():
    mean = mean_over_seeds([5.0, 5.1, 5.2])
    assert format_mean("val_nll", mean) == "5.100 ± 0.100"
    # Student's t with 2 degrees of freedom: 4.3027 * 0.1 / sqrt(3) = 0.2484
    assert format_mean("val_nll", mean, as_interval=True) == "5.100 [4.852, 5.348]"


def test_a_mean_without_spread_is_one_number():
    assert format_mean("total_params", mean_over_seeds([3000, 3000])) == "3,000"
    assert format_mean("val_nll", mean_over_seeds([5.0])) == "5.000"
    assert format_mean("val_nll", mean_over_seeds([5.0, 5.2]), as_interval=True) == "5.100"
    assert format_mean("val_nll", mean_over_seeds([None])) == ""


def test_an_interval_is_two_bounds():
    assert format_interval([61.23, 63.46]) == "61.2, 63.5"
    assert format_interval([61.23, 63.46], 2) == "61.23, 63.46"
