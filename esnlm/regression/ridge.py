"""Ridge regression onto one-hot targets, from sums that are taken once over the text.

    y(h) = p + W (h - m),    W = C (G + lambda I)^-1,    G = sum (h - m)(h - m)^T,    C = sum (d - p)(h - m)^T

over all tokens, of features h and one-hot next tokens d, with means m and p: the intercept is not penalised. One
eigendecomposition G = Q diag(s) Q^T serves every lambda. Nothing of the size tokens x N ever exists, and d is an index:
C adds up the features that precede each token. Sums and solutions are float64.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.linalg
from scipy.linalg import blas

from esnlm.errors import InputError
from esnlm.regression import calibration
from esnlm.regression.calibration import HeldOut, Rule, fit, linear_scores

BLOCK = 1 << 23  # entries of features that are float64 at once


@dataclass(frozen=True)
class RidgeConfig:
    """Ridge regression (S4), in one pass over the text; with readout.rank the best of that rank."""

    kind: str = "ridge"
    regularizations: tuple[float, ...] = (
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
    )  # lambda, in mean eigenvalues of G
    log_probs: str = "calibrated"  # from linear scores: calibrated or softmax (regression/calibration.py)
    held_out_tokens: int = 4096  # of training text, left out of it, that choose lambda and calibrate
    checkpoint_every: int = 50  # windows of text

    @property
    def epochs(self) -> int:
        """A second pass would add the same to every sum."""
        return 1

    def check(self) -> None:
        if not self.regularizations or not all(0 <= value < np.inf for value in self.regularizations):
            raise InputError(f"training.regularizations is {self.regularizations}: it must hold numbers of at least 0")
        calibration.check(self)


def start(config: RidgeConfig, features: int, vocab_size: int) -> dict:
    """Sums over no tokens: "gram" sum h h^T, its upper triangle (N, N), "cross" sum d h^T (V, N), "counts" sum d (V,)."""
    return {
        "gram": np.zeros((features, features)),
        "cross": np.zeros((vocab_size, features)),
        "counts": np.zeros(vocab_size),
    }


def add(config: RidgeConfig, sums: dict, features: np.ndarray, rows: np.ndarray, targets: np.ndarray) -> int:
    """Adds tokens to the sums.

    Args:
        features: (.., N) float32.
        rows: of the features of each token, (n,).
        targets: the token that follows each, (n,).

    Returns:
        The updates that this was: 1.
    """
    for part in blocks(len(targets), features.shape[1]):
        h = features[rows[part]].astype(np.float64)  # (k, N)
        sums["gram"] = blas.dsyrk(1.0, h.T, beta=1.0, c=sums["gram"].T, lower=True, overwrite_c=True).T
        add_by_target(sums["cross"], h, targets[part])
    sums["counts"] += np.bincount(targets, minlength=len(sums["counts"]))
    return 1


def add_by_target(cross: np.ndarray, h: np.ndarray, targets: np.ndarray) -> None:
    """Adds each row of h (n, N) to the row of cross (V, N) that its target names."""
    order = np.argsort(targets, kind="stable")
    present, first = np.unique(targets[order], return_index=True)
    cross[present] += np.add.reduceat(h[order], first)


def blocks(count: int, width: int) -> list[slice]:
    """`count` rows of `width` entries, in slices of at most BLOCK entries, or of 256 rows where those are more."""
    size = max(256, BLOCK // width)
    return [slice(start, start + size) for start in range(0, count, size)]


class Spectrum(NamedTuple):
    """The normal equations in the basis where they are diagonal."""

    values: np.ndarray  # s (N,), ascending
    vectors: np.ndarray  # Q (N, N), a column an eigenvector
    cross: np.ndarray  # C Q (V, N)
    mean: np.ndarray  # m (N,)
    share: np.ndarray  # p (V,)

    def penalized(self, regularization: float) -> np.ndarray:
        """s + lambda (N,).

        Raises:
            InputError: this has no inverse in float64.
        """
        found = self.values + regularization * self.values.sum() / len(self.values)
        if not found[0] > len(found) * np.finfo(np.float64).eps * found[-1]:
            raise InputError(
                f"training.regularizations: at {regularization:g} the normal equations are singular, since states depend on each"
                f" other (eigenvalues from {found[0]:.1e} to {found[-1]:.1e}); leave it out, or raise it"
            )
        return found


def decompose(sums: dict) -> Spectrum:
    """The spectrum of the sums, whose memory it takes over."""
    gram, cross, counts = sums["gram"], sums["cross"], sums["counts"]
    tokens, total = counts.sum(), cross.sum(0)
    mean, share = total / tokens, counts / tokens
    for rows in blocks(len(gram), len(gram)):
        gram[rows] -= np.outer(total[rows], mean)
    # "evr" needs one more N x N, "evd" three, and it overflows its 32-bit sizes at N = 32,768.
    values, vectors = scipy.linalg.eigh(gram.T, lower=True, overwrite_a=True, check_finite=False, driver="evr")
    for rows in blocks(len(cross), len(gram)):
        cross[rows] = (cross[rows] - np.outer(counts[rows], mean)) @ vectors
    return Spectrum(values, vectors, cross, mean, share)


def make(config: RidgeConfig, rank: int | None, sums: dict, held_out: HeldOut, log_p: np.ndarray) -> tuple[dict, dict]:
    """The readout of the best regularisation.

    Each is judged at full rank by the NLL of held-out text, under the rule calibrated for it. The readout of rank r is then
    the best one of that rank: with M = P C Q (S + lambda I)^-1/2, where P = diag(p)^-gamma is what the rule scales scores by, it
    keeps the r largest singular values of M, which are those of the fitted scaled scores, penalty included.

    Args:
        sums: of the training text; used up.
        log_p: log of the unigram probabilities (V,).

    Returns:
        (readout, record): {"w" (V, N), "bias" (V,)} or {"a" (V, r), "b" (r, N), "bias"}, float32; and what was tried and
        chosen, for the summary.

    Raises:
        InputError: the normal equations are singular at every regularisation; one at which they are is left out otherwise.
    """
    counts, spectrum = sums["counts"], decompose(sums)
    rotated = HeldOut(((held_out.features - spectrum.mean) @ spectrum.vectors).astype(np.float32), held_out.targets)

    def scores(w, sums):
        return linear_scores(w, spectrum.share, sums, counts)

    found, singular, rule = {}, [], Rule(config.log_probs)
    for regularization in sorted(config.regularizations):
        try:
            penalized = spectrum.penalized(regularization)
        except InputError as error:
            singular.append(error)
            continue
        rule = fit(scores(_float32(spectrum.cross, 1 / penalized), spectrum.cross), rotated, log_p, rule)
        found[regularization] = rule
    if not found:
        raise singular[-1]
    best = min(found, key=lambda regularization: np.nan_to_num(found[regularization].nll, nan=np.inf))
    tried = {f"{one:g}": found[one].nll for one in found}
    rule, record = found[best], {"regularization": best, "held_out_nll": tried, "singular": len(singular)}
    root = np.sqrt(spectrum.penalized(best))
    if rank is None:
        arrays = rule.readout(scores(_float32(spectrum.cross, 1 / root**2), spectrum.cross), log_p)
        w = _float32(arrays["w"], 1.0, spectrum.vectors.T)
        return {"w": w, "bias": (arrays["bias"] - w @ spectrum.mean).astype(np.float32)}, record | rule.record()
    scale = np.exp(-rule.gamma * log_p)[:, None] if rule.kind == "calibrated" else np.ones((len(log_p), 1))
    directions = _largest_directions(spectrum.cross, root, scale, rank) / root[:, None]  # (S + lambda I)^-1/2 U (N, r)
    a = _float32(spectrum.cross, 1.0, directions)
    reduced = scores(a, a)
    z = HeldOut((rotated.features @ directions).astype(np.float32), held_out.targets)
    rule = fit(reduced, z, log_p, rule, gamma_too=False)
    arrays, b = rule.readout(reduced, log_p), (spectrum.vectors @ directions).T
    bias = arrays["bias"] - arrays["w"] @ (b @ spectrum.mean)
    return {"a": arrays["w"], "b": b.astype(np.float32), "bias": bias.astype(np.float32)}, record | rule.record()


def _float32(matrix: np.ndarray, scale, onto: np.ndarray | None = None) -> np.ndarray:
    """A matrix (V, ..) with its columns scaled, times `onto` where it is given, as float32: block by block."""
    found = np.empty((len(matrix), matrix.shape[1] if onto is None else onto.shape[1]), np.float32)
    for rows in blocks(*matrix.shape):
        part = matrix[rows] * scale
        found[rows] = part if onto is None else part @ onto
    return found


def _largest_directions(cross, root, scale, rank) -> np.ndarray:
    """The right singular vectors (N, r) of the r largest singular values of M = scale * cross / root."""
    gram = np.zeros((len(root), len(root)), order="F")
    for rows in blocks(*cross.shape):
        part = scale[rows] * cross[rows] / root
        gram = blas.dsyrk(1.0, part.T, beta=1.0, c=gram, lower=True, overwrite_c=True)
    last = len(root) - 1
    return scipy.linalg.eigh(gram, lower=True, overwrite_a=True, subset_by_index=[last + 1 - rank, last], driver="evr")[
        1
    ]


def memory(features: int, vocab_size: int, rank: int | None) -> int:
    """Bytes that are needed at once, at most: G, Q and C in float64; then Q and C, W as it is tried, and the readout."""
    square, cross = features * features, vocab_size * features
    return max(8 * (2 * square + cross), 8 * (square * (1 if rank is None else 3) + cross) + 4 * 2 * cross)


def flops(features: int, vocab_size: int, tokens: int) -> int:
    """Of the regression, in matrix products: G, its eigenvectors, C and W in their basis and out of it."""
    return features**2 * (tokens + 9 * features + 4 * vocab_size)
