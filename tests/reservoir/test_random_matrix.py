"""Random positions are independent coins, at the papers' largest sizes too."""

import numpy as np
import pytest

from esnlm.reservoir.topology import bernoulli_positions
from tests.reservoir.test_topology import assert_sorted_without_duplicates


@pytest.mark.parametrize("density", [0.1, 0.3, 0.9])
def test_every_cell_is_an_independent_coin(density):
    rng, hits = np.random.default_rng(1), np.zeros((2000, 42))
    for draw_ in hits:
        row, column = bernoulli_positions(6, 7, density, rng)
        draw_[row * 7 + column] = 1
    error = np.sqrt(density * (1 - density) / 2000)
    assert np.abs(hits.mean(0) - density).max() < 4 * error
    covariance = np.cov(hits.T)[np.triu_indices(42, 1)]
    assert np.abs(covariance).max() < 5 * density * (1 - density) / np.sqrt(2000)


def test_density_one_is_every_cell():
    row, column = bernoulli_positions(3, 4, 1.0, np.random.default_rng(0))
    assert list(zip(row, column, strict=True)) == [(i, j) for i in range(3) for j in range(4)]


def test_the_papers_largest_input_matrix():
    """W_in at N = 65,536 and V = 50,257: N * V passes 2**31, and row and column counts are
    Binomial."""
    n, v, d = 65_536, 50_257, 32
    row, column = bernoulli_positions(n, v, d / n, np.random.default_rng(0))
    assert_sorted_without_duplicates(row, column, n, v)
    assert abs(len(row) - v * d) < 5 * np.sqrt(v * d)
    for counts, mean in (
        (np.bincount(column, minlength=v), d),
        (np.bincount(row, minlength=n), v * d / n),
    ):
        assert abs(counts.mean() - mean) < 5 * np.sqrt(mean / len(counts))
        # A Binomial's variance is mean * (1 - d / n); the sample variance of k counts errs by mean
        # * sqrt(2 / k).
        assert abs(counts.var() - mean) < 6 * mean * np.sqrt(2 / len(counts))
    # No stretch of rows is favoured, which a walk that overflowed would do.
    eighths = np.bincount(row.astype(np.int64) * 8 // n, minlength=8)
    assert np.abs(eighths - len(row) / 8).max() < 5 * np.sqrt(len(row) / 8)
