"""The frozen GRU has the equations of Cho et al. 2014, with sparse random matrices."""

import numpy as np
import pytest
import scipy.sparse

from experiments.frozen_cells.gru import GruConfig
from tests import deep_oracle
from tests.models.running import features, in_two_steps

V, N, SENTENCE = 20, 16, [3, 7, 7, 0, 19, 3, 5, 5, 11]
EPS = float(np.finfo(np.float32).eps)
CONFIG = GruConfig(units=N, mean_degree=4.0, recurrent_scale=1.5, input_scale=0.5)


@pytest.fixture(scope="module")
def arrays():
    return CONFIG.initialize(V, 0, None)[0]


def dense(arrays, rows, columns):
    row, column = arrays["indices"].T
    return scipy.sparse.coo_array(
        (arrays["values"].astype(np.float64), (row, column)), (rows, columns)
    ).toarray()


@pytest.mark.parametrize("kernel", ["bcoo", "csr", "dense"])
def test_the_features_are_those_of_the_equations(arrays, kernel):
    u_z, u_r = np.split(dense(arrays["gates"], 2 * N, N), 2)
    w_z, w_r, w_c = np.split(dense(arrays["input"], 3 * N, V), 3)
    matrices = u_z, u_r, dense(arrays["candidate"], N, N), w_z, w_r, w_c
    expected = deep_oracle.gru(*matrices, arrays["bias"].astype(np.float64), SENTENCE)
    cell = CONFIG.cells(arrays, V)[0].for_device(kernel)
    # A step adds up some tens of products of order 1 in each of its sums. It can enlarge what was
    # off before by the norms of its matrices, here by less than 2 in all nine steps together.
    for run in (features, in_two_steps):
        np.testing.assert_allclose(
            run(cell, SENTENCE), expected, rtol=0, atol=2 * len(SENTENCE) * 40 * EPS
        )


def test_gates_at_rest_have_time_scales_up_to_the_longest(arrays):
    rest = 1 / deep_oracle.sigmoid(arrays["bias"].astype(np.float64))
    np.testing.assert_allclose(rest[[0, -1]], [1.5, CONFIG.longest], rtol=1e-5)
    np.testing.assert_allclose(
        np.diff(np.log(rest)), np.log(CONFIG.longest / 1.5) / (N - 1), rtol=1e-4
    )


def test_the_counts_are_those_of_the_matrices(arrays):
    assert CONFIG.cells(arrays, V)[0].nonzeros == sum(
        len(arrays[name]["values"]) for name in ("gates", "candidate", "input")
    ) + len(arrays["bias"])
    assert CONFIG.counts(V)[1] == 3 * N * N + 3 * N * V + N
    many = GruConfig(units=300, mean_degree=8.0)
    nonzeros = many.cells(many.initialize(1000, 1, None)[0], 1000)[0].nonzeros
    expected, _ = many.counts(1000)
    assert abs(nonzeros - expected) < 4 * np.sqrt(expected)  # a sum of Bernoulli numbers
