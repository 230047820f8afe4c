"""Rows added to the readout on a device: they change nothing that is computed, and no file knows of them."""

import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import esnlm
from esnlm import config_io
from esnlm.config import TrainingConfig
from esnlm.models import registry
from esnlm.readout import linear, padding
from esnlm.readout.linear import ReadoutConfig
from esnlm.readout.padding import PADDING_BIAS, VocabularyPadding
from esnlm.training import update
from esnlm.workflows.train import train_run
from tests.training.stopped import train_with_stops

N, V, C = 24, 77, 19
PADDED = padding.choose(V, "gpu")
EPSILON = float(np.finfo(np.float32).eps)


def problem(rank=5):
    rng = np.random.default_rng(0)
    readout = linear.initialize(ReadoutConfig(rank), N, V, seed=2)
    names = ("w", "bias") if rank is None else ("a", "b", "bias")
    params = {"readout": {name: getattr(readout, name)[...] for name in names}}
    features, weights = rng.normal(size=(C, N)).astype(np.float32), np.full(C, 1 / C, np.float32)
    return params, features, rng.integers(0, V, C).astype(np.int32), weights


def loss_and_gradient(params, *data):
    return jax.value_and_grad(lambda params: linear.weighted_nll(params["readout"], *data, "float32"))(params)


def same(one, two, tolerance=20 * EPSILON):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        assert a.shape == b.shape
        assert np.linalg.norm(np.subtract(a, b, dtype=np.float64)) <= tolerance * np.linalg.norm(
            np.asarray(a, np.float64)
        )


def test_the_rows_are_a_multiple_of_128():
    assert padding.choose(50_257, "gpu") == VocabularyPadding(50_257, 50_304)
    assert padding.choose(50_257, "tpu") == VocabularyPadding(50_257, 50_304)
    assert padding.choose(256, "gpu").rows == 256
    assert padding.choose(50_257, "cpu").rows == 50_257
    assert padding.choose(50_257, "gpu", can_be_padded=False).rows == 50_257


def test_on_a_cpu_the_columns_of_the_logits_do_not_meet_in_its_cache():
    assert padding.choose(8_192, "cpu").rows == 8_208
    assert padding.choose(8_000, "cpu").rows == 8_000  # no multiple of 128
    assert padding.choose(1_024, "cpu").rows == 1_024  # too few to matter
    assert padding.choose(8_192, "cpu", can_be_padded=False).rows == 8_192


def test_nothing_is_touched_where_nothing_is_padded():
    params, optimizer, without = problem()[0], optax.adamw(0.1), padding.choose(V, "cpu")
    assert without.pad_params(params) is without.trim(params) is without.pad_moments(params) is params
    assert without.hold(optimizer) is optimizer


def test_readouts_that_something_else_reads_are_not_padded():
    assert {name for name, family in registry.MODELS.items() if not family().readout_can_be_padded} == {
        "gpt2",
        "jaeger",
    }


@pytest.mark.parametrize("rank", [None, 5])
def test_what_was_padded_is_trimmed_to_the_same_bits(rank):
    params = problem(rank)[0]
    params["reservoir"] = {"a": np.ones((V, 2))}  # no array of a readout
    found = PADDED.pad_params(params)
    assert {len(found["readout"][name]) for name in found["readout"] if name != "b"} == {128}
    assert (found["readout"]["bias"][V:] == PADDING_BIAS).all()
    assert len(found["reservoir"]["a"]) == V
    state = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(0.1)).init(params)
    for before, pad in ((params, PADDED.pad_params), (state, PADDED.pad_moments)):
        after = PADDED.trim(pad(before))
        assert jax.tree.structure(after) == jax.tree.structure(before)
        jax.tree.map(np.testing.assert_array_equal, after, before)


@pytest.mark.parametrize("rank", [None, 5])
@pytest.mark.parametrize("scale", [1.0, 60.0])
def test_losses_gradients_and_log_probs_are_those_without_padding(rank, scale):
    """At scale 60 losses are dozens of nats, and exponentials are relative to the maximum."""
    params, *data = problem(rank)
    params = jax.tree.map(lambda x: scale * x, params)
    padded = PADDED.pad_params(params)
    expected, found = loss_and_gradient(params, *data), loss_and_gradient(padded, *data)
    same(expected, PADDED.trim(found))
    assert all(not np.any(found[1]["readout"][name][V:]) for name in params["readout"] if name != "b")
    assert optax.tree.norm(found[1]) == pytest.approx(float(optax.tree.norm(expected[1])), rel=20 * EPSILON)
    features, targets, _ = data
    scored = (
        linear.pair_log_probs(p["readout"], features, jnp.arange(C), targets, "float32") for p in (params, padded)
    )
    same(*scored)
    likeliest = linear.logits(padded["readout"], features, "float32").argmax(axis=1)
    np.testing.assert_array_equal(likeliest, linear.logits(params["readout"], features, "float32").argmax(axis=1))


@pytest.mark.parametrize(
    "config", [{}, {"clip_norm": 0.1}, {"epsilon": 0.0, "weight_decay": 50.0}, {"optimizer": "sgd"}, {"ema": 0.9}]
)
def test_updates_are_those_without_padding(config):
    """With a decay of 50 and an epsilon of 0, a padded row that the optimizer moved would become a token, or no number."""
    params, *data = problem()
    optimizer, rates = update.make_optimizer(TrainingConfig(**config)), jnp.full(40, 0.01)

    @partial(jax.jit, static_argnums=0)
    def forty_updates(optimizer, params, state):
        def one(_, carry):
            params, state = carry
            steps, state = optimizer.update(loss_and_gradient(params, *data)[1], state, params, rates=rates)
            return optax.apply_updates(params, steps), state

        return jax.lax.fori_loop(0, 40, one, (params, state))

    state = optimizer.init(params)
    expected = forty_updates(optimizer, params, state)
    padded = forty_updates(PADDED.hold(optimizer), PADDED.pad_params(params), PADDED.pad_moments(state))
    # Adam divides small gradients by their own size: forty updates let roundings grow.
    same(expected, PADDED.trim(padded), 1e-4)
    for name, value in (("a", 0), ("bias", PADDING_BIAS)):
        assert (np.asarray(padded[0]["readout"][name][V:]) == np.float32(value)).all()


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_what_is_not_finite_is_recorded_as_without_padding(broken):
    params, features, *data = problem()
    features[3, 4] = broken

    def recorded(params):
        loss, gradient = loss_and_gradient(params, features, *data)
        record = update.make_nonfinite_recorder("skip")(
            update.nothing_nonfinite(params), loss, params, gradient, features
        )
        return jax.tree.map(np.asarray, record)

    jax.tree.map(np.testing.assert_array_equal, recorded(PADDED.pad_params(params)), recorded(params))


SMALL = """
data: {kind: grammar, sentences: 200, validation_sentences: 30, pairs: 4}
model: {family: %s}
training: {epochs: 1, learning_rate: 0.01, log_every: 2, checkpoint_every: 3, on_nonfinite: skip, ema: 0.9}
"""
FAMILIES = {
    "esn": "esn, reservoir: {state_size: 24, mean_degree: 6}, readout: {rank: 8}",
    "esn_i": "esn, reservoir: {state_size: 24, mean_degree: 6}, readout: {rank: null}, train_input: true",
    "lstm": "lstm, width: 8",
    "tied deep_readout": "deep_readout, reservoir: {state_size: 24, mean_degree: 6}, readout: {rank: 8, recent_tokens: {count: 2,"
    " width: 8, tied: true}}",
}


@pytest.mark.parametrize(
    "model", ["esn", *(pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES if name != "esn")]
)
def test_checkpoints_restore_across_padded_and_unpadded(model, tmp_path, monkeypatch):
    """A run that is padded in every other process ends where one does that never is, with arrays of the same shapes."""
    choose = padding.choose
    runs = {}
    for name in ("plain", "mixed"):
        runs[name] = tmp_path / f"{name}.yaml"
        runs[name].write_text(f"run: {tmp_path / name}\n{SMALL % FAMILIES[model]}")
    assert train_run(config_io.read(runs["plain"])) == 0
    processes, held, hold = 0, [], VocabularyPadding.hold

    def watched_hold(self, optimizer):
        held.append(self.rows > self.vocab_size)
        return hold(self, optimizer)

    def every_other(vocab_size, backend, **settings):
        nonlocal processes
        processes += 1
        return choose(vocab_size, "gpu" if processes % 2 else "cpu", **settings)

    monkeypatch.setattr(padding, "choose", every_other)
    monkeypatch.setattr(VocabularyPadding, "hold", watched_hold)
    train_with_stops(runs["mixed"], monkeypatch, every=2, updates_per_call=2)
    assert processes > 2
    assert held == [bool((number + 1) % 2) for number in range(processes)], "no update moves a padded row"
    for averaged in (True, False):
        plain, mixed = (esnlm.load(tmp_path / name, averaged=averaged).arrays() for name in runs)
        same(plain, mixed, 1e-4)
    summaries = [json.loads((tmp_path / name / "summary.json").read_text()) for name in runs]
    assert summaries[0]["val_nll"] == pytest.approx(summaries[1]["val_nll"], rel=1e-5)

    # Where a process was killed after its last checkpoint, the next one validates before an update has moved the average.
    (tmp_path / "mixed" / "summary.json").unlink()
    monkeypatch.setattr(padding, "choose", lambda vocab_size, _, **settings: choose(vocab_size, "gpu", **settings))
    assert train_run(config_io.read(runs["mixed"])) == 0
    again = json.loads((tmp_path / "mixed" / "summary.json").read_text())
    assert again["val_nll"] == pytest.approx(summaries[1]["val_nll"], rel=1e-5)
