"""The kernel `fused`, and products in bf16 and tf32, against NumPy in float64.

What it computes in sequence, in a prefix tree, behind an embedding and in stacks is tested with all
other kernels, in tests/features/test_recurrence.py and tests/reservoir/test_cell.py.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from esnlm.features.stream import FeatureStream
from esnlm.reservoir import sparse
from esnlm.reservoir.arrays import bcoo
from esnlm.reservoir.cell import TrainedInput, with_input
from esnlm.reservoir.topology import TOPOLOGIES, BlockDiagonal, FixedInDegree, ScaleFree
from esnlm.reservoir.weights import ReservoirConfig, initialize_reservoir
from tests import oracle

V, N = 23, 96
EPSILON = float(np.finfo(np.float32).eps)
# the most that rounding takes from a number, of itself
ROUNDED_TO = {"float32": 0.0, "tf32": 2.0**-11, "bf16": 2.0**-8}


def reservoir(**settings):
    given = {"state_size": N, "mean_degree": 6.0, "spectral_radius": 0.4} | settings
    return initialize_reservoir(ReservoirConfig(**given), V, seed=1).reservoir


def sentences(count=5, longest=12, seed=0):
    """Sentences with one first token, which is read once."""
    rng = np.random.default_rng(seed)
    return [
        np.append(V - 1, rng.integers(0, V, rng.integers(1, longest))).astype(np.int32)
        for _ in range(count)
    ]


def read(ready, texts, slots=4):
    buffer, rows = FeatureStream(ready, slots, capacity=8).read(texts)
    return [np.asarray(buffer, np.float64)[row] for row in rows]


def states_and_bound(frozen, text, of_state=0.0, of_matrix=0.0):
    """What the oracle makes of a sentence, and how far rounding may take a computation from it,
    both (T, N).

    An error E of the states reaches the drive as |W_rec| E, and no activation enlarges it. What
    W_rec reads is rounded by `of_state`, W_rec itself by `of_matrix`, and so is every one of the k
    + 4 operations behind a number in float32, for the k entries of the fullest row.
    """
    w_rec, w_in, leak = oracle.matrices(frozen)
    exact, weights = oracle.states(w_rec, w_in, leak, text), np.abs(w_rec)
    before = np.vstack([np.zeros(len(leak)), exact[:-1]])
    roundings = (np.count_nonzero(w_rec, axis=1).max() + 4) * EPSILON
    error, found = np.zeros(len(leak)), []
    for state, driven in zip(before, w_in.T[text], strict=True):
        read_error = error + of_state * (np.abs(state) + error)
        size = weights @ (np.abs(state) + read_error) + np.abs(driven)
        error = (1 - leak) * error + leak * (weights @ read_error + of_matrix * size)
        error = error + roundings * (np.abs(state) + 1 + size)
        found.append(error)
    return exact, np.array(found)


# which is drawn by nobody
DRAWN = {kind: topology for kind, topology in TOPOLOGIES.items() if kind != "from_matrix"}
SMALL = {kind: topology() for kind, topology in DRAWN.items()} | {
    "block_diagonal": BlockDiagonal(blocks=6, mean_degree=5.0),
    "fixed_in_degree": FixedInDegree(degree=6),
    "scale_free": ScaleFree(edges=3),
}


def test_rows_of_every_topology_are_summed():
    """One graph of each kind, along the diagonal of one matrix; a row that reads every unit, and
    rows that read none."""
    assert set(SMALL) == set(DRAWN)
    blocks = [
        oracle.dense(reservoir(state_size=72, topology=topology).w_rec)
        for topology in SMALL.values()
    ]
    w = scipy.linalg.block_diag(*blocks)
    w[3], w[4, ::3], w[17:40:5] = np.linspace(-1, 1, len(w)), 0.5, 0
    row, column = np.nonzero(w)
    h = np.random.default_rng(0).normal(size=(len(w), 21)).astype(np.float32)
    indices = np.stack([row, column], axis=1).astype(np.int32)
    matrix = sparse.prepare(bcoo(w[row, column].astype(np.float32), indices, w.shape), "fused")
    assert isinstance(matrix.of_row, sparse.FusedRows), (
        "the pieces of the fullest row are too many to be added at once"
    )
    found = np.asarray(jax.jit(sparse.matmul)(matrix, jnp.asarray(h)), np.float64)
    terms = np.count_nonzero(w, axis=1)[:, None]
    assert (np.abs(found - np.float64(w) @ h) <= terms * EPSILON * (np.abs(w) @ np.abs(h))).all()
    assert not found[17:40:5].any()
    nothing = sparse.prepare_fused(5, *np.zeros((2, 0), np.int32), np.zeros(0))
    assert not sparse.matmul(nothing, jnp.ones((3, 2))).any()


@pytest.mark.parametrize(
    "kernel, precision", [("csr", "bf16"), ("fused", "bf16"), ("dense", "bf16"), ("dense", "tf32")]
)
def test_products_are_as_precise_as_asked_for(kernel, precision):
    """Sparse kernels round what W_rec reads; dense ones W_rec too."""
    frozen, texts = reservoir(), sentences()
    rounding, worst = ROUNDED_TO[precision], 0.0
    bounds = {"of_state": rounding, "of_matrix": rounding if kernel == "dense" else 0.0}
    for states, text in zip(
        read(frozen.for_device(kernel, state_precision=precision), texts), texts, strict=True
    ):
        exact, bound = states_and_bound(frozen, text, **bounds)
        assert (np.abs(states - exact) <= bound).all()
        worst = max(worst, np.abs(states - exact).max())
    assert worst > 100 * EPSILON, "float32 is not what is called bf16"


def test_gradients_take_the_transpose_and_no_rounding():
    ready = with_input(reservoir(), TrainedInput).for_device(
        "fused", state_precision="bf16", differentiable=True
    )
    h = jnp.asarray(np.random.default_rng(0).normal(size=(N, 3)).astype(np.float32))
    found = jax.jit(lambda h: jax.vjp(ready._feed_back, h)[1](h)[0])(h)
    w = oracle.dense(reservoir().w_rec)
    terms = np.count_nonzero(w, axis=0).max()
    assert (np.abs(found - w.T @ h) <= terms * EPSILON * (np.abs(w.T) @ np.abs(h))).all()
