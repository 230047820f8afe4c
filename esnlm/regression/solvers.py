"""Ridge regression onto real-valued targets, solved in the ways that differ numerically.

solve_by_svd   From the features themselves, by singular values: the normal equations would square their condition, which
               matters for a network that generates. It takes memory for all samples. `solve_centred` adds an intercept.
predict_ridge  From the smaller Gram matrix, by Cholesky. It serves many targets at one penalty, in float64 beside
               features in float32, where a penalty keeps the condition low.
"""

from collections.abc import Callable

import numpy as np
import scipy.linalg

from esnlm.errors import InputError


def solve_by_svd(features: np.ndarray, targets: np.ndarray, penalty: float) -> np.ndarray:
    """Returns W (L, F) of least |targets - features W^T|^2 + penalty |W|^2; at 0 the pseudo-inverse gives it.

    Features are (T, F) and targets (T, L), float64.
    """
    left, values, right = scipy.linalg.svd(features, full_matrices=False)
    kept = values > values[0] * max(features.shape) * np.finfo(np.float64).eps
    gain = np.where(kept, values, 0) / np.where(kept, values**2 + penalty, 1)
    return ((left.T @ targets) * gain[:, None]).T @ right


def solve_centred(features: np.ndarray, targets: np.ndarray, ridge: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns W (L, F) and the intercept (L,), which is not penalised, of a ridge regression by `solve_by_svd`.

    `ridge` is relative to the mean eigenvalue of the centred features' Gram matrix.
    """
    mean, target_mean = features.mean(axis=0), targets.mean(axis=0)
    centred = features - mean
    w = solve_by_svd(centred, targets - target_mean, ridge * float(np.square(centred).sum()) / features.shape[1])
    return w, target_mean - w @ mean


def predict_ridge(x: np.ndarray, y: np.ndarray, test: np.ndarray, ridge: float) -> np.ndarray:
    """Fits y (S, K) on x (S, F) with an intercept where not `test` (S,), and returns the predictions where it is.

    `ridge` is relative to the mean diagonal of the smaller Gram matrix, of features or of samples. Raises InputError if that penalty
    is not above 0.
    """
    train = ~test
    mean = x[train].mean(axis=0, dtype=np.float64), y[train].mean(axis=0)
    y_train = y[train] - mean[1]
    if x.shape[1] <= train.sum():
        x = x - mean[0]
        solve = _penalized_solver(x[train].T @ x[train], ridge)
        return x[test] @ solve(x[train].T @ y_train) + mean[1]
    gram = gram_of_samples(x, mean[0])  # the dual form, with K of samples: y = K (K + lambda I)^-1 y_train
    solve = _penalized_solver(gram[np.ix_(train, train)], ridge)
    return gram[np.ix_(test, train)] @ solve(y_train) + mean[1]


def gram_of_samples(x: np.ndarray, mean: np.ndarray | float) -> np.ndarray:
    """Returns (x - mean) (x - mean)^T in float64, (S, S), without a float64 copy of x (S, F)."""
    mean = np.broadcast_to(mean, x.shape[1])
    total = np.zeros((len(x), len(x)))
    for start in range(0, x.shape[1], 4096):
        part = x[:, start : start + 4096] - mean[start : start + 4096]
        total += part @ part.T
    return total


def _penalized_solver(gram: np.ndarray, ridge: float) -> Callable[[np.ndarray], np.ndarray]:
    """Returns the function that solves (gram + lambda I) z = right, with lambda relative to the mean of the diagonal."""
    level = ridge * np.trace(gram) / len(gram)
    if not bool(level > 0):
        raise InputError(
            f"memory capacity: ridge {ridge:g} times the states' mean square is {level:g}; both must be above 0"
        )
    factor = scipy.linalg.cho_factor(gram + level * np.eye(len(gram)))
    return lambda right: scipy.linalg.cho_solve(factor, right)
