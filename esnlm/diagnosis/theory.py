"""The echo state property by theory: proposition 3 of Jaeger 2001, from norms and eigenvalues.

At the papers' settings it decides nothing; diagnosis/contraction.py then measures. Sparse matrices
stay sparse.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import scipy.sparse
from jax.experimental.sparse import BCOO
from scipy.sparse.linalg import svds

from esnlm.reservoir.arrays import as_scipy
from esnlm.reservoir.cell import ReservoirLayer, Stack
from esnlm.reservoir.functions import is_built_in
from esnlm.reservoir.spectrum import spectral_radius

DENSE_LIMIT = 512  # maximum units for singular values by LAPACK
SIGMA_TOLERANCE = 1e-6  # relative, for ARPACK
# The accuracy of `spectral_radius`, printed with three decimals. Values this close to a bound
# decide nothing.
MARGIN = 1e-3
ROUNDING = 1e-6  # relative: leaks are float32, where 0.8 is 0.80000001
START_SEED = 0  # for the start vectors of the iterations

ScipyMatrix: TypeAlias = scipy.sparse.csr_array | np.ndarray


@dataclass(frozen=True)
class Theory:
    """The verdict of proposition 3 on a network, and its values (the largest over layers)."""

    verdict: str  # holds | fails | undecided | undefined
    reason: str  # one sentence
    sigma_max: float  # largest singular value of W
    radius: float  # largest |eigenvalue| of W
    linear_radius: float | None  # largest |eigenvalue| of the linearisation; None if unknown
    empty_tokens: int  # number of tokens that drive no unit: their column of W_in, or W_in d, is 0


def decide(
    reservoir: ReservoirLayer | Stack, activation: str = "tanh", decay: float = 1.0
) -> Theory:
    """Decides whether the network has the echo state property, by proposition 3 of Jaeger 2001.

    (a) With tanh, sigma_max(W) < alpha in each layer, and all alpha a_i in (0, 1], it has the
    property for every input. (b) With tanh, an eigenvalue of the linearisation at 0 outside the
    unit circle, and input 0 possible, it has not. A value within 0.1 % of its bound decides
    nothing. With output feedback it is not defined (docs/references.md).

    `decay` is alpha of the continuous-time form, 1 elsewhere; under euler_state the diffusion
    gamma.
    """
    values = []  # sigma_max, radius and linear radius of each layer
    for layer in reservoir.layers:
        w = as_scipy(layer.stored_w_rec)
        matrices = w, linearise(layer, decay)
        radii = [spectral_radius(matrix, seed=START_SEED).radius for matrix in matrices]
        values.append([sigma_max(w, seed=START_SEED), *radii])
    sigma, radius, linear = np.max(values, axis=0).tolist()
    leaks = np.concatenate([np.asarray(layer.leak, np.float64) for layer in reservoir.layers])
    at_rest, empty = int((leaks == 0).sum()), _count_empty_tokens(reservoir.layers[0])
    steepest = decay * leaks.max()
    rules = {layer.update_rule for layer in reservoir.layers}
    uncovered = {activation} - {"tanh", "relu"} | rules - {"leaky_output", "leaky_membrane"}

    norm = (
        "sigma_max(W)" if len(values) == 1 else f"the largest sigma_max(W) of {len(values)} layers"
    )
    is_below = sigma < decay * (1 - MARGIN)
    not_a = f"{norm} = {sigma:.4g} is not below {decay:g} (proposition 3a)"
    if is_below:
        not_a = (
            f"alpha times the largest leak is {steepest:.4g}, above 1, where proposition 3a does"
            " not apply"
        )
    unstable = f"the linearisation at 0 has an eigenvalue of modulus {linear:.3f}, above 1"
    cases = [  # (applies, verdict, reason); the first one that applies decides
        (
            bool(uncovered),
            "undecided",
            f"the theory does not cover {' and '.join(sorted(uncovered))}",
        ),
        (
            activation != "tanh",
            "undefined",
            f"{activation} has no bounded set of states, which the echo state property requires",
        ),
        (
            at_rest > 0,
            "fails",
            f"{at_rest} of {len(leaks)} units have leak 0 and keep their start state forever",
        ),
        (
            is_below and steepest <= 1 + ROUNDING,
            "holds",
            f"{norm} = {sigma:.4g} is below {decay:g}: states contract under every input"
            " (proposition 3a)",
        ),
        (
            linear <= 1 + MARGIN,
            "undecided",
            f"{not_a}, and no eigenvalue of the linearisation at 0 ({linear:.3f}) is clearly above"
            " 1 (3b)",
        ),
        (
            empty > 0,
            "fails",
            f"{unstable}, and input 0 occurs (empty columns of W_in: {empty}; proposition 3b)",
        ),
        (
            True,
            "undecided",
            f"{not_a}; {unstable}, but every token has a column in W_in, so input 0 never occurs"
            " (3b)",
        ),
    ]
    verdict, reason = next((verdict, reason) for applies, verdict, reason in cases if applies)
    is_known = all(map(is_built_in, {activation, *rules}))
    return Theory(verdict, reason, sigma, radius, linear if is_known else None, empty)


def linearise(layer: ReservoirLayer, decay: float) -> ScipyMatrix:
    """Returns the linearisation of a time step at state 0 and input 0, where f(x) is x.

    It is (I - alpha diag(a)) O + diag(a) W, (N, N) float64, as sparse as W; O is I, or the cyclic
    shift of `residual_shift`. With alpha = gamma this is also I + diag(a) (W - gamma I), the
    linearisation of `euler_state`. `decay` is alpha, or gamma. Registered functions are treated
    like tanh or `leaky_output`, which may be wrong.
    """
    w, a = as_scipy(layer.stored_w_rec), np.asarray(layer.leak, np.float64)
    old = scipy.sparse.csr_array(scipy.sparse.diags_array(1 - decay * a))
    if layer.update_rule == "residual_shift":
        # Column j of (I - alpha diag(a)) O is column j + 1 of the first factor.
        old = scipy.sparse.csr_array(old[:, np.roll(np.arange(len(a)), -1)])
    if not scipy.sparse.issparse(w):
        return old.toarray() + a[:, None] * w
    return scipy.sparse.csr_array(old + scipy.sparse.diags_array(a) @ w)


def sigma_max(matrix: ScipyMatrix, *, seed: int) -> float:
    """Computes the largest singular value of a real square matrix (N, N), in float64.

    Above 512 units by ARPACK, whose Rayleigh quotient is never above the true value beyond
    rounding.
    """
    if matrix.shape[0] <= DENSE_LIMIT:
        dense = matrix if isinstance(matrix, np.ndarray) else matrix.toarray()
        return float(np.linalg.norm(dense, 2))
    if not abs(matrix).max():
        return 0.0  # Lanczos fails on a matrix of zeros
    rng = np.random.default_rng(seed)
    return float(svds(matrix, k=1, tol=SIGMA_TOLERANCE, return_singular_vectors=False, rng=rng)[0])


def _count_empty_tokens(first: ReservoirLayer) -> int:
    w_in = first.stored_w_in
    if first.embedding is not None:  # for a random d, W_in d is almost surely 0 only if W_in is
        return 0 if first.nonzeros[1] else first.vocab_size
    if not isinstance(w_in, BCOO):
        return int((~np.asarray(w_in).any(axis=0)).sum())
    column = np.asarray(w_in.indices)[np.asarray(w_in.data) != 0, 1]
    return int((np.bincount(column, minlength=w_in.shape[1]) == 0).sum())
