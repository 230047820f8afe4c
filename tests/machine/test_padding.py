"""Rows added to the readout on a device: they change nothing that is computed, and no file knows of
them."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import esnlm
from esnlm.machine.mesh import Placement, rows_on
from esnlm.models import devices
from esnlm.models.base import READOUT_ARRAYS
from esnlm.readout import linear
from esnlm.readout.linear import ReadoutConfig
from esnlm.training.config import TrainingConfig
from esnlm.training.optimizer import make_optimizer
from tests.training import small

N, V, C = 24, 77, 19
PADDED = Placement(None, V, rows_on("gpu", V), READOUT_ARRAYS)
EPSILON = float(np.finfo(np.float32).eps)


def problem(rank=5):
    rng = np.random.default_rng(0)
    readout = linear.initialize(ReadoutConfig(rank), N, V, seed=2)
    names = ("w", "bias") if rank is None else ("a", "b", "bias")
    params = {"readout": {name: getattr(readout, name)[...] for name in names}}
    features, weights = rng.normal(size=(C, N)).astype(np.float32), np.full(C, 1 / C, np.float32)
    return params, features, rng.integers(0, V, C).astype(np.int32), weights


@jax.jit
def loss_and_gradient(params, *data):
    def loss(params):
        readout = params["readout"]
        return linear.weighted_nll(
            PADDED.mask_padding_logits(readout) if len(readout["bias"]) > V else readout,
            *data,
            "float32",
        )

    return jax.value_and_grad(loss)(params)


def same(one, two, tolerance=20 * EPSILON):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        assert a.shape == b.shape
        assert np.linalg.norm(np.subtract(a, b, dtype=np.float64)) <= tolerance * np.linalg.norm(
            np.asarray(a, np.float64)
        )


def test_the_rows_are_a_multiple_of_128():
    assert rows_on("gpu", 50_257) == rows_on("tpu", 50_257) == 50_304
    assert rows_on("gpu", 256) == 256 and rows_on("cpu", 50_257) == 50_257
    assert rows_on("cpu", 50_257, vocabulary=8) == 8 * 128 * 50


@pytest.mark.parametrize("rank", [None, 5])
def test_what_was_padded_is_trimmed_to_the_same_bits(rank):
    params = problem(rank)[0]
    params["reservoir"] = {"a": np.ones((V, 2))}  # no array of a readout
    found = PADDED.shard(params)
    assert {len(found["readout"][name]) for name in found["readout"] if name != "b"} == {128}
    assert len(found["reservoir"]["a"]) == V
    state = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(0.1)).init(params)
    for before in (params, state):
        after = PADDED.gather(PADDED.shard(before))
        assert jax.tree.structure(after) == jax.tree.structure(before)
        jax.tree.map(np.testing.assert_array_equal, after, before)


@pytest.mark.parametrize("rank, scale", [(None, 1.0), (5, 60.0)])
def test_losses_gradients_and_log_probs_are_those_without_padding(rank, scale):
    """At scale 60 losses are dozens of nats, and exponentials are relative to the maximum."""
    params, *data = problem(rank)
    params = jax.tree.map(lambda x: scale * np.asarray(x), params)
    padded = PADDED.shard(params)
    expected, found = loss_and_gradient(params, *data), loss_and_gradient(padded, *data)
    same(expected, (found[0], PADDED.gather(found[1])))
    assert all(
        not np.any(np.asarray(found[1]["readout"][name])[V:])
        for name in params["readout"]
        if name != "b"
    )
    ours, theirs = (
        np.concatenate([np.ravel(part) for part in jax.tree.leaves(each[1])])
        for each in (found, expected)
    )
    assert np.linalg.norm(ours) == pytest.approx(np.linalg.norm(theirs), rel=20 * EPSILON)
    features, targets, _ = data

    @jax.jit
    def scores(readout):
        readout = PADDED.mask_padding_logits(readout) if len(readout["bias"]) > V else readout
        pairs = linear.pair_log_probs(readout, features, np.arange(C), targets, "float32")
        return pairs, linear.logits(readout, features, "float32").argmax(axis=1)

    same(*(scores(tree["readout"])[0] for tree in (params, padded)))
    np.testing.assert_array_equal(*(scores(tree["readout"])[1] for tree in (params, padded)))


@pytest.mark.parametrize(
    "config",
    [
        {"clip_norm": 0.1, "ema": 0.9, "epsilon": 1e-30, "weight_decay": 50.0},
        pytest.param({"optimizer": "sgd"}, marks=pytest.mark.nightly),
    ],
)
def test_updates_are_those_without_padding(config):
    """With a decay of 50 and a tiny epsilon, a padded row that the optimizer moved would become a
    token, or no number."""
    params, *data = problem()
    optimizer, rates = make_optimizer(TrainingConfig(**config)), jnp.full(40, 0.01)

    @partial(jax.jit, static_argnums=0)
    def forty_updates(optimizer, params, state):
        def one(_, carry):
            params, state = carry
            steps, state = optimizer.update(
                loss_and_gradient(params, *data)[1], state, params, rates=rates
            )
            return optax.apply_updates(params, steps), state

        return jax.lax.fori_loop(0, 40, one, (params, state))

    state = optimizer.init(params)
    expected = forty_updates(optimizer, params, state)
    padded = forty_updates(
        PADDED.freeze_padding(optimizer), PADDED.shard(params), PADDED.shard(state)
    )
    # Adam divides small gradients by their own size: forty updates let roundings grow.
    same(expected, PADDED.gather(padded), 1e-4)
    assert not any(np.asarray(padded[0]["readout"][name][V:]).any() for name in ("a", "bias"))


FAMILIES = {
    "esn": "model: {reservoir: {state_size: 16, mean_degree: 4}, readout: {rank: 4}}",
    "esn_i": (
        "model: {reservoir: {state_size: 16, mean_degree: 4}, readout: {rank: null}, train_input:"
        " true}"
    ),
    "lstm": "model: {family: lstm, width: 8}",
    "tied deep_readout": (
        "model: {family: deep_readout, reservoir: {state_size: 16, mean_degree: 4}, readout: {rank:"
        " 8, recent_tokens: {count: 2, width: 8, tied: true}}}"
    ),
}
SETTINGS = ["--training.epochs", "1", "--training.on_nonfinite", "skip", "--training.ema", "0.9"]


@pytest.mark.nightly
@pytest.mark.parametrize("model", FAMILIES)
def test_checkpoints_restore_across_padded_and_unpadded(model, tmp_path, monkeypatch):
    """A run that is padded in every other process ends where one does that never is, with arrays of
    the same shapes."""
    text = small.DATA + small.TRAINING + FAMILIES[model]
    plain = small.train(tmp_path, "plain", *SETTINGS, text=text)
    padded = []

    def every_other(backend, vocab_size, vocabulary=1):
        padded.append(len(padded) % 2 == 0)
        return rows_on("gpu" if padded[-1] else "cpu", vocab_size, vocabulary)

    monkeypatch.setattr(devices, "rows_on", every_other)
    small.train_with_stops(
        small.read(tmp_path, "mixed", *SETTINGS, text=text), monkeypatch, every=5
    )
    assert len(set(padded)) == 2
    for averaged in (True, False):
        same(
            *(
                esnlm.load(tmp_path / name, averaged=averaged).arrays()
                for name in ("plain", "mixed")
            ),
            1e-4,
        )
    losses = [small.summary_of(run)["val_nll"] for run in (plain, tmp_path / "mixed")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
