"""Recursive least squares onto one-hot targets, in blocks of tokens and with a forgetting factor.

With x = (h, 1), one-hot next tokens d, forgetting f and P(0) = I / delta, token by token

    P(t)^-1 = f P(t - 1)^-1 + x x^T,    Z(t) = f Z(t - 1) + d x^T,    W(t) = Z(t) P(t)

(Haykin, Adaptive Filter Theory, the recursion behind the gain). W is the exact minimiser of
sum_t f^(n - t) |d(t) - W x(t)|^2 + f^n delta |W|^2. At f = 1 this is ridge regression with the
penalty delta, on the intercept too. By the matrix inversion lemma k tokens X (k, F + 1) are added
at once, with their weights D = diag(f^(k - 1), .., f, 1) and P' = P / f^k:

    P <- P' - P' X^T (D^-1 + X P' X^T)^-1 X P'

W = Z P is computed once, at the end, since no predictions are needed before. All arrays are
float64.
"""

from typing import Annotated, ClassVar

import numpy as np
import scipy.linalg
from pydantic import Field

from esnlm.base.errors import InputError
from esnlm.base.settings import Count, Positive, settings
from esnlm.readout.base import Accumulators, Fitter, Window, add_by_target
from esnlm.readout.calibration import Fitted, HeldOut, calibrate, linear_scores

SMALLEST_FADED = 1e-100  # safely above the smallest float64, 1e-308


@settings
class RecursiveLeastSquares(Fitter):
    """Recursive least squares in one pass over the text."""

    kind: str = "rls"
    # Tokens per update of P, fewer if forgetting would otherwise lose digits; the result does not
    # depend on it.
    block: Count = 256
    # weight of a token relative to the next; 1: equal weights
    forgetting: Annotated[float, Field(gt=0, le=1)] = 1.0
    delta: Positive = 1.0  # initial regularisation, P(0) = I / delta

    description: ClassVar[str] = "by recursive least squares"

    def start(self, features: int, vocab_size: int) -> Accumulators:
        """Returns {"p": P(0) (F + 1, F + 1), "z": Z(0) = 0 (V, F + 1)}."""
        return {"p": np.eye(features + 1) / self.delta, "z": np.zeros((vocab_size, features + 1))}

    def sums_size(self, features: int, vocab_size: int) -> int:
        return 8 * (features + 1) * (features + 1 + vocab_size)

    def accumulate(self, accumulators: Accumulators, window: Window, precision: str) -> int:
        """Adds tokens to P and Z in their order, one update per block of them."""
        features, rows = np.asarray(window.features), np.concatenate(window.rows)
        targets, size = window.targets, self.block
        if self.forgetting < 1:  # P grows by f^-k before it shrinks; limit this to keep digits
            size = min(size, max(1, int(np.log(0.5) / np.log(self.forgetting))))
        starts = range(0, len(targets), size)
        # Z is faded * z; scaling all of z in each block would dominate the time
        z, faded = accumulators["z"], 1.0
        for first in starts:
            x = features[rows[first : first + size]].astype(np.float64)
            x = np.hstack([x, np.ones((len(x), 1))])  # (k, F + 1)
            weights = self.forgetting ** np.arange(len(x) - 1, -1, -1.0)  # D (k,)
            accumulators["p"] = _shrink(accumulators["p"] / self.forgetting ** len(x), x, weights)
            faded *= self.forgetting ** len(x)
            if faded < SMALLEST_FADED:
                z *= faded
                faded = 1.0
            add_by_target(z, x * (weights / faded)[:, None], targets[first : first + size])
        if faded < 1:
            z *= faded
        return len(starts)

    def solve(
        self, accumulators: Accumulators, rank: int | None, held_out: HeldOut, log_p: np.ndarray
    ) -> Fitted:
        w, intercept = solution(accumulators)
        scores = linear_scores(w, intercept, accumulators["z"][:, :-1], accumulators["z"][:, -1])
        return calibrate(self.log_probs, scores, held_out, log_p)

    def memory(self, features: int, vocab_size: int, rank: int | None) -> int:
        """Counts P, its successor and their difference; Z, W and the readout."""
        return (
            8 * (4 * (features + 1) ** 2 + 2 * vocab_size * (features + 1))
            + 4 * 2 * vocab_size * features
        )


def solution(accumulators: Accumulators) -> tuple[np.ndarray, np.ndarray]:
    """Returns W (V, F) and the intercept (V,) for the text so far."""
    w = accumulators["z"] @ accumulators["p"]
    return w[:, :-1], w[:, -1]


def _shrink(p: np.ndarray, x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Returns (P^-1 + X^T D X)^-1 for P (F + 1, F + 1), X (k, F + 1) and D (k,).

    Raises InputError if float64 does not suffice.
    """
    x = x * np.sqrt(weights)[:, None]
    xp = x @ p  # (k, F + 1)
    try:
        factor = np.linalg.cholesky(xp @ x.T + np.eye(len(x)))
    except np.linalg.LinAlgError:
        factor = np.full((1, 1), np.nan)
    if np.isfinite(factor).all():
        # P' X^T (..)^-1 X P' = half^T half
        half = scipy.linalg.solve_triangular(factor, xp, lower=True)
        p = p - half.T @ half
        p = (p + p.T) / 2
        if (p.diagonal() > 0).all():
            return p
    raise InputError(
        "training.kind is rls: P is no longer positive definite in float64; raise training.delta or"
        " training.forgetting, or choose ridge"
    )
