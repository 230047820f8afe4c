"""A time step in one launch, in Pallas's interpreter on a CPU, against NumPy in float64.

What it computes in sequence, in a prefix tree, behind an embedding and in stacks is tested with all other kernels, in
tests/features/test_recurrence.py and tests/reservoir/test_cell.py.
"""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from esnlm.features import dropout
from esnlm.features.stream import FeatureStream
from esnlm.reservoir import functions, fused, sparse
from esnlm.reservoir.arrays import bcoo
from esnlm.reservoir.topology import TOPOLOGIES
from esnlm.reservoir.topology.block_diagonal import BlockDiagonal
from esnlm.reservoir.topology.fixed_in_degree import FixedInDegree
from esnlm.reservoir.topology.scale_free import ScaleFree
from esnlm.reservoir.weights import ContinuousTime, ReservoirConfig, initialize_reservoir
from tests import oracle

V, N = 23, 96
EPSILON = float(np.finfo(np.float32).eps)
BF16 = 2.0**-8  # a number is rounded to bfloat16, of 8 significant bits, by at most so much of itself


def reservoir(**settings):
    given = {"state_size": N, "mean_degree": 6.0, "spectral_radius": 0.4} | settings
    return initialize_reservoir(ReservoirConfig(**given), V, seed=1).reservoir


def sentences(count=5, longest=12, seed=0):
    """Sentences with one first token, which is read once."""
    rng = np.random.default_rng(seed)
    return [np.append(V - 1, rng.integers(0, V, rng.integers(1, longest))).astype(np.int32) for _ in range(count)]


def read(ready, texts, slots=4, **more):
    buffer, rows = FeatureStream(ready, slots, capacity=8).read(texts, **more)
    return [np.asarray(buffer[row], np.float64) for row in rows]


def states_and_bound(frozen, text, precision="float32", f=np.tanh, keep=1.0):
    """What the oracle makes of a sentence, and how far rounding may take a computation from it, both (T, N).

    An error E of the states reaches the drive as |W_rec| E, and no activation enlarges it. What W_rec reads is rounded, and
    so is every one of the k + 4 operations behind a number in float32, for the k entries of the fullest row.
    """
    w_rec, w_in, leak = oracle.matrices(frozen)
    drive = w_in.T[text] * keep
    membrane, alpha = frozen.update_rule == "leaky_membrane", frozen.decay
    # (1 - alpha a) x + a (.) is an oracle's step with the leak alpha a and a drive that is weaker by alpha; f stays inside.
    scale = 1.0 if alpha == 1 else 1 / alpha
    assert alpha == 1 or membrane
    exact = oracle.driven_states(w_rec * scale, leak * alpha, drive * scale, frozen.update_rule, f)
    before = np.vstack([np.zeros(len(leak)), exact[:-1]])
    roundings = (np.count_nonzero(w_rec, axis=1).max() + 4) * EPSILON
    error, found = np.zeros(len(leak)), []
    for state, driven in zip(before, drive, strict=True):
        read_error = error + (BF16 if precision == "bf16" else 0) * (np.abs(state) + error)
        size = np.abs(w_rec) @ (np.abs(state) + read_error) + np.abs(driven)
        error = (1 - alpha * leak) * error + leak * (np.abs(w_rec) @ read_error)
        error = error + roundings * (np.abs(state) + 1 + size)
        found.append(error)
    return exact, np.array(found)


# ---- the product

DRAWN = {kind: topology for kind, topology in TOPOLOGIES.items() if kind != "given"}  # which is drawn by nobody
SMALL = {kind: topology() for kind, topology in DRAWN.items()} | {
    "block_diagonal": BlockDiagonal(blocks=6, mean_degree=5.0),
    "fixed_in_degree": FixedInDegree(degree=6),
    "scale_free": ScaleFree(edges=3),
}


@pytest.mark.nightly
def test_rows_of_every_topology_are_summed():
    """One graph of each kind, along the diagonal of one matrix; a row that reads every unit, and rows that read none."""
    assert set(SMALL) == set(DRAWN)
    blocks = [oracle.dense(reservoir(state_size=72, topology=topology).w_rec) for topology in SMALL.values()]
    w = scipy.linalg.block_diag(*blocks)[:-1, :-1]  # a number of rows that fills no tile
    w[3], w[17:40:5] = np.linspace(-1, 1, len(w)), 0
    row, column = np.nonzero(w)
    h = np.random.default_rng(0).normal(size=(len(w), 21)).astype(np.float32)
    indices = np.stack([row, column], axis=1).astype(np.int32)
    matrix = sparse.prepare(bcoo(w[row, column].astype(np.float32), indices, w.shape), "fused")
    found = np.asarray(jax.jit(sparse.matmul)(matrix, jnp.asarray(h)), np.float64)
    terms = np.count_nonzero(w, axis=1)[:, None]
    assert (np.abs(found - np.float64(w) @ h) <= terms * EPSILON * (np.abs(w) @ np.abs(h))).all()
    assert not found[17:40:5].any()


def test_states_of_a_tile_stay_in_the_cache():
    assert fused.slots_of_tile(4096, 512, 4) == fused.MOST_SLOTS == 64
    for units, itemsize in ((65_536, 4), (65_536, 2), (131_072, 4)):
        assert fused.slots_of_tile(units, 256, itemsize) * units * itemsize <= fused.STATES_IN_CACHE
    assert [fused.slots_of_tile(90, slots, 4) for slots in (1, 16, 17, 40, 1000)] == [16, 16, 32, 64, 64]


# ---- whole steps

RULES = {
    "few entries": {"mean_degree": 1.0},
    "membrane": {"update_rule": "leaky_membrane", "continuous": ContinuousTime(decay=0.5, step=0.6)},
    "membrane of ReLU": {"update_rule": "leaky_membrane", "activation": "relu"},
    "ReLU": {"activation": "relu"},
    "not a multiple of a tile": {"state_size": 90},
    **{kind: {"topology": topology} for kind, topology in SMALL.items()},
}
BY_DEFAULT = [("scale_free", "float32"), ("membrane", "bf16")]


@pytest.mark.parametrize(
    "name, precision",
    [
        pytest.param(name, precision, marks=() if (name, precision) in BY_DEFAULT else pytest.mark.nightly)
        for name in RULES
        for precision in ("float32", "bf16")
    ],
)
def test_steps_are_those_of_the_oracle(name, precision):
    frozen, texts = reservoir(**RULES[name]), sentences()
    f = np.tanh if frozen.activation == "tanh" else lambda x: np.maximum(x, 0)
    found = read(frozen.for_device("fused", state_precision=precision), texts)
    worst = 0.0
    for states, text in zip(found, texts, strict=True):
        exact, bound = states_and_bound(frozen, text, precision, f)
        assert (np.abs(states - exact) <= bound).all()
        worst = max(worst, np.abs(states - exact).max())
    assert (worst > 100 * EPSILON) == (
        precision == "bf16"
    )  # float32 is not what is called bf16, nor the other way round


class Watched:
    """An array of which every place that is read or written must be there, as a GPU does not see to it."""

    def __init__(self, array):
        self.array, self.shape = np.array(array), np.shape(array)

    def load(self, places, mask=None):
        at, wanted = self._at(places, mask)
        return jnp.where(wanted, self.array[at], 0)

    def store(self, places, value, mask=None):
        at, wanted = self._at(places, mask)
        self.array[tuple(place[wanted] for place in at)] = np.broadcast_to(value, wanted.shape)[wanted]

    def _at(self, places, mask):
        at = np.broadcast_arrays(*places) if places else []
        wanted = np.broadcast_to(True if mask is None else mask, at[0].shape if at else ())
        for place, size in zip(at, self.shape, strict=True):
            assert (~wanted | ((place >= 0) & (place < size))).all()
        return tuple(np.where(wanted, place, 0) for place in at), wanted


def launch_on_the_host(name, compute, inputs, outputs, in_place, programs):
    """Runs one program after another in Python."""
    arrays = {own: Watched(array) for own, array in inputs.items()}
    arrays |= {own: Watched(np.zeros(each.shape, each.dtype)) for own, each in outputs.items()}
    arrays |= {new: arrays[own] for own, new in in_place.items()}
    for program in range(programs):
        compute(SimpleNamespace(program=jnp.int32(program), **arrays))
    return [jnp.asarray(arrays[own].array) for own in outputs]


@pytest.mark.nightly
def test_no_program_reads_or_writes_outside_of_an_array(monkeypatch):
    """Neither units nor slots fill their tiles, and the buckets of W_in's columns are of unequal size."""
    monkeypatch.setattr(fused, "_launch", launch_on_the_host)
    frozen, texts = reservoir(state_size=75, mean_degree=3.0), sentences(3, longest=4)
    ready = frozen.for_device("fused")
    assert -(-75 // fused.ROWS) % (ready.input.columns.buckets.shape[1] - 1)
    with jax.disable_jit():
        found = read(ready, texts, slots=2)
    for states, text in zip(found, texts, strict=True):
        exact, bound = states_and_bound(frozen, text)
        assert (np.abs(states - exact) <= bound).all()


def test_plain_kernels_round_what_is_read_too():
    frozen, texts = reservoir(), sentences()
    for states, text in zip(read(frozen.for_device("csr", state_precision="bf16"), texts), texts, strict=True):
        exact, bound = states_and_bound(frozen, text, "bf16")
        assert (np.abs(states - exact) <= bound).all()
        assert len(text) == 1 or np.abs(states - exact).max() > 100 * EPSILON


def test_dropped_input_is_given_to_the_kernel():
    """W_in u with its mask, which no column of W_in is."""
    frozen, texts, key = reservoir(), sentences(), dropout.epoch_key(0, 0)
    positions = list(np.split(np.arange(sum(map(len, texts)), dtype=np.uint32), np.cumsum(list(map(len, texts)))[:-1]))
    ready = {kernel: frozen.for_device(kernel) for kernel in ("fused", "csr")}
    found = {}
    for kernel, cell in ready.items():
        buffer, rows = FeatureStream(cell, 4, 8, dropout=0.5).read(texts, corpus_positions=positions, key=key)
        found[kernel] = np.asarray(buffer[np.concatenate(rows)])
    bound = 2 * max(states_and_bound(frozen, text, keep=2.0)[1].max() for text in texts)
    assert np.abs(found["fused"] - found["csr"]).max() <= bound
    assert np.abs(found["csr"] - np.concatenate(read(ready["csr"], texts))).max() > 0.01  # something was dropped


def test_a_trained_input_is_read_as_it_is_and_gradients_take_the_products():
    """An ESN+i: its W_in changes, so no bucket is kept of it, and gradients go through W_rec's transpose."""
    trained, texts = reservoir().with_trained_input(), sentences(2, longest=5)
    for states, text in zip(read(trained.for_device("fused"), texts, slots=2), texts, strict=True):
        exact, bound = states_and_bound(reservoir(), text)
        assert (np.abs(states - exact) <= bound).all()
    ready = trained.for_device("fused", state_precision="bf16", differentiable=True)
    assert not ready.fuses_steps
    h = jnp.asarray(np.random.default_rng(0).normal(size=(N, 3)).astype(np.float32))
    (found,) = jax.vjp(ready._feed_back, h)[1](h)
    w = oracle.dense(reservoir().w_rec)  # and h is rounded, which no gradient sees
    terms = np.count_nonzero(w, axis=0).max()
    assert (np.abs(found - w.T @ h) <= terms * EPSILON * (np.abs(w.T) @ np.abs(h))).all()


def softsign_of(x):
    return x / (1 + abs(x))


def test_an_activation_of_a_program_s_own_takes_the_products():
    """The kernel knows the built-in equations only; W_rec's product is its own all the same."""
    frozen, texts, softsign = reservoir(), sentences(2, longest=5), functions.name_of("activation", softsign_of)
    frozen.activation, frozen.f = softsign, functions.ACTIVATIONS[softsign]
    ready = frozen.for_device("fused")
    assert not ready.fuses_steps
    for found, plain in zip(read(ready, texts, slots=2), read(frozen.for_device("csr"), texts, slots=2), strict=True):
        np.testing.assert_allclose(found, plain, atol=1e-6)
