"""How widely a stack of layers is drawn and how fast each learns, by the widths alone (S5; learning_dynamics_thesis).

Layers h~_l = W_l h_{l-1}, l = 1 .. L, of widths n_0 .. n_L, all g_l = 1 (section 2.5). Entries of W_l are drawn with a
standard deviation gamma_l sigma_l, and W_l learns at eta lr_l, where eta is the learning rate of the whole network.
"""

from collections.abc import Sequence

import numpy as np

SCALINGS = ("none", "ntp", "spectral", "dynamic")  # of the readout W_out = A B
PARAMETRIZATIONS = ("ntp", "standard", "mup", "spectral", "dynamic")  # of any stack


def sigmas_and_rates(
    parametrization: str, widths: Sequence[int], exponent: float = 0.5
) -> tuple[np.ndarray, np.ndarray]:
    """sigma_l and lr_l under gradient descent, both (L,) float64, for l = 1 .. L.

    Args:
        parametrization: of PARAMETRIZATIONS. "mup" is the standard one: rates n_l / n_{l-1}, the last layer's 1 / n_{L-1}.
        widths: n_0 .. n_L, at least one hidden layer.
        exponent: q of "dynamic", in [0, 1/2]: 0 is NTP.
    """
    n_in, n_out = np.array(widths[:-1], float), np.array(widths[1:], float)
    sigma = 1 / np.sqrt(n_in)
    if parametrization == "standard":
        return sigma, np.ones_like(sigma)  # (2.86), (2.87)
    if parametrization == "spectral":
        return sigma * np.minimum(1, np.sqrt(n_out / n_in)), n_out / n_in  # (3.1), (3.2)
    narrowest = min(widths[1:-1])
    q = exponent if parametrization == "dynamic" else 0
    rate = n_out / n_in if parametrization == "mup" else narrowest ** (2 * q) / n_in  # (2.82)
    rate[-1] = 1 / n_in[-1]  # (2.83)
    sigma[-1] /= np.sqrt(n_in[-1]) if parametrization == "mup" else narrowest**q  # (2.85)
    return sigma, rate


def readout_sigmas(scaling: str, size: int, rank: int, vocab_size: int) -> dict[str, float]:
    """Standard deviations of B (r, N), A (V, r) and b_out (V,): the two layers N -> r -> V, nothing between, so gamma_l = 1.

    The thesis's bias enters as sqrt(n_{l-1}) b_l (2.2), with b_l drawn and trained as W_l is: b_out = sqrt(r) b_2.
    """
    sigma = sigmas_and_rates(scaling, (size, rank, vocab_size))[0]
    return {"b": sigma[0], "a": sigma[1], "bias": np.sqrt(rank) * sigma[1]}


def readout_rates(scaling: str, optimizer: str, size: int, rank: int, vocab_size: int) -> dict[str, float]:
    """What multiplies the learning rate of B, A and b_out, under "sgd" as in the thesis or under "adamw" [ours].

    Adam moves each entry of W_l by about its rate, however small the gradient, and for one input all of row i by
    -sign(dL/dh~_i) sign(h_j): so |delta h~_l,i| = rate sum_j |h_j| = Theta(rate n_{l-1}), as |h_j| = Theta(1). For this
    to be what table 1.1 has for z = B h, r^-1/2 (NTP) or 1 (Spectral, Dynamic with n_min = r), and 1 for the output in
    all (2.45), the rate is that order over n_{l-1}. It is a bias's own change that moves the output: rate 1.
    Under SGD b_out = sqrt(r) b_2 learns at r lr_2, once a root for the gradient of b_2 and once for its step.
    """
    if optimizer == "adamw":
        return {"b": (rank**-0.5 if scaling == "ntp" else 1) / size, "a": 1 / rank, "bias": 1.0}
    rate = sigmas_and_rates(scaling, (size, rank, vocab_size))[1]
    return {"b": rate[0], "a": rate[1], "bias": rank * rate[1]}
