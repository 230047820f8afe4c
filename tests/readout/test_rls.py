"""Recursive least squares: in blocks of any size, and with forgetting, what one weighted
least-squares solution gives."""

import numpy as np
import pytest

from esnlm.base.errors import InputError
from esnlm.readout import rls
from esnlm.readout.rls import RecursiveLeastSquares
from tests.readout.regression_problem import TOKENS, N, V, least_squares, problem, window

LOG_P = np.log((np.bincount(problem()[1], minlength=V) + 1) / (TOKENS + V))


def taken_in(config, features, targets):
    sums = config.start(N, V)
    for part in np.array_split(np.arange(len(targets)), 3):
        updates = config.accumulate(sums, window(features, part, targets[part]), "float32")
        assert updates == -(-len(part) // config.block) or config.forgetting < 1
    return sums


@pytest.mark.parametrize("smallest", [1e-100, 0.5])
@pytest.mark.parametrize("block, forgetting", [(3, 1.0), (3, 0.95), (64, 0.99), (1000, 0.95)])
def test_it_is_the_weighted_least_squares_solution(forgetting, block, smallest, monkeypatch):
    monkeypatch.setattr(rls, "SMALLEST_FADED", smallest)
    features, targets = problem()
    delta = 0.1
    found = rls.solution(
        taken_in(
            RecursiveLeastSquares(block=block, forgetting=forgetting, delta=delta),
            features,
            targets,
        )
    )
    weights = forgetting ** np.arange(TOKENS - 1, -1, -1.0)
    expected = least_squares(features, targets, [delta * forgetting**TOKENS] * (N + 1), weights)
    # Float64 throughout; the solution is known to the condition number, of some 1e5, times 1e-16.
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-9 * np.abs(expected[0]).max())


def test_float64_that_does_not_suffice_is_refused():
    features, targets = problem()
    with pytest.raises(InputError, match="training.delta"):
        taken_in(
            RecursiveLeastSquares(delta=1e-300, block=4),
            np.repeat(features[:, :1], N, axis=1),
            targets,
        )
