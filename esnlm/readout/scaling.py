"""Initial standard deviations and learning rates of a stack of layers as functions of the widths.

The rules and the numbers of equations, sections and tables are from Utsunomiya 2025. The layers are
h~_l = W_l h_{l-1}, l = 1 .. L, of widths n_0 .. n_L, and all g_l are 1 (section 2.5). The entries
of W_l are drawn with the standard deviation gamma_l sigma_l, and W_l learns at eta lr_l, where eta
is the learning rate of the whole network.
"""

from collections.abc import Sequence

import numpy as np


def sigmas_and_rates(
    parametrization: str, widths: Sequence[int], exponent: float = 0.5
) -> tuple[np.ndarray, np.ndarray]:
    """Returns sigma_l and lr_l for l = 1 .. L under gradient descent, both (L,) float64, for widths
    n_0 .. n_L.

    "mup" is the standard parametrization with rates n_l / n_{l-1}, and 1 / n_{L-1} for the last
    layer. The exponent is q of "dynamic", in [0, 1/2]; 0 is NTP.
    """
    n_in, n_out = np.array(widths[:-1], float), np.array(widths[1:], float)
    sigma = 1 / np.sqrt(n_in)
    if parametrization == "standard":
        return sigma, np.ones_like(sigma)  # eq. 2.86, 2.87
    if parametrization == "spectral":
        return sigma * np.minimum(1, np.sqrt(n_out / n_in)), n_out / n_in  # eq. 3.1, 3.2
    narrowest = min(widths[1:-1])
    q = exponent if parametrization == "dynamic" else 0
    rate = n_out / n_in if parametrization == "mup" else narrowest ** (2 * q) / n_in  # eq. 2.82
    rate[-1] = 1 / n_in[-1]  # eq. 2.83
    sigma[-1] /= np.sqrt(n_in[-1]) if parametrization == "mup" else narrowest**q  # eq. 2.85
    return sigma, rate


def readout_sigmas(scaling: str, size: int, rank: int, vocab_size: int) -> dict[str, float]:
    """Returns the standard deviations of B (r, N), A (V, r) and b_out (V,).

    The readout is two linear layers, N -> r -> V, so gamma_l = 1. In the thesis the bias enters as
    sqrt(n_{l-1}) b_l (eq. 2.2), with b_l drawn and trained like W_l. Hence b_out = sqrt(r) b_2.
    """
    sigma = sigmas_and_rates(scaling, (size, rank, vocab_size))[0]
    return {"b": sigma[0], "a": sigma[1], "bias": np.sqrt(rank) * sigma[1]}


def readout_rates(
    scaling: str, optimizer: str, size: int, rank: int, vocab_size: int
) -> dict[str, float]:
    """Returns the factors on the learning rates of B, A and b_out, for "sgd" as in the thesis or
    for "adamw" [ours].

    Under SGD, b_out = sqrt(r) b_2 learns at r lr_2: one root comes from the gradient of b_2, the
    other from its step.

    Adam moves each entry of W_l by about its learning rate, however small the gradient. For one
    input it moves all of row i by -sign(dL/dh~_i) sign(h_j), so that |delta h~_l,i| = rate sum_j
    |h_j| = Theta(rate n_{l-1}), as |h_j| = Theta(1). This change should have the order of table 1.1: for z = B h, r^-1/2 under NTP and 1 under Spectral and Dynamic (with
    n_min = r), and for the output 1 under all (eq. 2.45). So the rate is that order divided by
    n_{l-1}. A bias changes the output directly, so its rate is 1.
    """
    rate = sigmas_and_rates(scaling, (size, rank, vocab_size))[1]
    return {
        "adamw": {"b": (rank**-0.5 if scaling == "ntp" else 1) / size, "a": 1 / rank, "bias": 1.0},
        "sgd": {"b": rate[0], "a": rate[1], "bias": rank * rate[1]},
    }[optimizer]
