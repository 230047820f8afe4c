"""Ridge regression onto real-valued targets, by Cholesky of the normal equations in float64.

RidgeSums      From sums that are accumulated piece by piece; they also choose the penalty by cross-validation.
predict_ridge  From the smaller Gram matrix, of features or of samples, for many targets at one penalty.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import scipy.linalg

FOLDS = 4


class RidgeSums:
    """Sums of z z^T over the rows of each fold, z = (1, h, y), as needed for a ridge regression y = W h + b.

    A row of the first piece is subtracted from h and y, so that means far above the deviations cost no digits. A
    penalty is relative to the mean eigenvalue of the Gram matrix; values below F * 1e-14 would be lost in rounding and
    are raised to this.
    """

    def __init__(self, outputs: int) -> None:
        self.outputs = outputs  # L
        self.by_fold = np.zeros((0, 0, 0))  # (folds, 1 + F + L, 1 + F + L)
        self.shift = np.zeros(0)  # (F + L,)

    def add(self, h: np.ndarray, y: np.ndarray, fold: np.ndarray) -> None:
        """Adds rows h (n, F) and y (n, L) with folds `fold` (n,), 0 .. FOLDS - 1."""
        z = np.hstack([np.ones((len(h), 1)), h, y])
        if not len(self.by_fold):
            self.shift, self.by_fold = z[len(z) // 2, 1:].copy(), np.zeros((FOLDS, z.shape[1], z.shape[1]))
        z[:, 1:] -= self.shift
        for k in np.unique(fold):
            part = z if (fold == k).all() else z[fold == k]
            self.by_fold[k] += part.T @ part

    def choose(self, penalties: Sequence[float]) -> float:
        """Returns the penalty with the least squared error on the rows of each fold, after a fit to the others."""

        def error(penalty: float) -> float:
            missed = [
                (held, np.vstack([self._fit(rest, penalty), -np.eye(self.outputs)])) for held, rest in self._splits()
            ]
            return sum(float(np.sum(m * (held @ m))) for held, m in missed)

        return min(penalties, key=error)

    def solve(self, penalty: float) -> tuple[np.ndarray, np.ndarray]:
        """Returns W (L, F) and the intercept (L,), which is not penalised."""
        found, features = self._fit(self.by_fold.sum(axis=0), penalty), -self.outputs
        w = found[1:].T
        return w, found[0] + self.shift[features:] - w @ self.shift[:features]

    def held_out_moments(self, penalty: float) -> np.ndarray:
        """Returns the sums of m m^T, m = (1, W h + b, y), over the rows of each fold after a fit to the others, (1 + 2 L, 1 + 2 L)."""
        features, moments = -self.outputs, np.zeros((1 + 2 * self.outputs,) * 2)
        total = self.by_fold.sum(axis=0)
        for held, rest in list(self._splits()) or [(total, total)]:
            m = np.zeros((len(held), len(moments)))  # (1 + F + L, 1 + 2 L), from z
            m[0] = np.concatenate([[1], self.shift[features:], self.shift[features:]])
            m[:features, 1 : 1 + self.outputs] += self._fit(rest, penalty)
            m[features:, 1 + self.outputs :] = np.eye(self.outputs)
            moments += m.T @ held @ m
        return moments

    def _splits(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields the sums of each fold and of the other rows, if both have rows."""
        total = self.by_fold.sum(axis=0)
        return ((held, total - held) for held in self.by_fold if 0 < held[0, 0] < total[0, 0])

    def _fit(self, sums: np.ndarray, penalty: float) -> np.ndarray:
        """Returns (b, W)^T, (1 + F, L), for h and y without the shift."""
        features, mean = -self.outputs, sums[0, 1:] / sums[0, 0]
        about = sums[1:, 1:] - np.outer(sums[0, 1:], mean)
        gram, cross = about[:features, :features], about[:features, features:]
        level = max(penalty, len(gram) * 1e-14) * np.trace(gram) / len(gram)
        factor = scipy.linalg.cho_factor(gram + (level or 1.0) * np.eye(len(gram)), overwrite_a=True)
        w = scipy.linalg.cho_solve(factor, cross)
        return np.vstack([mean[features:] - mean[:features] @ w, w])


def folds(lengths: Sequence[int], rng: np.random.Generator) -> np.ndarray:
    """Returns the fold of each row, (n,) int: folds are whole sequences, or quarters of a single one.

    Rows of one sequence are similar, so a penalty chosen with only some of them held out would be too small.
    """
    if len(lengths) == 1:
        return np.arange(lengths[0]) * FOLDS // lengths[0]
    return np.repeat((rng.permutation(len(lengths)) + rng.integers(FOLDS)) % FOLDS, lengths)


def predict_ridge(x: np.ndarray, y: np.ndarray, test: np.ndarray, ridge: float) -> np.ndarray:
    """Fits y (S, K) on x (S, F) with an intercept on the rows outside `test` (S,), and returns predictions for `test`.

    `ridge` is relative to the mean diagonal of the smaller Gram matrix, of features or of samples.
    """
    train = ~test
    if x.shape[1] <= train.sum():
        sums = RidgeSums(y.shape[1])
        sums.add(x[train], y[train], np.zeros(train.sum(), int))
        w, intercept = sums.solve(ridge)
        return x[test] @ w.T + intercept
    mean = x[train].mean(axis=0, dtype=np.float64), y[train].mean(axis=0)
    gram = gram_of_samples(x, mean[0])  # the dual form, with K of samples: y = K (K + lambda I)^-1 y_train
    fitted = gram[np.ix_(train, train)]
    level = ridge * np.trace(fitted) / len(fitted)
    weights = scipy.linalg.solve(fitted + level * np.eye(len(fitted)), y[train] - mean[1], assume_a="pos")
    return gram[np.ix_(test, train)] @ weights + mean[1]


def gram_of_samples(x: np.ndarray, mean: np.ndarray | float) -> np.ndarray:
    """Returns (x - mean) (x - mean)^T in float64, (S, S), without a float64 copy of x (S, F)."""
    mean = np.broadcast_to(mean, x.shape[1])
    total = np.zeros((len(x), len(x)))
    for start in range(0, x.shape[1], 4096):
        part = x[:, start : start + 4096] - mean[start : start + 4096]
        total += part @ part.T
    return total
