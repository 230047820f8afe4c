"""What a time step of a reservoir does near the state 0 and the input 0, where f(x) is x."""

import numpy as np
import scipy.sparse

from esnlm.reservoir.arrays import as_scipy
from esnlm.reservoir.cell import Reservoir
from esnlm.reservoir.functions import is_built_in


def is_known(activation: str, update_rule: str) -> bool:
    """Tells whether `linearise` is what a time step does near 0. Of functions of a program's own it is not known."""
    return is_built_in(activation) and is_built_in(update_rule)


def linearise(layer: Reservoir, decay: float) -> scipy.sparse.csr_array | np.ndarray:
    """Returns (I - alpha diag(a)) O + diag(a) W, (N, N) float64, as sparse as W; O is I, or the cyclic shift of `residual_shift`.

    With alpha = gamma this is I + diag(a) (W - gamma I) too, the linearisation of `euler_state`. `decay` is alpha, or gamma. A
    function of a program's own is taken for tanh or for `leaky_output`; see `is_known`.
    """
    w, a = as_scipy(layer.stored_w_rec), np.asarray(layer.leak, np.float64)
    kept = scipy.sparse.csr_array(scipy.sparse.diags_array(1 - decay * a))
    if layer.update_rule == "residual_shift":
        # Column j of kept O is column j + 1 of kept.
        kept = scipy.sparse.csr_array(kept[:, np.roll(np.arange(len(a)), -1)])
    if not scipy.sparse.issparse(w):
        return kept.toarray() + a[:, None] * w
    return scipy.sparse.csr_array(kept + scipy.sparse.diags_array(a) @ w)
