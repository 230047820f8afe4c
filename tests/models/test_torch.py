"""The echo state network computes what the same in plain PyTorch does (tests/peers/torch_echo_state.py)."""

import dataclasses
import importlib

import numpy as np
import pytest

from esnlm.compute import ComputeConfig
from esnlm.config import Experiment, TrainingConfig
from esnlm.models.echo_state import EchoStateConfig
from esnlm.readout.linear import ReadoutConfig
from esnlm.reservoir.weights import ReservoirConfig
from esnlm.training import batches
from esnlm.training.precomputed import PrecomputedUpdates
from tests.training.test_precomputed import open_updates, run_all, start, store

COMPUTE = ComputeConfig(kernel="csr", batch_slots=8, window_tokens=64)

V, N, BATCH = 40, 60, 4
EOS = V - 1  # and BOS, and what pads
# 30 steps of sums of some tens of terms: a few hundred roundings, as in tests/features/test_recurrence.py.
TOLERANCE = 300 * float(np.finfo(np.float32).eps)


def build(rank):
    config = EchoStateConfig(reservoir=ReservoirConfig(state_size=N, mean_degree=7.0), readout=ReadoutConfig(rank))
    return config.initialize(V, 0, config.initialize_frozen(V, 0)[0])


def sentences():
    """38 of them, so that the last of ten batches is smaller."""
    text = store(np.random.default_rng(1).integers(6, 30, 38))
    text.tokens[text.offsets[:-1]] = text.tokens[text.offsets[1:] - 1] = EOS
    return text


def in_torch(name):
    """A function of tests/peers/torch_echo_state.py, which needs PyTorch only when it is called."""
    return lambda *inputs: getattr(importlib.import_module("tests.peers.torch_echo_state"), name)(*inputs)


def inputs_of(model):
    """A reservoir and a readout as plain arrays."""
    w_rec, w_in = model.reservoir.w_rec, model.reservoir.w_in
    reservoir = {"w_rec": (w_rec.indices, w_rec.data, w_rec.shape), "w_in": (w_in.indices, w_in.data, w_in.shape)}
    return reservoir | {"leak": model.reservoir.leak[...]}, model.params["readout"]


def test_states_are_torch_s(peer):
    model, texts = build(8), list(sentences())
    stream = model.for_device(COMPUTE).stream(COMPUTE)
    buffer, rows = stream.read(texts)
    expected = peer("echo-state-states", in_torch("states"), *inputs_of(model), texts)
    np.testing.assert_allclose(peer.sample(buffer[np.concatenate(rows)]), expected["states"], atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("rank", [8, None], ids=["W_out = A B", "full rank"])
def test_ten_updates_are_torch_s(peer, rank):
    """The same batches, through torch.optim.AdamW as it comes and through precomputed features."""
    model, text = build(rank), sentences()
    compute = dataclasses.replace(COMPUTE, window_tokens=200)
    experiment = Experiment(model=model.config, training=TrainingConfig(batch_size=BATCH), compute=compute)
    epochs = [batches.plan_epoch(text.lengths, experiment.seed, 0, BATCH, compute.window_tokens)]
    assert len(epochs[0].updates) == 10 and 1 < len(epochs[0].windows) < 10
    updates = open_updates(PrecomputedUpdates, model, experiment, text, epochs)
    params, _, losses, _ = run_all(updates, *start(experiment, model.params), epochs)

    texts = [[text.sentence(s) for s in update] for update in epochs[0].updates]
    expected = peer(f"echo-state-updates-rank-{rank}", in_torch("train"), *inputs_of(model), texts)
    np.testing.assert_allclose(losses, expected["losses"], rtol=TOLERANCE)
    for name, before in model.params["readout"].items():
        assert np.abs(params["readout"][name] - np.asarray(before)).max() > 5e-3
        # Ten steps of at most 1e-3. Adam turns the gradient's relative error, some 1e-5, into one of the step; a
        # thousandth leaves room for sums that cancel. (optax corrects the bias in float32, which is 3e-5 off.)
        found = peer.sample(params["readout"][name])
        np.testing.assert_allclose(found, expected[name], atol=10 * 1e-3 * 1e-3, rtol=0)
