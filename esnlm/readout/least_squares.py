"""Ridge regression onto real-valued targets, by Cholesky of the normal equations in float64.

    y = W h + b,    W = C (G + lambda I)^-1
    G = sum (h - m)(h - m)^T,    C = sum (y - n)(h - m)^T

over all rows, with the means m of h and n of y: the intercept b = n - W m is not penalised.

    RidgeSums      from sums over rows that come in pieces; chooses lambda by cross-validation
    predict_ridge  from the smaller Gram matrix, of features or of samples, at one lambda
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, reduce
from typing import NamedTuple

import numpy as np
import scipy.linalg

from esnlm.readout.base import row_blocks

FOLDS = 4
# Relative to their size, smaller differences of states and sums may be rounding errors.
RESOLUTION = 1e-14


class Moments(NamedTuple):
    """Number, mean and scatter of rows z; the scatter is the sum of (z - mean) (z - mean)^T."""

    rows: int  # their number
    mean: np.ndarray  # (K,)
    scatter: np.ndarray  # (K, K)

    @classmethod
    def of(cls, rows: np.ndarray) -> "Moments":
        """Returns the moments of rows (n, K)."""
        mean = rows.mean(axis=0)
        deviations = rows - mean
        return cls(len(rows), mean, deviations.T @ deviations)

    def merge(self, other: "Moments") -> "Moments":
        """Returns the moments of the rows of both.

        Exact up to rounding (Chan, Golub and LeVeque 1983), so the order and size of the pieces do
        not matter, and means far above the deviations cost no digits.
        """
        rows, step = self.rows + other.rows, other.mean - self.mean
        between = np.outer(self.rows * other.rows / rows * step, step)
        between += self.scatter
        between += other.scatter
        return Moments(rows, self.mean + step * (other.rows / rows), between)


class Solution(NamedTuple):
    """A ridge regression y = W h + b."""

    penalty: float
    w: np.ndarray  # (L, F)
    intercept: np.ndarray  # (L,), not penalised


class RidgeSums:
    """Sums for a ridge regression y = W h + b and its cross-validation: moments of (h, y) in folds.

    Rows of one sequence are similar, so a penalty chosen with only some of them held out would be
    too small. Folds are therefore whole sequences: each FOLDS consecutive ones are assigned to the
    folds at random. A single sequence is divided into its quarters, as near as segments come; the
    length of a segment is the largest power of two that makes at least FOLDS of them. So folds
    depend on the rows, but not on the pieces in which they are added.

    A penalty is relative to the mean variance of the features, times the rows of a fit. It is
    raised to RESOLUTION times the trace of the Gram matrix, below which it would be lost in
    rounding. If all h are equal up to rounding, W is 0.

    Args:
        outputs: L.
        rng: assigns sequences to folds.
        penalties: one, or several to choose from by cross-validation.
        from_rest: whether a sequence begins with the transient from the state 0. Of a single
            sequence, the first quarter is then never held out, and does not count in the variance
            that penalties are relative to.
    """

    def __init__(
        self,
        outputs: int,
        rng: np.random.Generator,
        penalties: Sequence[float],
        from_rest: bool = False,
    ) -> None:
        self.outputs = outputs
        self.rng = rng
        self.penalties = penalties
        self.from_rest = from_rest
        self.sequences = 0
        self.order = np.zeros(0, int)  # folds of the last FOLDS sequences
        self.parts: list[Moments] = []  # segments of a single sequence, or the folds of several
        self.segment = 1  # rows of a full segment

    @cached_property
    def solution(self) -> Solution:
        """The result of `solve`, computed when it is first used after `add`."""
        return self.solve()

    def add(self, h: np.ndarray, y: np.ndarray, begins: bool) -> None:
        """Adds rows h (n, F) and y (n, L), n >= 1, to the last sequence, or to a new one."""
        self.__dict__.pop("solution", None)
        if begins:
            self._begin_sequence()
        rows = np.hstack([h, y])
        if self.sequences == 1:
            self._extend_segments(rows)
        else:
            fold = self.order[(self.sequences - 1) % FOLDS]
            self.parts[fold] = self.parts[fold].merge(Moments.of(rows))

    def solve(self) -> Solution:
        """Returns the regression of all rows so far, at the best of the penalties."""
        folds, first = self._folds()
        penalty = self.penalties[0] if len(self.penalties) == 1 else self._best_penalty()
        w, intercept = _fit(_merged(folds), self.outputs, penalty * self._variance(folds[first:]))
        return Solution(penalty, w.T, intercept)

    def held_out_moments(self, penalty: float) -> Moments:
        """Returns the moments of (W h + b, y), (2 L,), each fold predicted by a fit to the others.

        Folds that cannot be held out are predicted by the fit to all rows.
        """
        folds, first = self._folds()
        level = penalty * self._variance(folds[first:])
        fit_to_all = _fit(_merged(folds), self.outputs, level)
        scores = []
        for fold, others in self._splits(folds, first):
            w, intercept = fit_to_all if others is None else _fit(others, self.outputs, level)
            project = scipy.linalg.block_diag(w, np.eye(self.outputs))  # (F + L, 2 L)
            mean = fold.mean @ project
            mean[: self.outputs] += intercept
            scores.append(Moments(fold.rows, mean, project.T @ fold.scatter @ project))
        return _merged(scores)

    def _best_penalty(self) -> float:
        """Returns the penalty with the least squared error on each fold after a fit to the others.

        Equal errors give the largest penalty, and so do rows of which no fold can be held out.
        Penalties that are lost in rounding are left out.
        """
        folds, first = self._folds()
        variance = self._variance(folds[first:])
        lost = RESOLUTION * (len(folds[0].mean) - self.outputs) * self._variance(folds)
        candidates = sorted((p for p in self.penalties if p * variance >= lost), reverse=True)
        errors = dict.fromkeys(candidates, 0.0)
        for held_out, others in self._splits(folds, first):
            if others is not None:
                for penalty in candidates:
                    fit = _fit(others, self.outputs, penalty * variance)
                    errors[penalty] += _squared_error(held_out, *fit)
        return min(candidates, key=errors.__getitem__, default=max(self.penalties))

    def _begin_sequence(self) -> None:
        if self.sequences % FOLDS == 0:
            self.order = self.rng.permutation(FOLDS)
        if self.sequences == 1:
            first = _merged(self.parts)
            empty = Moments(0, np.zeros_like(first.mean), np.zeros_like(first.scatter))
            self.parts = [first if fold == self.order[0] else empty for fold in range(FOLDS)]
        self.sequences += 1

    def _extend_segments(self, rows: np.ndarray) -> None:
        """Adds rows to the single sequence; neighbours merge from 2 FOLDS full segments on."""
        count = sum(part.rows for part in self.parts)
        while count + len(rows) >= 2 * FOLDS * self.segment:
            self.segment *= 2
            self.parts = [_merged(self.parts[i : i + 2]) for i in range(0, len(self.parts), 2)]
        filled = count % self.segment  # rows of a last segment that has room
        for piece in np.split(rows, range(self.segment - filled, len(rows), self.segment)):
            moments = Moments.of(piece)
            self.parts.append(self.parts.pop().merge(moments) if filled else moments)
            filled = 0

    def _folds(self) -> tuple[list[Moments], int]:
        """Returns the folds that have rows, and the first one that may be held out.

        Those of a single sequence are in temporal order. The transient may reach the first of them.
        """
        if self.sequences > 1:
            return [part for part in self.parts if part.rows], 0
        counts = np.array([part.rows for part in self.parts])
        middles = np.cumsum(counts) - counts / 2
        quarters = (middles * FOLDS / counts.sum()).astype(int)
        folds = [
            _merged([self.parts[i] for i in np.flatnonzero(quarters == quarter)])
            for quarter in np.unique(quarters)
        ]
        return folds, int(self.from_rest and len(folds) > 1)

    def _splits(self, folds: list[Moments], first: int) -> Iterator[tuple[Moments, Moments | None]]:
        """Yields each fold and the moments of the other rows, None if the fold cannot be held out.

        A fold cannot be held out if it has the transient, or if the other rows miss what it has: a
        target that varies is constant there, such as the indicator of a class that only this fold
        has.
        """
        spread = self._spread_of_targets(_merged(folds))
        for i, fold in enumerate(folds):
            others = folds[:i] + folds[i + 1 :]
            rest = _merged(others) if others and i >= first else None
            if rest is not None:
                constant = self._spread_of_targets(rest) <= RESOLUTION * spread
                rest = None if constant[spread > 0].any() else rest
            yield fold, rest

    def _spread_of_targets(self, moments: Moments) -> np.ndarray:
        return np.diag(moments.scatter)[-self.outputs :]  # (L,)

    def _variance(self, folds: list[Moments]) -> float:
        """Returns the mean variance of the features."""
        total = _merged(folds)
        return float(np.mean(np.diag(total.scatter)[: -self.outputs]) / total.rows)


def predict_ridge(x: np.ndarray, y: np.ndarray, test: np.ndarray, ridge: float) -> np.ndarray:
    """Fits y (S, K) on x (S, F) outside the rows `test` (S,), and returns predictions for these.

    The intercept is not penalised. `ridge` is relative to the mean diagonal of the smaller Gram
    matrix, of features or of samples. If all fitted x are equal, the prediction is the mean of y.
    """
    train = np.flatnonzero(~test)
    features = x.shape[1]
    if features <= len(train):
        blocks = (train[block] for block in row_blocks(len(train), features))
        moments = _merged(
            Moments.of(np.hstack([x[rows], y[rows]]).astype(np.float64, copy=False))
            for rows in blocks
        )
        level = ridge * float(np.mean(np.diag(moments.scatter)[:features])) / moments.rows
        w, intercept = _fit(moments, y.shape[1], level)
        return x[test] @ w + intercept
    mean_x, mean_y = x[train].mean(axis=0, dtype=np.float64), y[train].mean(axis=0)
    # the dual form, with K of samples: y = K (K + lambda I)^-1 y_train
    gram = gram_of_samples(x, mean_x)
    fitted = gram[np.ix_(train, train)]
    level = ridge * np.trace(fitted) / len(train)
    weights = _solve(fitted, y[train] - mean_y, level, len(train) * (mean_x @ mean_x))
    return gram[np.ix_(test, train)] @ weights + mean_y


def gram_of_samples(x: np.ndarray, mean: np.ndarray | float) -> np.ndarray:
    """Returns (x - mean) (x - mean)^T in float64, (S, S), without a float64 copy of x (S, F)."""
    mean = np.broadcast_to(mean, x.shape[1])
    total = np.zeros((len(x), len(x)))
    for start in range(0, x.shape[1], 4096):
        part = x[:, start : start + 4096] - mean[start : start + 4096]
        total += part @ part.T
    return total


def _merged(parts: Iterable[Moments]) -> Moments:
    return reduce(Moments.merge, parts)


def _fit(moments: Moments, outputs: int, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns W^T (F, L) and b (L,) for moments of (h, y), at lambda = level times the rows."""
    mean_h, mean_y = np.split(moments.mean, [-outputs])
    gram, cross = np.split(moments.scatter[:-outputs], [-outputs], axis=1)
    w = _solve(gram, cross, level * moments.rows, moments.rows * (mean_h @ mean_h))
    return w, mean_y - mean_h @ w


def _solve(gram: np.ndarray, targets: np.ndarray, level: float, size: float) -> np.ndarray:
    """Returns (G + level I)^-1 times the targets, 0 if the features are equal up to rounding.

    G is the Gram matrix of centred rows, and `size` the sum of squares of the means that were
    subtracted. The level is raised to RESOLUTION tr(G), so that the matrix is positive definite in
    float64.
    """
    trace = np.trace(gram)
    if trace <= RESOLUTION**2 * size:
        return np.zeros(targets.shape)
    penalized = gram.copy(order="F")
    penalized[np.diag_indices_from(penalized)] += max(level, RESOLUTION * trace)
    return scipy.linalg.cho_solve(scipy.linalg.cho_factor(penalized, overwrite_a=True), targets)


def _squared_error(moments: Moments, w: np.ndarray, intercept: np.ndarray) -> float:
    """Returns the sum of |y - W h - b|^2 over the rows of the moments of (h, y)."""
    project = np.vstack([-w, np.eye(len(intercept))])
    mean = moments.mean @ project - intercept
    spread = np.sum(project * (moments.scatter @ project))
    return float(spread + moments.rows * (mean @ mean))
