"""Features and next tokens that a regression is to learn, and its answer by plain least squares in
float64."""

import numpy as np

from esnlm.readout.base import Window

N, V, TOKENS = 12, 9, 400


def problem(seed=0, tokens=TOKENS):
    """Features (tokens, N) float32 with a mean of their own, and targets (tokens,) that depend on
    them; token 8 never occurs."""
    rng = np.random.default_rng(seed)
    features = (
        rng.normal(size=(tokens, N)) @ np.random.default_rng(9).normal(size=(N, N)) + 0.5
    ).astype(np.float32)
    likely = features @ np.random.default_rng(7).normal(size=(N, V - 1)) + rng.gumbel(
        size=(tokens, V - 1)
    )
    return features, likely.argmax(1)


def least_squares(features, targets, penalty, weights=None):
    """(W (V, N), intercept (V,)) that minimise sum_t weight_t |d_t - W h_t - c|^2 + sum_i penalty_i
    |column i of (W, c)|^2."""
    x = np.hstack([features.astype(np.float64), np.ones((len(features), 1))])
    weights = np.ones(len(x)) if weights is None else weights
    d = np.eye(V)[targets]
    found = np.linalg.solve(
        x.T @ (weights[:, None] * x) + np.diag(penalty), x.T @ (weights[:, None] * d)
    )  # (N + 1, V)
    return found[:-1].T, found[-1]


def window(features, rows, targets):
    """Returns the window of one sentence whose features lie in `rows`."""
    return Window(features, [rows], targets)
