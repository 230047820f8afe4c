"""Diagonal linear units are fading averages of random codes."""

import numpy as np
import pytest

from experiments.frozen_cells.diagonal import Diagonal, DiagonalConfig
from tests import deep_oracle
from tests.models.running import features, in_two_steps

V, SENTENCE = 20, [3, 7, 7, 0, 19, 3, 5, 5, 11]
EPS = float(np.finfo(np.float32).eps)


@pytest.mark.parametrize("token_dependence", [0.0, 0.7])
def test_the_features_are_those_of_the_equations(token_dependence):
    config = DiagonalConfig(units=12, shortest=0.5, longest=30.0, token_dependence=token_dependence)
    arrays, _ = config.initialize(V, 0, None)
    expected = deep_oracle.diagonal(deep_oracle.float64(arrays), SENTENCE)
    # An average moves by at most the codes, which are below 4, in each of nine steps of a few
    # roundings; the factor of the slowest unit is below 8.
    tolerance = 8 * 4 * 4 * len(SENTENCE) * EPS
    for run in (features, in_two_steps):
        np.testing.assert_allclose(
            run(Diagonal(**arrays), SENTENCE), expected, rtol=0, atol=tolerance
        )


def test_the_time_scales_are_spaced_evenly_in_their_logarithm():
    arrays, _ = DiagonalConfig(units=3, shortest=1.0, longest=100.0).initialize(V, 0, None)
    np.testing.assert_allclose(arrays["time_scales"], [1, 10, 100], rtol=1e-6)
    assert "factors" not in arrays


def test_all_units_have_about_the_variance_of_a_code():
    config = DiagonalConfig(units=4, longest=8.0)
    arrays, _ = config.initialize(3000, 0, None)
    found = features(Diagonal(**arrays), np.random.default_rng(1).integers(3000, size=1500))
    # After the slowest unit has filled up, each has some hundred independent values: 4 standard
    # errors of a variance.
    np.testing.assert_allclose(found[100:].var(axis=0), 1, atol=4 * np.sqrt(2 / (1400 / 16)))
