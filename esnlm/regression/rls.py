"""Recursive least squares onto one-hot targets, in blocks of tokens and with a forgetting factor.

With x = (h, 1), one-hot next tokens d, forgetting f and P(0) = I / delta, token by token

    P(t)^-1 = f P(t - 1)^-1 + x x^T,    Z(t) = f Z(t - 1) + d x^T,    W(t) = Z(t) P(t)

(Haykin, Adaptive Filter Theory, the recursion from which the gain is derived). W is the exact minimiser of
sum_t f^(n - t) |d(t) - W x(t)|^2 + f^n delta |W|^2: at f = 1 ridge regression with the penalty delta, on the intercept too.
Of k tokens X (k, N + 1) at once, by the matrix inversion lemma, with their weights D = diag(f^(k - 1), .., f, 1) and P' = P / f^k:

    P <- P' - P' X^T (D^-1 + X P' X^T)^-1 X P'

W takes part only in its product with Z, once, as no token's prediction is needed on the way. Everything is float64.
"""

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from esnlm.errors import InputError
from esnlm.regression import calibration
from esnlm.regression.calibration import HeldOut, linear_scores
from esnlm.regression.ridge import add_by_target


@dataclass(frozen=True)
class RlsConfig:
    """Recursive least squares, in one pass over the text."""

    kind: str = "rls"
    block: int = (
        256  # tokens that P is updated with at once, or as many as halve what was before: the same as one by one
    )
    forgetting: float = 1.0  # what a token weighs beside the next one
    delta: float = 1.0  # P(0) = I / delta
    log_probs: str = "calibrated"  # from linear scores: calibrated or softmax (regression/calibration.py)
    held_out_tokens: int = 4096  # of training text, left out of it, that calibrate
    checkpoint_every: int = 50  # windows of text

    @property
    def epochs(self) -> int:
        """A second pass would add the same to every sum."""
        return 1

    def check(self) -> None:
        if self.block < 1:
            raise InputError(f"training.block is {self.block}: it must be at least 1")
        if not 0 < self.forgetting <= 1:
            raise InputError(f"training.forgetting is {self.forgetting}: it must be above 0 and at most 1")
        if not 0 < self.delta < np.inf:
            raise InputError(f"training.delta is {self.delta}: it must be above 0")
        calibration.check(self)


def start(config: RlsConfig, features: int, vocab_size: int) -> dict:
    """{"p": P(0) (N + 1, N + 1), "z": Z(0) = 0 (V, N + 1)}."""
    return {"p": np.eye(features + 1) / config.delta, "z": np.zeros((vocab_size, features + 1))}


def add(config: RlsConfig, sums: dict, features: np.ndarray, rows: np.ndarray, targets: np.ndarray) -> int:
    """Takes in tokens, in their order; at the end a block may be smaller.

    Args:
        features: (.., N) float32.
        rows: of the features of each token, (n,).
        targets: the token that follows each, (n,).

    Returns:
        The updates that this was, one a block.

    Raises:
        InputError: P is no longer positive: float64 does not suffice for these settings.
    """
    size = config.block
    if config.forgetting < 1:  # P grows by f^-k before it shrinks: not so far that digits are lost
        size = min(size, max(1, int(np.log(0.5) / np.log(config.forgetting))))
    starts = range(0, len(targets), size)
    for first in starts:
        x = features[rows[first : first + size]].astype(np.float64)
        x = np.hstack([x, np.ones((len(x), 1))])  # (k, N + 1)
        weights = config.forgetting ** np.arange(len(x) - 1, -1, -1.0)  # D (k,)
        sums["p"] = _shrink(sums["p"] / config.forgetting ** len(x), x, weights)
        if config.forgetting < 1:
            sums["z"] *= config.forgetting ** len(x)
        add_by_target(sums["z"], x * weights[:, None], targets[first : first + size])
    return len(starts)


def _shrink(p: np.ndarray, x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(P^-1 + X^T D X)^-1 of P (N + 1, N + 1), X (k, N + 1), D (k,)."""
    x = x * np.sqrt(weights)[:, None]
    xp = x @ p  # (k, N + 1)
    try:
        factor = np.linalg.cholesky(xp @ x.T + np.eye(len(x)))
    except np.linalg.LinAlgError:
        factor = np.full((1, 1), np.nan)
    if np.isfinite(factor).all():
        half = scipy.linalg.solve_triangular(factor, xp, lower=True)  # P' X^T (..)^-1 X P' = half^T half
        p = p - half.T @ half
        p = (p + p.T) / 2
        if (p.diagonal() > 0).all():
            return p
    raise InputError(
        "training.kind is rls: P is no longer positive definite, for float64 does not suffice; raise training.delta or"
        " training.forgetting, or choose ridge"
    )


def solve(sums: dict) -> tuple[np.ndarray, np.ndarray]:
    """(W (V, N), intercept (V,)) of what was taken in."""
    w = sums["z"] @ sums["p"]
    return w[:, :-1], w[:, -1]


def make(config: RlsConfig, rank: None, sums: dict, held_out: HeldOut, log_p: np.ndarray) -> tuple[dict, dict]:
    """The readout of full rank, and a record of its calibration: as ridge.make has them."""
    w, intercept = solve(sums)
    scores = linear_scores(w, intercept, sums["z"][:, :-1], sums["z"][:, -1])
    return calibration.calibrate(config.log_probs, scores, held_out, log_p)


def memory(features: int, vocab_size: int, rank: None) -> int:
    """Bytes that are needed at once, at most: P, its successor and what is taken from it; Z, W and the readout."""
    return 8 * (4 * (features + 1) ** 2 + 2 * vocab_size * (features + 1)) + 4 * 2 * vocab_size * features


def flops(features: int, vocab_size: int, tokens: int) -> int:
    """Of the regression, in matrix products: X P' and what is taken from P', and W."""
    return features**2 * (4 * tokens + 2 * vocab_size)
