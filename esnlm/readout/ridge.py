"""Ridge regression onto one-hot targets, from sums in one pass over the text.

    y(h) = p + W (h - m),    W = C (G + lambda I)^-1,    G = sum (h - m)(h - m)^T,    C = sum (d -
    p)(h - m)^T

over all tokens, of features h and one-hot next tokens d, with means m and p: the intercept is not
penalised. One eigendecomposition G = Q diag(s) Q^T serves every lambda. No array of size tokens x F
is needed, and d is an index: C adds up the features that precede each token. Sums and solutions are
float64.
"""

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np
import scipy.linalg
from scipy.linalg import blas

from esnlm.base.errors import InputError
from esnlm.base.settings import Count, NonNegative, settings
from esnlm.readout.base import Accumulators, Fitter, Window, add_by_target, row_blocks
from esnlm.readout.calibration import (
    Fitted,
    HeldOut,
    LogProbs,
    Rule,
    Scores,
    fit_rule,
    linear_scores,
)


@settings
class Ridge(Fitter):
    """Ridge regression in one pass over the text; with readout.rank the best readout of that rank
    [ours]."""

    kind: str = "ridge"
    # Values to try, relative to the mean eigenvalue of the Gram matrix; held-out text chooses the
    # best one [lambda].
    regularizations: tuple[NonNegative, ...] = (
        1e-9,
        1e-8,
        1e-7,
        1e-6,
        1e-5,
        1e-4,
        1e-3,
        1e-2,
        1e-1,
        1.0,
    )
    log_probs: LogProbs = "calibrated"  # rule that turns linear scores into log-probabilities
    # tokens of training text kept out of the fit, to choose lambda and to calibrate
    held_out_tokens: Count = 4096
    checkpoint_every: Count = 50  # windows of text from one checkpoint to the next

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
        features, rows, targets = (
            np.asarray(window.features),
            np.concatenate(window.rows),
            window.targets,
        )
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
        counts, spectrum = accumulators["counts"], decompose(accumulators)
        rotated = HeldOut(
            ((held_out.features - spectrum.mean) @ spectrum.vectors).astype(np.float32),
            held_out.targets,
        )

        def scores(w: np.ndarray, sums: np.ndarray) -> Scores:
            return linear_scores(w, spectrum.share, sums, counts)

        best, rule, record = self._choose_regularization(spectrum, scores, rotated, log_p)
        root = np.sqrt(spectrum.penalized(best))
        if rank is None:
            found = rule.readout(
                scores(_float32(spectrum.cross, 1 / root**2), spectrum.cross), log_p
            )
            w = _float32(found["w"], 1.0, spectrum.vectors.T)
            readout = {"w": w, "bias": (found["bias"] - w @ spectrum.mean).astype(np.float32)}
            return readout, record | rule.record()
        # The best readout of rank r keeps the r largest singular values of M = P C Q (S + lambda
        # I)^-1/2. P = diag(p)^-gamma is the rule's scale of the scores, and these values are those
        # of the fitted scaled scores, penalty included.
        scale = (
            np.exp(-rule.gamma * log_p)[:, None]
            if rule.kind == "calibrated"
            else np.ones((len(log_p), 1))
        )
        # (S + lambda I)^-1/2 U (F, r)
        directions = _largest_directions(spectrum.cross, root, scale, rank) / root[:, None]
        a = _float32(spectrum.cross, 1.0, directions)
        reduced = scores(a, a)
        z = HeldOut((rotated.features @ directions).astype(np.float32), held_out.targets)
        rule = fit_rule(reduced, z, log_p, rule, gamma_too=False)
        found, b = rule.readout(reduced, log_p), (spectrum.vectors @ directions).T
        bias = found["bias"] - found["w"] @ (b @ spectrum.mean)
        readout = {"a": found["w"], "b": b.astype(np.float32), "bias": bias.astype(np.float32)}
        return readout, record | rule.record()

    def _choose_regularization(
        self,
        spectrum: "Spectrum",
        scores: Callable[..., Scores],
        held_out: HeldOut,
        log_p: np.ndarray,
    ) -> tuple[float, Rule, dict]:
        """Returns the regularisation with the least NLL of held-out text, its rule, and a record of
        all."""
        found: dict[float, Rule] = {}
        singular: list[InputError] = []
        rule = Rule(self.log_probs)
        for regularization in sorted(self.regularizations):
            try:
                w = _float32(spectrum.cross, 1 / spectrum.penalized(regularization))
            except InputError as error:
                singular.append(error)
                continue
            found[regularization] = rule = fit_rule(
                scores(w, spectrum.cross), held_out, log_p, rule
            )
        if not found:
            raise singular[-1]
        best = min(
            found, key=lambda regularization: np.nan_to_num(found[regularization].nll, nan=np.inf)
        )
        tried = {f"{one:g}": found[one].nll for one in found}
        return (
            best,
            found[best],
            {"regularization": best, "held_out_nll": tried, "singular": len(singular)},
        )

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
    share: np.ndarray  # p (V,)

    def penalized(self, regularization: float) -> np.ndarray:
        """Returns s + lambda, (F,). Raises InputError if the normal equations have no inverse in
        float64."""
        found = self.values + regularization * self.values.sum() / len(self.values)
        if not found[0] > len(found) * np.finfo(np.float64).eps * found[-1]:
            raise InputError(
                f"training.regularizations: at {regularization:g} the normal equations are"
                f" singular: states are linearly dependent (eigenvalues from {found[0]:.1e} to"
                f" {found[-1]:.1e}); leave it out, or raise it"
            )
        return found


def decompose(accumulators: Accumulators) -> Spectrum:
    """Diagonalizes the normal equations, overwriting the sums. Raises InputError if all states are
    equal."""
    gram, cross, counts = accumulators["gram"], accumulators["cross"], accumulators["counts"]
    tokens, total = counts.sum(), cross.sum(0)
    mean, share = total / tokens, counts / tokens
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
    return Spectrum(values, vectors, cross, mean, share)


def _float32(
    matrix: np.ndarray, scale: np.ndarray | float, onto: np.ndarray | None = None
) -> np.ndarray:
    """Returns a matrix (V, ..) with its columns scaled, times `onto` if given, as float32, computed
    block by block."""
    found = np.empty((len(matrix), matrix.shape[1] if onto is None else onto.shape[1]), np.float32)
    for rows in row_blocks(*matrix.shape):
        part = matrix[rows] * scale
        found[rows] = part if onto is None else part @ onto
    return found


def _largest_directions(
    cross: np.ndarray, root: np.ndarray, scale: np.ndarray, rank: int
) -> np.ndarray:
    """Returns the right singular vectors (F, r) of the r largest singular values of M = scale *
    cross / root."""
    gram = np.zeros((len(root), len(root)), order="F")
    for rows in row_blocks(*cross.shape):
        part = scale[rows] * cross[rows] / root
        gram = blas.dsyrk(1.0, part.T, beta=1.0, c=gram, lower=True, overwrite_c=True)
    last = len(root) - 1
    chosen = [last + 1 - rank, last]
    return scipy.linalg.eigh(
        gram, lower=True, overwrite_a=True, subset_by_index=chosen, driver="evr"
    )[1]
