"""The ESN+i: W_in is trained through time and through the frozen W_rec, and nothing else
changes."""

import dataclasses
import re
from functools import partial

import jax
import numpy as np
import pytest

from esnlm.features.batching import pack_batch
from esnlm.machine.compute import ComputeConfig
from esnlm.models.echo_state import EchoStateConfig
from esnlm.readout.linear import ReadoutConfig
from esnlm.reservoir.weights import ContinuousTime, ReservoirConfig
from esnlm.training import batches
from esnlm.training.config import Experiment
from esnlm.training.inputs import TokenInputs
from tests import oracle
from tests.models.update_gradient import features_of, loss_and_gradient, packed_update
from tests.training.test_precomputed import open_updates, run_all, start, store

V, N, LONGEST = 40, 48, 16
# 16 steps of sums of some tens of terms: a few hundred roundings, as in
# tests/features/test_recurrence.py.
TOLERANCE = 300 * float(np.finfo(np.float32).eps)

DENSE = {
    "connectivity": 0.5,
    "input_connectivity": 1.0,
    "spectral_radius": 0.993,
    "activation": "relu",
}
RESERVOIRS = {
    "dense W_in": DENSE,
    "half of W_in": DENSE | {"input_connectivity": 0.5, "activation": "tanh"},
    # a leak of its own for each unit
    "sparse W_in": {"mean_degree": 6.0, "leak_min": 0.1, "leak_max": 0.9},
    "sparse W_in, ReLU": {"mean_degree": 6.0, "activation": "relu"},
    "continuous time": DENSE | {"continuous": ContinuousTime(decay=0.5, step=0.6)},
    "membrane": DENSE | {"update_rule": "leaky_membrane", "activation": "tanh"},
    "two layers": {"mean_degree": 6.0, "layers": 2},
}

COMPUTE = ComputeConfig(kernel="csr", batch_slots=16, window_tokens=64)


def build(settings, rank=None):
    leaks = {} if "continuous" in settings else {"leak_min": 0.8, "leak_max": 0.8}
    reservoir = ReservoirConfig(**{"state_size": N} | leaks | settings)
    config = EchoStateConfig(reservoir=reservoir, readout=ReadoutConfig(rank), train_input=True)
    return config.initialize(V, 0, config.initialize_frozen(V, 0)[0])


def sentences():
    rng = np.random.default_rng(0)
    return [
        rng.integers(0, V - 5, length).astype(np.int32)
        for length in [2, LONGEST, *rng.integers(2, LONGEST, 10)]
    ]


def torch_says(settings, layers, readout, inputs, targets):
    """The features h_1 .. h_T, or r_1 .. r_T, of all layers, the mean NLL and its gradient.

    Dense float64 matrices and the equations of Ueda et al. 2025b and Fujimaki 2026.
    """
    import torch

    layers = [[torch.tensor(array) for array in each] for each in layers]
    w, bias = (torch.tensor(array) for array in readout)
    w_in = layers[0][1]
    for array in (w_in, w, bias):
        array.requires_grad_()
    f = {"tanh": torch.tanh, "relu": torch.relu}[settings.activation]
    decay = settings.continuous.decay if settings.continuous else 1.0
    membrane = settings.update_rule == "leaky_membrane"

    def features(sentence):
        below, found = torch.eye(V, dtype=torch.float64)[torch.tensor(sentence).long()], []
        for w_rec, w_in, leak in layers:
            x = r = torch.zeros(N, dtype=torch.float64)
            states = []
            for given in below:
                drive = w_rec @ r + w_in @ given
                x = (1 - decay * leak) * x + leak * (drive if membrane else f(drive))
                r = f(x) if membrane else x
                states.append(r)
            found.append(below := torch.stack(states))
        return torch.cat(found, dim=1)

    found = torch.cat([features(sentence) for sentence in inputs])
    loss = torch.nn.functional.cross_entropy(
        found @ w.T + bias, torch.tensor(np.concatenate(targets)).long()
    )
    loss.backward()
    gradient = {"input": w_in.grad * (w_in != 0), "w": w.grad, "bias": bias.grad}
    return {"features": found.detach(), "loss": loss.item()} | {
        name: g.numpy() for name, g in gradient.items()
    }


KERNELS = [
    ("half of W_in", "csr"),
    ("continuous time", "csr"),
    ("membrane", "csr"),
    ("two layers", "csr"),
    ("sparse W_in", "bcoo"),
]
OTHERS = [
    ("dense W_in", "csr"),
    ("sparse W_in", "csr"),
    ("sparse W_in, ReLU", "csr"),
    ("sparse W_in, ReLU", "bcoo"),
    ("sparse W_in, ReLU", "dense"),
]


@pytest.mark.parametrize(
    "name, kernel", [*KERNELS, *(pytest.param(*each, marks=pytest.mark.nightly) for each in OTHERS)]
)
def test_features_loss_and_gradient_are_torch_s(peer, name, kernel):
    model, (update, batch, rows, packed) = build(RESERVOIRS[name]), packed_update(sentences())
    ready = model.for_device(dataclasses.replace(COMPUTE, kernel=kernel))
    features = features_of(ready, batch)
    loss, gradient = loss_and_gradient(ready, batch, packed)

    reservoirs, readout = model.reservoir.layers, model.readout
    layers = [
        [oracle.dense(array) for array in (layer.stored_w_rec, layer.stored_w_in, layer.leak[...])]
        for layer in reservoirs
    ]
    weights = [oracle.dense(readout.w[...]), oracle.dense(readout.bias[...])]
    recording = "echo-state-input-" + re.sub("[^a-z]+", "-", name.lower())
    expected = peer(
        recording,
        partial(torch_says, model.config.reservoir),
        layers,
        weights,
        update.inputs,
        update.targets,
    )
    found = peer.sample(np.asarray(features)[np.concatenate(rows)])
    np.testing.assert_allclose(found, expected["features"], atol=TOLERANCE, rtol=TOLERANCE)
    assert loss == pytest.approx(float(expected["loss"]), rel=TOLERANCE)

    # The trained table goes back into W_in's place, and so does its gradient.
    slope_of_input = model.with_params(gradient).reservoir.layers[0].stored_w_in
    for part, array in ({"input": oracle.dense(slope_of_input)} | gradient["readout"]).items():
        # Back through time there are twice the products, after those forwards.
        found, slope = peer.sample(array), expected[part]
        assert np.linalg.norm(found - slope) <= 3 * TOLERANCE * np.linalg.norm(slope), part
    untouched = [v for v in range(V) if v not in np.concatenate(update.inputs)]
    assert untouched and not oracle.dense(slope_of_input)[:, untouched].any()


def test_features_ahead_are_those_inside_the_gradient():
    """What validates and scores is what was trained."""
    model, texts = build(RESERVOIRS["sparse W_in"]), sentences()
    ready = model.for_device(COMPUTE)
    batch, rows = pack_batch(texts, texts)
    features = features_of(ready, batch)
    stream = ready.stream(COMPUTE)
    for prefix_tree in (False, True):
        buffer, precomputed = stream.read(texts, prefix_tree=prefix_tree)
        for row, other in zip(rows, precomputed, strict=True):
            np.testing.assert_allclose(
                np.asarray(buffer)[other], np.asarray(features)[row], atol=TOLERANCE, rtol=TOLERANCE
            )


@pytest.mark.parametrize(
    "name", [pytest.param("half of W_in", marks=pytest.mark.nightly), "sparse W_in"]
)
def test_training_changes_w_in_where_it_is_not_zero_and_nothing_else_of_the_reservoir(name):
    """Bit by bit, after five updates of AdamW, whose decay pulls on every trained number."""
    model, text = build(RESERVOIRS[name], rank=6), store([9, 12, 10, 13, 11] * 4)
    experiment = Experiment(
        model=model.config, compute=ComputeConfig(batch_slots=8, window_tokens=4096)
    )
    epochs = [batches.plan_epoch(text.lengths, 0, 0, batch_size=4, window_tokens=4096)]
    assert len(epochs[0].updates) == 5
    updates = open_updates(TokenInputs, model, experiment, text, epochs)
    before = model.reservoir
    params, _, losses, _ = run_all(updates, *start(experiment, model.params), epochs)
    after = model.with_params(params).reservoir
    assert np.isfinite(losses).all()

    frozen, still = (
        {"recurrent": arrays["recurrent"], "leak": arrays["leak"]}
        for arrays in (before.arrays(), after.arrays())
    )
    assert jax.tree.all(jax.tree.map(same_bits, frozen, still))
    old, new = (oracle.dense(reservoir.stored_w_in) for reservoir in (before, after))
    assert same_bits(old[old == 0], new[old == 0]) and new[old != 0].all()
    # a value of 1e-4 may not feel a decay of 1e-5
    assert (old[old != 0] != new[old != 0]).mean() > 0.99
    if name == "sparse W_in":
        padding, values = (
            np.asarray(before.input.rows[...]) == N,
            np.asarray(params["reservoir"]["input"]["values"]),
        )
        assert padding.any() and same_bits(values[padding], np.zeros(padding.sum(), np.float32))
        assert same_bits(after.w_in.indices, before.w_in.indices)
    assert model.with_params(params).counts() == model.counts()


def same_bits(one, two):
    return np.asarray(one).tobytes() == np.asarray(two).tobytes()
