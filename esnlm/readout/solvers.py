"""Ridge regression onto real-valued targets, by Cholesky of the normal equations in float64.

RidgeSums      From sums that are accumulated piece by piece; they also choose the penalty by
cross-validation. predict_ridge  From the smaller Gram matrix, of features or of samples, for many
targets at one penalty.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from esnlm.readout.base import row_blocks

FOLDS = 4
# Relative to their size, smaller differences of states and sums may be rounding errors.
RESOLUTION = 1e-14


@dataclass
class Moments:
    """Number, mean and scatter of rows z; the scatter is the sum of (z - mean) (z - mean)^T.

    Merging is exact up to rounding (Chan, Golub and LeVeque 1983), so the order and size of the
    pieces do not matter, and means far above the deviations cost no digits.
    """

    mean: np.ndarray  # (K,)
    scatter: np.ndarray  # (K, K)
    count: int = 0

    @classmethod
    def empty(cls, width: int) -> "Moments":
        return cls(np.zeros(width), np.zeros((width, width)))

    @classmethod
    def merged(cls, parts: Sequence["Moments"]) -> "Moments":
        total = cls.empty(len(parts[0].mean))
        for part in parts:
            total.merge(part)
        return total

    def add(self, rows: np.ndarray) -> None:
        """Adds rows (n, K)."""
        mean = rows.mean(axis=0)
        self._extend(len(rows), mean, rows - mean)

    def merge(self, other: "Moments") -> None:
        """Adds the rows of other moments."""
        if other.count == 0:
            return
        self.scatter += other.scatter
        self._extend(other.count, other.mean, np.zeros((0, len(self.mean))))

    def _extend(self, count: int, mean: np.ndarray, deviations: np.ndarray) -> None:
        """Adds rows with this count and mean; their scatter is that of the deviations (n, K), or
        already added."""
        total = self.count + count
        step = mean - self.mean
        deviations = np.vstack([deviations, np.sqrt(self.count * count / total) * step])
        self.scatter += deviations.T @ deviations
        self.mean += step * (count / total)
        self.count = total


class RidgeSums:
    """Moments of rows (h, y) in folds, as needed for a ridge regression y = W h + b and its
    cross-validation.

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
        from_rest: whether a sequence begins with the transient from the state 0. Of a single
            sequence, the first quarter is then never held out, and does not count in the variance
            that penalties are relative to.
    """

    def __init__(self, outputs: int, rng: np.random.Generator, from_rest: bool = False) -> None:
        self.outputs = outputs
        self.rng = rng
        self.from_rest = from_rest
        self.sequences = 0
        self.order = np.zeros(0, int)  # folds of the last FOLDS sequences
        self.parts: list[Moments] = []  # segments of a single sequence, or the folds of several
        self.segment = 1  # rows of a full segment

    def add(self, h: np.ndarray, y: np.ndarray, begins: bool) -> None:
        """Adds rows h (n, F) and y (n, L), n >= 1, to the last sequence, or to a new one if
        `begins`."""
        rows = np.hstack([h, y])
        if begins:
            self._begin_sequence()
        if self.sequences == 1:
            self._extend_segments(rows)
        else:
            self.parts[self.order[(self.sequences - 1) % FOLDS]].add(rows)

    def choose(self, penalties: Sequence[float]) -> float:
        """Returns the penalty with the least squared error on the rows of each fold, after a fit to
        the others.

        Equal errors give the largest penalty, and so do rows of which no fold can be held out.
        Penalties that are lost in rounding are left out.
        """
        features = len(self.parts[0].mean) - self.outputs
        least = RESOLUTION * features * self._variance(self.parts)
        variance = self._scale()
        errors = {
            penalty: 0.0
            for penalty in sorted(penalties, reverse=True)
            if penalty * variance >= least
        }
        for held_out, rest in self._splits():
            if rest is None:
                continue
            for penalty in errors:
                errors[penalty] += self._squared_error(held_out, *self._fit(rest, penalty))
        return min(errors, key=lambda penalty: errors[penalty], default=max(penalties))

    def solve(self, penalty: float) -> tuple[np.ndarray, np.ndarray]:
        """Returns W (L, F) and the intercept (L,), which is not penalised."""
        w, intercept = self._fit(Moments.merged(self.parts), penalty)
        return w.T, intercept

    def held_out_moments(self, penalty: float) -> Moments:
        """Returns the moments of (W h + b, y), K = 2 L, over the rows of each fold after a fit to
        the others.

        Folds that cannot be held out are predicted by the fit to all rows.
        """
        scores = Moments.empty(2 * self.outputs)
        fit_to_all = self._fit(Moments.merged(self.parts), penalty)
        for held_out, rest in self._splits():
            w, intercept = fit_to_all if rest is None else self._fit(rest, penalty)
            project = scipy.linalg.block_diag(w, np.eye(self.outputs))  # (F + L, 2 L)
            for part in held_out:
                mean = part.mean @ project
                mean[: self.outputs] += intercept
                scores.merge(Moments(mean, project.T @ part.scatter @ project, part.count))
        return scores

    def _begin_sequence(self) -> None:
        if self.sequences == 1:
            first = Moments.merged(self.parts)
            self.parts = [Moments.empty(len(first.mean)) for _ in range(FOLDS)]
            self.parts[self.order[0]] = first
        if self.sequences % FOLDS == 0:
            self.order = self.rng.permutation(FOLDS)
        self.sequences += 1

    def _extend_segments(self, rows: np.ndarray) -> None:
        """Adds rows to the single sequence. From 2 FOLDS full segments on, neighbours are
        merged."""
        count = sum(part.count for part in self.parts)
        while count + len(rows) >= 2 * FOLDS * self.segment:
            self.segment *= 2
            for left, right in zip(self.parts[::2], self.parts[1::2], strict=False):
                left.merge(right)
            self.parts = self.parts[::2]
        start = 0
        while start < len(rows):
            filled = (count + start) % self.segment
            if filled == 0:
                self.parts.append(Moments.empty(rows.shape[1]))
            stop = start + self.segment - filled
            self.parts[-1].add(rows[start:stop])
            start = stop

    def _folds(self) -> list[list[Moments]]:
        """Returns the parts of each fold that has rows, those of a single sequence in temporal
        order."""
        if self.sequences > 1:
            return [[part] for part in self.parts if part.count]
        counts = np.array([part.count for part in self.parts])
        middles = np.cumsum(counts) - counts / 2
        quarters = (middles * FOLDS / counts.sum()).astype(int)
        return [[self.parts[i] for i in np.flatnonzero(quarters == k)] for k in np.unique(quarters)]

    def _transient_folds(self, folds: list[list[Moments]]) -> int:
        """Returns the number of folds at the beginning that the transient may reach."""
        return int(self.from_rest and self.sequences == 1 and len(folds) > 1)

    def _splits(self) -> Iterator[tuple[list[Moments], Moments | None]]:
        """Yields the parts of each fold and the moments of the other rows, None if the fold cannot
        be held out.

        A fold cannot be held out if it has the transient, or if the other rows miss what it has: a
        target that varies is constant there, such as the indicator of a class that only this fold
        has.
        """
        folds = self._folds()
        spread = self._spread_of_targets(Moments.merged(self.parts))
        for i, fold in enumerate(folds):
            others = [part for other in folds if other is not fold for part in other]
            rest = Moments.merged(others) if others and i >= self._transient_folds(folds) else None
            if (
                rest is not None
                and (self._spread_of_targets(rest) <= RESOLUTION * spread)[spread > 0].any()
            ):
                rest = None
            yield fold, rest

    def _spread_of_targets(self, moments: Moments) -> np.ndarray:
        return np.diag(moments.scatter)[-self.outputs :]  # (L,)

    def _scale(self) -> float:
        """Returns the mean variance of the features that penalties are relative to."""
        folds = self._folds()
        return self._variance(
            [part for fold in folds[self._transient_folds(folds) :] for part in fold]
        )

    def _variance(self, parts: list[Moments]) -> float:
        features = len(parts[0].mean) - self.outputs
        counts = np.array([part.count for part in parts])
        means = np.array([part.mean[:features] for part in parts])
        between = counts @ np.square(means - counts @ means / counts.sum()).sum(axis=1)
        within = sum(np.trace(part.scatter[:features, :features]) for part in parts)
        return float(within + between) / counts.sum() / features

    def _fit(self, moments: Moments, penalty: float) -> tuple[np.ndarray, np.ndarray]:
        """Returns W^T (F, L) and b (L,)."""
        features = len(moments.mean) - self.outputs
        mean_h, mean_y = np.split(moments.mean, [features])
        gram, cross = moments.scatter[:features, :features], moments.scatter[:features, features:]
        w = _solve(
            gram, cross, penalty * self._scale() * moments.count, moments.count * (mean_h @ mean_h)
        )
        return w, mean_y - mean_h @ w

    def _squared_error(self, parts: list[Moments], w: np.ndarray, intercept: np.ndarray) -> float:
        """Returns the sum of |y - W h - b|^2 over the rows of all parts."""
        project = np.vstack([-w, np.eye(self.outputs)])
        error = 0.0
        for part in parts:
            mean = part.mean @ project - intercept
            error += float(np.sum(project * (part.scatter @ project)) + part.count * (mean @ mean))
        return error


def predict_ridge(x: np.ndarray, y: np.ndarray, test: np.ndarray, ridge: float) -> np.ndarray:
    """Fits y (S, K) on x (S, F) with an intercept on the rows outside `test` (S,), and returns
    predictions for `test`.

    `ridge` is relative to the mean diagonal of the smaller Gram matrix, of features or of samples.
    If all fitted x are equal, the prediction is the mean of y.
    """
    train = np.flatnonzero(~test)
    features = x.shape[1]
    if features <= len(train):
        moments = Moments.empty(features + y.shape[1])
        for block in row_blocks(len(train), features):
            rows = train[block]
            moments.add(np.hstack([x[rows], y[rows]]).astype(np.float64, copy=False))
        mean_x, mean_y = np.split(moments.mean, [features])
        gram, cross = moments.scatter[:features, :features], moments.scatter[:features, features:]
        w = _solve(gram, cross, ridge * np.trace(gram) / features, len(train) * (mean_x @ mean_x))
        return (x[test] - mean_x) @ w + mean_y
    mean_x, mean_y = x[train].mean(axis=0, dtype=np.float64), y[train].mean(axis=0)
    # the dual form, with K of samples: y = K (K + lambda I)^-1 y_train
    gram = gram_of_samples(x, mean_x)
    fitted = gram[np.ix_(train, train)]
    level = ridge * np.trace(fitted) / len(train)
    weights = _solve(fitted, y[train] - mean_y, level, len(train) * (mean_x @ mean_x))
    return gram[np.ix_(test, train)] @ weights + mean_y


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


def gram_of_samples(x: np.ndarray, mean: np.ndarray | float) -> np.ndarray:
    """Returns (x - mean) (x - mean)^T in float64, (S, S), without a float64 copy of x (S, F)."""
    mean = np.broadcast_to(mean, x.shape[1])
    total = np.zeros((len(x), len(x)))
    for start in range(0, x.shape[1], 4096):
        part = x[:, start : start + 4096] - mean[start : start + 4096]
        total += part @ part.T
    return total
