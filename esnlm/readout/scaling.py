"""Initial standard deviations and learning rates of W_out = A B as functions of the layer widths.

The rules are from Utsunomiya 2025, for the two linear layers N -> r -> V of the readout. A layer
n -> m is drawn with the standard deviation sigma and learns at eta lr under gradient descent, where
eta is the learning rate of the whole network (all g_l are 1, section 2.5):

              sigma of B                  lr of B    sigma of A                  lr of A
    ntp       1 / sqrt(N)                 1 / N      1 / sqrt(r)                 1 / r
    spectral  min(1, sqrt(r/N)) / sqrt(N) r / N      min(1, sqrt(V/r)) / sqrt(r) V / r
    dynamic   1 / sqrt(N)                 r / N      1 / r                       1 / r

(eq. 2.82 to 2.85 at q = 0 for ntp and q = 1/2 for dynamic, eq. 3.1 and 3.2 for spectral.) The bias
enters as sqrt(n) b_l (eq. 2.2), with b_l drawn and trained like W_l. Hence b_out = sqrt(r) b_2.
"""

import numpy as np


def readout_sigmas(scaling: str, size: int, rank: int, vocab_size: int) -> dict[str, float]:
    """Returns the standard deviations of B (r, N), A (V, r) and b_out (V,)."""
    b, a = 1 / np.sqrt(size), 1 / np.sqrt(rank)
    if scaling == "spectral":
        b *= np.minimum(1, np.sqrt(rank / size))
        a *= np.minimum(1, np.sqrt(vocab_size / rank))
    elif scaling == "dynamic":
        a /= rank**0.5
    return {"b": b, "a": a, "bias": np.sqrt(rank) * a}


def readout_rates(
    scaling: str, optimizer: str, size: int, rank: int, vocab_size: int
) -> dict[str, float]:
    """Returns the factors on the learning rates of B, A and b_out for an optimizer.

    "sgd" has those of the thesis, "adamw" our own [ours].

    Under SGD, b_out = sqrt(r) b_2 learns at r lr_2: one root comes from the gradient of b_2, the
    other from its step.

    Adam moves each entry of W_l by about its learning rate, however small the gradient. For one
    input it moves all of row i by -sign(dL/dh~_i) sign(h_j), so that |delta h~_l,i| = rate sum_j
    |h_j| = Theta(rate n_{l-1}), as |h_j| = Theta(1). This change should have the order of table
    1.1: for z = B h, r^-1/2 under NTP and 1 under Spectral and Dynamic (with n_min = r), and for
    the output 1 under all (eq. 2.45). So the rate is that order divided by n_{l-1}. A bias changes
    the output directly, so its rate is 1.
    """
    if optimizer == "adamw":
        order = rank**-0.5 if scaling == "ntp" else 1
        return {"b": order / size, "a": 1 / rank, "bias": 1.0}
    b = (1 if scaling == "ntp" else rank) / size
    a = (vocab_size if scaling == "spectral" else 1) / rank
    return {"b": b, "a": a, "bias": rank * a}
