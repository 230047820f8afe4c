"""Update rules, embeddings and stacks: states on every kernel and in every layout are those of one
step at a time in NumPy."""

from functools import cache

import jax
import numpy as np
import pytest

from esnlm.features import recurrence
from esnlm.features.batching import pack_batch
from esnlm.features.stream import FeatureStream
from esnlm.machine.compute import ComputeConfig
from esnlm.models.echo_state import EchoStateConfig
from esnlm.reservoir import sparse
from esnlm.reservoir.cell import ReservoirLayer, Stack
from esnlm.reservoir.on_host import HostRecurrence
from esnlm.reservoir.topology import Antisymmetric, FixedInDegree, Ring, ScaleFree
from esnlm.reservoir.weights import ContinuousTime, ReservoirConfig, initialize_reservoir
from tests import oracle
from tests.features.test_recurrence import sentences

V, N = 23, 60
# Over 40 steps float32 stays within a few hundred roundings of float64, as in
# tests/features/test_recurrence.py.
TOLERANCE = 300 * float(np.finfo(np.float32).eps)

COMPUTE = ComputeConfig(kernel="csr", batch_slots=8, window_tokens=64)
MEMBRANE = {"update_rule": "leaky_membrane"}
RESERVOIRS = {
    "membrane": MEMBRANE,
    "membrane of ReLU": MEMBRANE | {"activation": "relu", "spectral_radius": 0.7},
    "membrane in continuous time": MEMBRANE | {"continuous": ContinuousTime(decay=0.5, step=0.6)},
    "output in continuous time": {"continuous": ContinuousTime(decay=0.5, step=0.6)},
    "Fujimaki 2026": MEMBRANE
    | {"embedding": 9, "input_connectivity": 1.0, "leak_min": 0.3, "leak_max": 0.3},
    "two dense layers": {"layers": 2, "connectivity": 0.5},
    "two rings": {"layers": 2, "topology": Ring()},
    "two scale-free layers of ReLU": {
        "layers": 2,
        "topology": ScaleFree(edges=3),
        "activation": "relu",
        "spectral_radius": 0.7,
    },
    "three layers with an embedding": MEMBRANE
    | {"embedding": 9, "layers": 3, "topology": FixedInDegree(degree=6)},
}
RESERVOIRS |= {
    "Euler state network": {"update_rule": "euler_state", "topology": Antisymmetric(mean_degree=6)}
    | {"leak_min": 0.1, "leak_max": 0.1, "diffusion": 0.05},
    "two residual layers": {"update_rule": "residual_shift", "layers": 2},
}


@cache
def frozen(name):
    return initialize_reservoir(settings(name), V, seed=1).reservoir


def settings(name):
    return ReservoirConfig(**{"state_size": N, "mean_degree": 6.0} | RESERVOIRS[name])


def ready(name, kernel="csr"):
    return frozen(name).for_device(kernel)


def build(name):
    config = EchoStateConfig(reservoir=settings(name))
    return config.initialize(V, 1, config.initialize_frozen(V, 1)[0])


def expected(name, sentence, keep=1.0):
    layers, config = frozen(name).layers, settings(name)
    embedding = (
        np.eye(V) if layers[0].embedding is None else oracle.dense(layers[0].embedding[...]).T
    )
    weights = [
        (
            oracle.dense(layer.stored_w_rec),
            oracle.dense(layer.stored_w_in),
            oracle.dense(layer.leak[...]),
        )
        for layer in layers
    ]
    f = np.tanh if config.activation == "tanh" else lambda x: np.maximum(x, 0)
    if config.update_rule == "euler_state":
        return oracle.stacked_states(
            weights, embedding[sentence], config.update_rule, f, keep, config.diffusion
        )
    # (1 - alpha a) x + a (.): an oracle of leak alpha a, with the second term divided by alpha
    (w_rec, w_in, leak), alpha = weights[0], config.decay
    if alpha != 1 and config.update_rule == "leaky_output":
        weights = [(w_rec, w_in, alpha * leak)]
        return oracle.stacked_states(
            weights, embedding[sentence], config.update_rule, lambda x: f(x) / alpha, keep
        )
    if alpha != 1:
        weights = [(w_rec / alpha, w_in / alpha, alpha * leak)]
    return oracle.stacked_states(weights, embedding[sentence], config.update_rule, f, keep)


@pytest.mark.parametrize(
    "name, kernel, prefix_tree",
    [
        *((name, "csr", False) for name in RESERVOIRS),
        *(("three layers with an embedding", kernel, True) for kernel in sparse.KERNELS),
    ],
)
def test_states_ahead_are_those_of_the_oracle(name, kernel, prefix_tree):
    texts = sentences(11)
    stream = FeatureStream(ready(name, kernel), slots=16, capacity=8)
    buffer, rows = stream.read(texts, prefix_tree=prefix_tree)
    assert buffer.shape[1] == settings(name).layers * N
    for text, row in zip(texts, rows, strict=True):
        np.testing.assert_allclose(
            np.asarray(buffer)[row], expected(name, text), atol=TOLERANCE, rtol=TOLERANCE
        )


@pytest.mark.parametrize("name", ["membrane", "three layers with an embedding"])
def test_states_of_a_packed_batch_and_dropped_are_those_of_the_oracle(name):
    """The mask falls on W_in d of the first layer, before anything is added, and on nothing
    else."""
    texts = sentences(11)
    batch, rows = pack_batch(texts, texts)
    keep = 2.0 * np.random.default_rng(0).integers(0, 2, (*batch.tokens.shape, N)).astype(
        np.float32
    )
    # (T, B, F)
    _, found = jax.jit(recurrence.unroll)(ready(name), batch.tokens, batch.positions, keep)
    for text, row in zip(texts, rows, strict=True):
        states = found.reshape(-1, found.shape[-1])[row]
        np.testing.assert_allclose(
            states, expected(name, text, keep.reshape(-1, N)[row]), atol=TOLERANCE, rtol=TOLERANCE
        )


@pytest.mark.parametrize("name", ["Fujimaki 2026", "three layers with an embedding"])
def test_states_step_by_step_are_the_same(name):
    """As text is generated."""
    model, text = build(name), sentences(11)[0]
    advance = model.for_device(COMPUTE).reader(3, len(text))
    found = [np.asarray(advance(np.full(3, token, np.int32))) for token in text]
    for slot in range(3):
        np.testing.assert_allclose(
            [step[slot] for step in found], expected(name, text), atol=TOLERANCE, rtol=TOLERANCE
        )


@pytest.mark.parametrize(
    "name", [name for name, given in RESERVOIRS.items() if "embedding" not in given]
)
def test_states_on_the_host_are_the_same(name):
    """As one text is generated on a CPU."""
    recurrence, text = HostRecurrence(build(name).host_layers()), sentences(11)[0]
    found = [np.concatenate(recurrence.read(np.array([token])))[:, 0].copy() for token in text]
    assert found[0].dtype == np.float32
    np.testing.assert_allclose(found, expected(name, text), atol=TOLERANCE, rtol=TOLERANCE)


def test_a_layer_sees_the_token_in_the_step_that_it_is_read():
    """Three units in a row, leak 1: the token reaches all of them at once, and nothing is left of
    it a step later."""
    one, none = np.ones((1, 1), np.float32), np.zeros((1, 1), np.float32)
    layers = [ReservoirLayer(none, np.array([[1.0, 0.0]], np.float32), np.ones(1, np.float32))]
    layers += [ReservoirLayer(none, one, np.ones(1, np.float32)) for _ in range(2)]
    stack = Stack(layers).for_device()
    states = stack.step(stack.initial_state(1), np.array([0]))
    r1 = np.tanh(1)
    np.testing.assert_allclose(
        stack.output(states).ravel(), [r1, np.tanh(r1), np.tanh(np.tanh(r1))], rtol=1e-6
    )
    assert not stack.output(stack.step(states, np.array([1]))).any()
