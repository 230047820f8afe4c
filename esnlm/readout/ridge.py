"""Ridge regression onto one-hot targets, from sums in one pass over the text.

    y(h) = p + W (h - m),    W = C (G + lambda I)^-1
    G = sum (h - m)(h - m)^T,    C = sum (d - p)(h - m)^T

over all tokens, of features h and one-hot next tokens d, with means m and p: the intercept is not
penalised. One eigendecomposition G = Q diag(s) Q^T serves every lambda. No array of size tokens x F
is needed, and d is an index: C adds up the features that precede each token. Sums and solutions are
float64.
"""

from typing import ClassVar, NamedTuple

import numpy as np
import scipy.linalg
from scipy.linalg import blas

from esnlm.base.errors import InputError
from esnlm.base.settings import NonNegative, settings
from esnlm.readout.base import Accumulators, Fitter, Window, add_by_target, row_blocks
from esnlm.readout.calibration import (
    Fitted,
    HeldOut,
    Rule,
    Scores,
    fit_rule,
    linear_scores,
)

GRID = (1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)


@settings
class Ridge(Fitter):
    """Ridge regression in one pass; with readout.rank the best readout of that rank [ours]."""

    kind: str = "ridge"
    # Values to try, relative to the mean eigenvalue of the Gram matrix; held-out text chooses the
    # best one [lambda].
    regularizations: tuple[NonNegative, ...] = GRID

    description: ClassVar[str] = "in closed form"
    makes_low_rank: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.regularizations:
            raise ValueError("regularizations is empty: give at least one number")

    def start(self, features: int, vocab_size: int) -> Accumulators:
        return {
            "gram": np.zeros((features, features)),  # sum h h^T, its upper triangle
            "cross": np.zeros((vocab_size, features)),  # sum d h^T
            "counts": np.zeros(vocab_size),  # sum d
        }

    def sums_size(self, features: int, vocab_size: int) -> int:
        return 8 * (features * features + vocab_size * features + vocab_size)

    def accumulate(self, accumulators: Accumulators, window: Window, precision: str) -> int:
        features, rows = np.asarray(window.features), np.concatenate(window.rows)
        targets = window.targets
        for part in row_blocks(len(targets), features.shape[1]):
            h = features[rows[part]].astype(np.float64)  # (k, F)
            gram = accumulators["gram"].T
            accumulators["gram"] = blas.dsyrk(
                1.0, h.T, beta=1.0, c=gram, lower=True, overwrite_c=True
            ).T
            add_by_target(accumulators["cross"], h, targets[part])
        accumulators["counts"] += np.bincount(targets, minlength=len(accumulators["counts"]))
        return 1

    def solve(
        self, accumulators: Accumulators, rank: int | None, held_out: HeldOut, log_p: np.ndarray
    ) -> Fitted:
        """Makes the readout with the best regularisation.

        Each regularisation is evaluated at full rank by the NLL of held-out text, under a rule
        calibrated for it. Those with singular normal equations are skipped. Raises InputError if
        all are singular.
        """
        spectrum = decompose(accumulators)
        rotated = (held_out.features - spectrum.mean) @ spectrum.vectors
        unseen = HeldOut(rotated.astype(np.float32), held_out.targets)
        best, rule, record = self._choose_regularization(spectrum, unseen, log_p)
        root = np.sqrt(spectrum.penalized(best))
        if rank is None:
            scores = spectrum.scores(_float32(spectrum.cross, 1 / root**2), spectrum.cross)
            readout = rule.readout(scores, log_p)
            w = _float32(readout["w"], 1.0, spectrum.vectors.T)
            bias = readout["bias"] - w @ spectrum.mean
            return {"w": w, "bias": bias.astype(np.float32)}, record | rule.record()
        # The best readout of rank r keeps the r largest singular values of M = P C Q (S + lambda
        # I)^-1/2. P = diag(p)^-gamma is the rule's scale of the scores, and these values are those
        # of the fitted scaled scores, penalty included.
        scale = np.exp(-rule.gamma * log_p) if rule.kind == "calibrated" else np.ones(len(log_p))
        # (S + lambda I)^-1/2 U (F, r)
        directions = _largest_directions(spectrum.cross, root, scale, rank) / root[:, None]
        a = _float32(spectrum.cross, 1.0, directions)
        scores = spectrum.scores(a, a)
        z = HeldOut((unseen.features @ directions).astype(np.float32), unseen.targets)
        rule = fit_rule(scores, z, log_p, rule, gamma_too=False)
        readout, b = rule.readout(scores, log_p), (spectrum.vectors @ directions).T
        bias = readout["bias"] - readout["w"] @ (b @ spectrum.mean)
        arrays = {"a": readout["w"], "b": b.astype(np.float32), "bias": bias.astype(np.float32)}
        return arrays, record | rule.record()

    def _choose_regularization(
        self, spectrum: "Spectrum", held_out: HeldOut, log_p: np.ndarray
    ) -> tuple[float, Rule, dict]:
        """Returns the best regularisation for held-out text, its rule, and a record of all."""
        rules: dict[float, Rule] = {}
        rule, singular = Rule(self.log_probs), 0
        for regularization in sorted(self.regularizations):
            try:
                w = _float32(spectrum.cross, 1 / spectrum.penalized(regularization))
            except InputError:
                singular += 1
                if singular == len(self.regularizations):
                    raise
                continue
            rule = fit_rule(spectrum.scores(w, spectrum.cross), held_out, log_p, rule)
            rules[regularization] = rule
        best = min(rules, key=lambda each: np.nan_to_num(rules[each].nll, nan=np.inf))
        tried = {f"{each:g}": rule.nll for each, rule in rules.items()}
        record = {"regularization": best, "held_out_nll": tried, "singular": singular}
        return best, rules[best], record

    def memory(self, features: int, vocab_size: int, rank: int | None) -> int:
        """Counts G, Q and C in float64; then Q and C, a candidate W, and the readout."""
        square, cross = features * features, vocab_size * features
        return max(
            8 * (2 * square + cross),
            8 * (square * (1 if rank is None else 3) + cross) + 4 * 2 * cross,
        )


class Spectrum(NamedTuple):
    """The normal equations in their diagonal basis."""

    values: np.ndarray  # s (F,), ascending
    vectors: np.ndarray  # Q (F, F), one eigenvector per column
    cross: np.ndarray  # C Q (V, F)
    mean: np.ndarray  # m (F,)
    counts: np.ndarray  # (V,), number of each token

    def scores(self, w: np.ndarray, sums: np.ndarray) -> Scores:
        """Returns the scores p + w z; `sums` (V, ..) add up the features z before each token."""
        return linear_scores(w, self.counts / self.counts.sum(), sums, self.counts)

    def penalized(self, regularization: float) -> np.ndarray:
        """Returns s + lambda, (F,). Raises InputError if the equations are singular in float64."""
        values = self.values + regularization * self.values.sum() / len(self.values)
        if not values[0] > len(values) * np.finfo(np.float64).eps * values[-1]:
            raise InputError(
                f"training.regularizations: at {regularization:g} the normal equations are"
                f" singular: states are linearly dependent (eigenvalues from {values[0]:.1e} to"
                f" {values[-1]:.1e}); leave it out, or raise it"
            )
        return values


def decompose(accumulators: Accumulators) -> Spectrum:
    """Diagonalizes the normal equations in place. Raises InputError if all states are equal."""
    gram, cross, counts = accumulators["gram"], accumulators["cross"], accumulators["counts"]
    total = cross.sum(0)
    mean = total / counts.sum()
    for rows in row_blocks(len(gram), len(gram)):
        gram[rows] -= np.outer(total[rows], mean)
    # "evr" needs one more F x F array; "evd" needs three, and overflows 32-bit sizes at F = 32,768.
    values, vectors = scipy.linalg.eigh(
        gram.T, lower=True, overwrite_a=True, check_finite=False, driver="evr"
    )
    if values[-1] <= 0:
        raise InputError(
            "all states are equal: ridge has nothing to learn from; check the reservoir's settings,"
            " such as its leaks"
        )
    for rows in row_blocks(len(cross), len(gram)):
        cross[rows] = (cross[rows] - np.outer(counts[rows], mean)) @ vectors
    return Spectrum(values, vectors, cross, mean, counts)


def _float32(
    matrix: np.ndarray, scale: np.ndarray | float, onto: np.ndarray | None = None
) -> np.ndarray:
    """Returns a matrix (V, ..) with its columns scaled, times `onto`, as float32, by blocks."""
    width = matrix.shape[1] if onto is None else onto.shape[1]
    product = np.empty((len(matrix), width), np.float32)
    for rows in row_blocks(*matrix.shape):
        part = matrix[rows] * scale
        product[rows] = part if onto is None else part @ onto
    return product


def _largest_directions(
    cross: np.ndarray, root: np.ndarray, scale: np.ndarray, rank: int
) -> np.ndarray:
    """Returns the right singular vectors (F, r) of the r largest singular values of M."""
    gram = np.zeros((len(root), len(root)), order="F")
    for rows in row_blocks(*cross.shape):
        part = scale[rows, None] * cross[rows] / root
        gram = blas.dsyrk(1.0, part.T, beta=1.0, c=gram, lower=True, overwrite_c=True)
    last = len(root) - 1
    chosen = [last + 1 - rank, last]
    return scipy.linalg.eigh(
        gram, lower=True, overwrite_a=True, subset_by_index=chosen, driver="evr"
    )[1]
