"""What a time step of a reservoir does near the state 0 and the input 0, where f(x) is x."""

import numpy as np
import scipy.sparse

from esnlm.reservoir.arrays import as_scipy
from esnlm.reservoir.cell import Reservoir


def linearise(layer: Reservoir, decay: float) -> scipy.sparse.csr_array | np.ndarray:
    """Returns (I - alpha diag(a)) O + diag(a) W, (N, N) float64, as sparse as W; O is I, or the cyclic shift of `residual_shift`.

    With alpha = gamma this is I + diag(a) (W - gamma I) too, the linearisation of `euler_state`.

    Args:
        layer: one reservoir. What the update rule of a program's own does near 0 is not known here: it is taken for `leaky_output`.
        decay: alpha of the continuous-time form, 1 elsewhere; under `euler_state` the diffusion gamma.
    """
    w, a = as_scipy(layer.stored_w_rec), np.asarray(layer.leak, np.float64)
    kept = scipy.sparse.csr_array(scipy.sparse.diags_array(1 - decay * a))
    if layer.update_rule == "residual_shift":
        kept = scipy.sparse.csr_array(
            kept[:, np.roll(np.arange(len(a)), -1)]
        )  # column j of kept O is column j + 1 of kept
    if not scipy.sparse.issparse(w):
        return kept.toarray() + a[:, None] * w
    return scipy.sparse.csr_array(kept + scipy.sparse.diags_array(a) @ w)
