"""Ridge regression onto real-valued targets, by Cholesky of the normal equations in float64.

    y = W h + b,    W = C (G + lambda I)^-1
    G = sum (h - m)(h - m)^T,    C = sum (y - n)(h - m)^T

over all rows, with the means m of h and n of y: the intercept b = n - W m is not penalised.

Three numbers are called penalties in the code:

    penalty            lambda
    penalty_per_row    lambda / rows
    relative_penalty   lambda / (rows times the mean variance of the features)
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
import scipy.linalg

FOLDS = 4
# Relative to their size, smaller differences of states and sums may be rounding errors.
RESOLUTION = 1e-14


class Moments(NamedTuple):
    """Number, mean and scatter of rows z; the scatter is the sum of (z - mean) (z - mean)^T."""

    n_rows: int
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
        n_rows, step = self.n_rows + other.n_rows, other.mean - self.mean
        scatter = np.outer(self.n_rows * other.n_rows / n_rows * step, step)  # between the two
        scatter += self.scatter
        scatter += other.scatter
        return Moments(n_rows, self.mean + step * (other.n_rows / n_rows), scatter)


class Solution(NamedTuple):
    """A ridge regression y = W h + b."""

    relative_penalty: float
    w: np.ndarray  # (L, F)
    intercept: np.ndarray  # (L,), not penalised


class RidgeSums:
    """Sums for a ridge regression y = W h + b and its cross-validation: moments of (h, y) in folds.

    Rows of one sequence are similar, so a penalty chosen with only some of them held out would be
    too small. Folds are therefore whole sequences: each FOLDS consecutive ones are assigned to the
    folds at random. A single sequence is divided into its quarters, as near as segments come; the
    length of a segment is the largest power of two that makes at least FOLDS of them. So folds
    depend on the rows, but not on the pieces in which they are added.

    A penalty is raised to RESOLUTION times the trace of the Gram matrix, below which it would be
    lost in rounding. If all h are equal up to rounding, W is 0.

    Args:
        outputs: L.
        rng: assigns sequences to folds.
        relative_penalties: one, or several to choose from by cross-validation.
        from_rest: whether a sequence begins with the transient from the state 0. Of a single
            sequence, the first quarter is then never held out, and does not count in the variance
            that penalties are relative to.
    """

    def __init__(
        self,
        outputs: int,
        rng: np.random.Generator,
        relative_penalties: Sequence[float],
        from_rest: bool = False,
    ) -> None:
        self.outputs = outputs
        self.rng = rng
        self.relative_penalties = relative_penalties
        self.from_rest = from_rest
        self.sequences = 0
        self.segments: list[Moments] = []  # of the first sequence, in order
        self.segment_length = 1
        self.folds: dict[int, Moments] = {}  # of several sequences, by fold
        self.fold_order = np.zeros(0, int)  # of FOLDS consecutive sequences
        self._solution: Solution | None = None

    def add(self, h: np.ndarray, y: np.ndarray, begins: bool) -> None:
        """Adds rows h (n, F) and y (n, L), n >= 1, to the last sequence, or to a new one."""
        self._solution = None
        if begins:
            self._begin_sequence()
        rows = np.hstack([h, y])
        if self.sequences == 1:
            self._extend_segments(rows)
        else:
            self._extend_fold(self.fold_order[(self.sequences - 1) % FOLDS], Moments.of(rows))

    @property
    def solution(self) -> Solution:
        """The regression of all rows so far, at the best of the penalties."""
        if self._solution is None:
            self._solution = self._solve()
        return self._solution

    def held_out_moments(self, relative_penalty: float) -> Moments:
        """Returns the moments of (W h + b, y), (2 L,), each fold predicted by a fit to the others.

        Folds that cannot be held out are predicted by the fit to all rows.
        """
        folds, skip_first = self._folds()
        penalty_per_row = relative_penalty * self._variance(folds[skip_first:])
        fit_to_all = _fit(merge_all(folds), self.outputs, penalty_per_row)
        scores = []
        for fold, others in self._splits(folds, skip_first):
            w, intercept = (
                fit_to_all if others is None else _fit(others, self.outputs, penalty_per_row)
            )
            project = scipy.linalg.block_diag(w.T, np.eye(self.outputs))  # (F + L, 2 L)
            mean = fold.mean @ project
            mean[: self.outputs] += intercept
            scores.append(Moments(fold.n_rows, mean, project.T @ fold.scatter @ project))
        return merge_all(scores)

    def _solve(self) -> Solution:
        folds, skip_first = self._folds()
        variance = self._variance(folds[skip_first:])
        best = self.relative_penalties[0]
        if len(self.relative_penalties) > 1:
            best = self._best_penalty(folds, skip_first, variance)
        return Solution(best, *_fit(merge_all(folds), self.outputs, best * variance))

    def _best_penalty(self, folds: list[Moments], skip_first: bool, variance: float) -> float:
        """Returns the penalty with the least squared error on each fold after a fit to the others.

        Ties, and data without a fold to hold out, give the largest penalty. Penalties that are lost
        in rounding are left out.
        """
        lost = RESOLUTION * (len(folds[0].mean) - self.outputs) * self._variance(folds)
        candidates = [each for each in self.relative_penalties if each * variance >= lost]
        errors = dict.fromkeys(sorted(candidates, reverse=True), 0.0)
        for held_out, others in self._splits(folds, skip_first):
            if others is not None:
                for relative_penalty in errors:
                    w, intercept = _fit(others, self.outputs, relative_penalty * variance)
                    errors[relative_penalty] += _squared_error(held_out, w, intercept)
        return min(errors, key=errors.__getitem__, default=max(self.relative_penalties))

    def _begin_sequence(self) -> None:
        if self.sequences % FOLDS == 0:
            self.fold_order = self.rng.permutation(FOLDS)
        if self.sequences == 1:
            self._extend_fold(self.fold_order[0], merge_all(self.segments))
            self.segments = []
        self.sequences += 1

    def _extend_fold(self, fold: int, moments: Moments) -> None:
        self.folds[fold] = self.folds[fold].merge(moments) if fold in self.folds else moments

    def _extend_segments(self, rows: np.ndarray) -> None:
        """Adds rows to the single sequence; neighbours merge from 2 FOLDS full segments on."""
        n_rows = sum(segment.n_rows for segment in self.segments)
        while n_rows + len(rows) >= 2 * FOLDS * self.segment_length:
            self.segment_length *= 2
            pairs = [self.segments[i : i + 2] for i in range(0, len(self.segments), 2)]
            self.segments = [merge_all(pair) for pair in pairs]
        filled = n_rows % self.segment_length  # rows of a last segment that has room
        edges = range(self.segment_length - filled, len(rows), self.segment_length)
        for piece in np.split(rows, edges):
            moments = Moments.of(piece)
            self.segments.append(self.segments.pop().merge(moments) if filled else moments)
            filled = 0

    def _folds(self) -> tuple[list[Moments], bool]:
        """Returns the folds that have rows, and whether the transient may reach the first one."""
        if self.folds:
            return [self.folds[fold] for fold in sorted(self.folds)], False
        n_rows = np.array([segment.n_rows for segment in self.segments])
        middles = np.cumsum(n_rows) - n_rows / 2
        quarters = (middles * FOLDS / n_rows.sum()).astype(int)
        folds = [
            merge_all(self.segments[i] for i in np.flatnonzero(quarters == quarter))
            for quarter in np.unique(quarters)
        ]
        return folds, self.from_rest and len(folds) > 1

    def _splits(
        self, folds: list[Moments], skip_first: bool
    ) -> Iterator[tuple[Moments, Moments | None]]:
        """Yields each fold and the moments of the other rows, None if the fold cannot be held out.

        A fold cannot be held out if it has the transient, or if the other rows miss what it has: a
        target that varies is constant there, such as the indicator of a class that only this fold
        has.
        """
        spread = self._spread_of_targets(merge_all(folds))
        for i, fold in enumerate(folds):
            others = folds[:i] + folds[i + 1 :]
            rest = merge_all(others) if others and i >= skip_first else None
            if rest is not None:
                constant = self._spread_of_targets(rest) <= RESOLUTION * spread
                rest = None if constant[spread > 0].any() else rest
            yield fold, rest

    def _spread_of_targets(self, moments: Moments) -> np.ndarray:
        return np.diag(moments.scatter)[-self.outputs :]  # (L,)

    def _variance(self, folds: list[Moments]) -> float:
        """Returns the mean variance of the features."""
        total = merge_all(folds)
        return float(np.mean(np.diag(total.scatter)[: -self.outputs]) / total.n_rows)


def merge_all(moments: Iterable[Moments]) -> Moments:
    """Returns the moments of the rows of all."""
    return reduce(Moments.merge, moments)


def _fit(moments: Moments, outputs: int, penalty_per_row: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns W (L, F) and b (L,) of the ridge regression for moments of (h, y)."""
    mean_h, mean_y = np.split(moments.mean, [-outputs])
    gram, cross = np.split(moments.scatter[:-outputs], [-outputs], axis=1)
    penalty = penalty_per_row * moments.n_rows
    w = solve(gram, cross, penalty, moments.n_rows * (mean_h @ mean_h)).T
    return w, mean_y - w @ mean_h


def solve(gram: np.ndarray, targets: np.ndarray, penalty: float, size: float) -> np.ndarray:
    """Returns (G + lambda I)^-1 times the targets, 0 if the features are equal up to rounding.

    G is the Gram matrix of centred rows, and `size` the sum of squares of the means that were
    subtracted. The penalty is raised to RESOLUTION tr(G), so that the matrix is positive definite
    in float64.
    """
    trace = np.trace(gram)
    if trace <= RESOLUTION**2 * size:
        return np.zeros(targets.shape)
    penalized = gram.copy(order="F")
    penalized[np.diag_indices_from(penalized)] += max(penalty, RESOLUTION * trace)
    return scipy.linalg.cho_solve(scipy.linalg.cho_factor(penalized, overwrite_a=True), targets)


def _squared_error(moments: Moments, w: np.ndarray, intercept: np.ndarray) -> float:
    """Returns the sum of |y - W h - b|^2 over the rows of the moments of (h, y)."""
    project = np.hstack([-w, np.eye(len(w))])  # (L, F + L)
    mean = project @ moments.mean - intercept
    spread = np.sum(project * (project @ moments.scatter))
    return float(spread + moments.n_rows * (mean @ mean))


class DiscriminantSums(RidgeSums):
    """Sums of a ridge regression onto one-hot classes whose outputs become log-probabilities.

    This is a linear discriminant analysis of the regression's scores. If the scores s of a row of
    class k are normal with the mean m_k and a covariance S that all classes share, then with the
    shares p_k of the classes and the mean m of all rows

        log p(k | s) = log p_k + (m_k - m) S^-1 (s - m) - (m_k - m) S^-1 (m_k - m) / 2 + const(s)

    (Hastie, Tibshirani and Friedman, The Elements of Statistical Learning, section 4.3), which is
    affine in s. Rare classes are smoothed [ours]: m_k - m and p_k have one more row, of the mean of
    all scores, and S has one row's worth of the covariance of all scores, so that classes that are
    never confused get finite log-probabilities.

    The moments of the scores are those of held-out folds, if the other folds have their classes,
    too.
    """

    def _solve(self) -> Solution:
        """Returns W and b of log p of each class, up to a term common to all classes."""
        relative_penalty, w, intercept = super()._solve()
        slopes, constants = linear_discriminant(self.held_out_moments(relative_penalty))
        return Solution(relative_penalty, slopes @ w, slopes @ intercept + constants)


def linear_discriminant(moments: Moments) -> tuple[np.ndarray, np.ndarray]:
    """Returns A (C, C) and c (C,) of log p(k | s) = A s + c, up to a term common to all classes.

    `moments` are those of rows (s, d), (2 C,), with scores s and one-hot classes d. The scores
    should be those of rows that the regression has not seen.
    """
    n_rows, classes = moments.n_rows, len(moments.mean) // 2
    mean_score, share = np.split(moments.mean, 2)
    total_scatter = moments.scatter[:classes, :classes]
    class_sums = moments.scatter[classes:, :classes]  # sums of s - m over the rows of each class
    class_rows = share * n_rows
    offsets = class_sums / (class_rows + 1)[:, None]  # m_k - m
    between = class_sums.T @ offsets + offsets.T @ class_sums - (class_rows * offsets.T) @ offsets
    covariance = (total_scatter - between + total_scatter / n_rows) / n_rows
    slopes = offsets @ np.linalg.pinv(covariance, rcond=1e-9, hermitian=True)
    log_prior = np.log((class_rows + 1) / (n_rows + classes))
    return slopes, log_prior - np.sum(slopes * offsets, axis=1) / 2 - slopes @ mean_score
