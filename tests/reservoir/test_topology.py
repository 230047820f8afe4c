"""Bernoulli connectivity, drawn without the matrix."""

import numpy as np
import pytest

from esnlm.reservoir.topology import erdos_renyi


def draw(rows, columns, connectivity, seed=0):
    return erdos_renyi(rows, columns, connectivity, np.random.default_rng(seed))


def assert_sorted_without_duplicates(row, column, rows, columns):
    flat = row.astype(np.int64) * columns + column
    assert (np.diff(flat) > 0).all()
    assert row.min() >= 0 and row.max() < rows and column.min() >= 0 and column.max() < columns


@pytest.mark.parametrize("connectivity", [0.1, 0.3, 0.9])
def test_every_cell_is_an_independent_coin(connectivity):
    """Over 2,000 draws of a 6 x 7 matrix each cell is on as often as the coin says, and no two go together."""
    rng, hits = np.random.default_rng(1), np.zeros((2000, 42))
    for draw_ in hits:
        row, column = erdos_renyi(6, 7, connectivity, rng)
        draw_[row * 7 + column] = 1
    error = np.sqrt(connectivity * (1 - connectivity) / 2000)
    assert np.abs(hits.mean(0) - connectivity).max() < 4 * error
    covariance = np.cov(hits.T)[np.triu_indices(42, 1)]
    assert np.abs(covariance).max() < 5 * connectivity * (1 - connectivity) / np.sqrt(2000)


def test_connectivity_one_is_every_cell():
    row, column = draw(3, 4, 1.0)
    assert list(zip(row, column, strict=True)) == [(i, j) for i in range(3) for j in range(4)]


def test_the_same_seed_gives_the_same_positions():
    first, again, other = draw(100, 100, 0.1, 5), draw(100, 100, 0.1, 5), draw(100, 100, 0.1, 6)
    assert np.array_equal(first, again)
    assert not np.array_equal(first[0][:50], other[0][:50]) or not np.array_equal(first[1][:50], other[1][:50])


def test_the_papers_largest_input_matrix():
    """W_in at N = 65,536 and V = 50,257: N * V passes 2**31, and row and column counts are Binomial."""
    n, v, d = 65_536, 50_257, 32
    row, column = draw(n, v, d / n)
    assert_sorted_without_duplicates(row, column, n, v)
    assert abs(len(row) - v * d) < 5 * np.sqrt(v * d)
    for counts, mean in ((np.bincount(column, minlength=v), d), (np.bincount(row, minlength=n), v * d / n)):
        assert abs(counts.mean() - mean) < 5 * np.sqrt(mean / len(counts))
        # A Binomial's variance is mean * (1 - d / n); the sample variance of k counts errs by mean * sqrt(2 / k).
        assert abs(counts.var() - mean) < 6 * mean * np.sqrt(2 / len(counts))
    # No stretch of rows is favoured, which a walk that overflowed would do.
    eighths = np.bincount(row.astype(np.int64) * 8 // n, minlength=8)
    assert np.abs(eighths - len(row) / 8).max() < 5 * np.sqrt(len(row) / 8)
