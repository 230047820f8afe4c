"""The linearisation of a reservoir's time step at state 0 and input 0, where f(x) is x."""

import numpy as np
import scipy.sparse

from esnlm.reservoir.arrays import as_scipy
from esnlm.reservoir.cell import Reservoir
from esnlm.reservoir.functions import is_built_in


def is_known(activation: str, update_rule: str) -> bool:
    """Returns whether `linearise` is known to be right. For registered functions it is not
    known."""
    return is_built_in(activation) and is_built_in(update_rule)


def linearise(layer: Reservoir, decay: float) -> scipy.sparse.csr_array | np.ndarray:
    """Returns (I - alpha diag(a)) O + diag(a) W, (N, N) float64, as sparse as W; O is I, or the
    cyclic shift of `residual_shift`.

    With alpha = gamma this is also I + diag(a) (W - gamma I), the linearisation of `euler_state`.
    `decay` is alpha, or gamma. Registered functions are treated like tanh or `leaky_output`; see
    `is_known`.
    """
    w, a = as_scipy(layer.stored_w_rec), np.asarray(layer.leak, np.float64)
    kept = scipy.sparse.csr_array(scipy.sparse.diags_array(1 - decay * a))
    if layer.update_rule == "residual_shift":
        # Column j of kept O is column j + 1 of kept.
        kept = scipy.sparse.csr_array(kept[:, np.roll(np.arange(len(a)), -1)])
    if not scipy.sparse.issparse(w):
        return kept.toarray() + a[:, None] * w
    return scipy.sparse.csr_array(kept + scipy.sparse.diags_array(a) @ w)
