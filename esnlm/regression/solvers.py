"""Ridge regression onto real-valued targets, by Cholesky of the normal equations in float64.

RidgeSums      From sums that are added up piece by piece, so that no more features exist than those of one piece. They choose
               the penalty by cross-validation, too.
predict_ridge  From the smaller Gram matrix, of features or of samples. It serves many targets at one penalty.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import scipy.linalg

from esnlm.errors import InputError

FOLDS = 4


class RidgeSums:
    """Sums over rows of z z^T, z = (1, h, y), for each fold of the rows: all that a ridge regression y = W h + b asks of them.

    A row of the first piece is taken off h and y, so that means far above the deviations cost no digits. A penalty is relative to the
    mean eigenvalue of the Gram matrix; below F * 1e-14 it is lost in the rounding of the sums, and counts as this.
    """

    def __init__(self, outputs: int) -> None:
        self.outputs = outputs  # L
        self.by_fold = np.zeros((0, 0, 0))  # (folds, 1 + F + L, 1 + F + L)
        self.shift = np.zeros(0)  # (F + L,)

    def add(self, h: np.ndarray, y: np.ndarray, fold: np.ndarray) -> None:
        """Adds rows h (n, F) and y (n, L) of the folds `fold` (n,), 0 .. FOLDS - 1."""
        z = np.hstack([np.ones((len(h), 1)), h, y])
        if not len(self.by_fold):
            self.shift, self.by_fold = z[len(z) // 2, 1:].copy(), np.zeros((FOLDS, z.shape[1], z.shape[1]))
        z[:, 1:] -= self.shift
        for k in np.unique(fold):
            part = z if (fold == k).all() else z[fold == k]
            self.by_fold[k] += part.T @ part

    def choose(self, penalties: Sequence[float]) -> float:
        """Returns the penalty with the least squared error on the rows of each fold, after a fit to the others."""
        errors = np.zeros(len(penalties))
        for held, rest in self._splits():
            mean, gram, cross, scale = self._centred(rest)
            values, vectors = scipy.linalg.eigh(gram, driver="evd", overwrite_a=True, check_finite=False)
            rotated = vectors.T @ cross
            for i, penalty in enumerate(penalties):
                level = max(penalty, len(gram) * 1e-14) * scale
                w = vectors @ (rotated / (np.maximum(values, 0) + level)[:, None])
                missed = np.vstack([self._affine(mean, w), -np.eye(self.outputs)])  # of W h + b - y
                errors[i] += np.sum(missed * (held @ missed))
        return penalties[int(np.argmin(errors))]

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
            m = np.eye(len(held), 1 + 2 * self.outputs)  # (1 + F + L, 1 + 2 L), from z
            m[:, 1:] = 0
            m[:features, 1 : 1 + self.outputs] = self._fit(rest, penalty)
            m[features:, 1 + self.outputs :] = np.eye(self.outputs)
            m[0, 1:] += np.tile(self.shift[features:], 2)
            moments += m.T @ held @ m
        return moments

    def _splits(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields the sums of each fold, and those of the other rows, if there are both."""
        total = self.by_fold.sum(axis=0)
        return ((held, total - held) for held in self.by_fold if 0 < held[0, 0] < total[0, 0])

    def _centred(self, sums: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
        """Returns the means (F + L,), the Gram matrix (F, F) and the sums of h y^T (F, L) about them, and the mean eigenvalue."""
        mean = sums[0, 1:] / sums[0, 0]
        about = sums[1:, 1:] - np.outer(sums[0, 1:], mean)
        gram, cross = about[: -self.outputs, : -self.outputs], about[: -self.outputs, -self.outputs :]
        return mean, gram, cross, float(np.trace(gram)) / len(gram) or 1.0

    def _affine(self, mean: np.ndarray, w: np.ndarray) -> np.ndarray:
        """Returns (b, W)^T, (1 + F, L), of w (F, L) about the means."""
        return np.vstack([mean[-self.outputs :] - mean[: -self.outputs] @ w, w])

    def _fit(self, sums: np.ndarray, penalty: float) -> np.ndarray:
        """Returns (b, W)^T, (1 + F, L)."""
        mean, gram, cross, scale = self._centred(sums)
        gram = gram + max(penalty, len(gram) * 1e-14) * scale * np.eye(len(gram))
        return self._affine(mean, scipy.linalg.cho_solve(scipy.linalg.cho_factor(gram, overwrite_a=True), cross))


def folds(lengths: Sequence[int], rng: np.random.Generator) -> np.ndarray:
    """Returns the fold of each row, (n,) int: of several sequences whole ones, of one alone its quarters.

    The rows of a sequence are alike: a penalty that is chosen by some of them beside others of the fit would be too small.
    """
    if len(lengths) == 1:
        return np.arange(lengths[0]) * FOLDS // lengths[0]
    return np.repeat((rng.permutation(len(lengths)) + rng.integers(FOLDS)) % FOLDS, lengths)


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
