"""Updates with features inside the gradient, and whole runs of the models that train more than a
readout."""

import json
from functools import partial

import jax
import numpy as np
import pytest
from flax import traverse_util

import esnlm
from esnlm.data.store import open_store
from esnlm.features import batching
from esnlm.features.batching import batch_steps
from esnlm.machine.compute import ComputeConfig
from esnlm.models.echo_state import EchoStateConfig
from esnlm.models.gpt2 import GPT2Config
from esnlm.models.lstm import LstmConfig
from esnlm.readout.linear import ReadoutConfig
from esnlm.reservoir.weights import ReservoirConfig
from esnlm.training import batches, end_to_end
from esnlm.training.config import Experiment, TrainingConfig
from esnlm.training.end_to_end import TokenInputs
from tests import oracle
from tests.training.test_precomputed import (
    BAD,
    LENGTHS,
    POISON,
    POISONED,
    RATE,
    UPDATES,
    V,
    open_updates,
    run_all,
    same_bits,
    start,
    store,
)

RESERVOIR = ReservoirConfig(
    state_size=24,
    connectivity=0.5,
    input_connectivity=1.0,
    leak_min=0.8,
    leak_max=0.8,
    activation="relu",
)
MODELS = {
    "ESN+i": EchoStateConfig(reservoir=RESERVOIR, readout=ReadoutConfig(None), train_input=True),
    "LSTM": LstmConfig(width=16, dropout=0.0),
}
TRAINED_INPUT = {"ESN+i": ("reservoir", "input", "values"), "LSTM": ("embedding",)}


def prepare(name, text, poisoned=False, chunk_tokens=1024, **training):
    """Returns updates of four sentences each of an epoch and how they begin; `poisoned` overflows
    what POISON adds."""
    settings = {"batch_size": 4, "weight_decay": 0.0 if poisoned else 0.01} | training
    compute = ComputeConfig(
        kernel="csr", batch_slots=8, window_tokens=1000, chunk_tokens=chunk_tokens
    )
    experiment = Experiment(
        model=MODELS[name], training=TrainingConfig(**settings), compute=compute
    )
    model = experiment.model.initialize(V, 0, experiment.model.initialize_frozen(V, 0)[0])
    params, epochs = model.params, [batches.plan_epoch(text.lengths, 0, 0, 4, 1000)]
    if poisoned:
        flat = traverse_util.flatten_dict(params)
        flat[TRAINED_INPUT[name]] = flat[TRAINED_INPUT[name]].at[POISON].set(np.inf)
        params = traverse_util.unflatten_dict(flat)
    updates = open_updates(TokenInputs, model, experiment, text, epochs)
    return updates, start(experiment, params), epochs


@pytest.mark.parametrize(
    "name", ["ESN+i", pytest.param("LSTM", marks=pytest.mark.nightly), "GPT-2"]
)
def test_every_array_takes_the_steps_of_adamw(name, monkeypatch):
    """Weight decay falls on all of them: biases, layer norms, and embeddings of tokens that never
    occur."""
    gpt2 = GPT2Config(layers=1, heads=2, width=8, positions=64, dropout=0.0)
    monkeypatch.setattr("tests.training.test_end_to_end.MODELS", MODELS | {"GPT-2": gpt2})
    updates, begin, epochs = prepare(name, store(LENGTHS), weight_decay=0.1)
    gradients, loss_and_gradient = [], updates._gradient

    def note(*given):
        found = loss_and_gradient(*given)
        gradients.append(jax.tree.map(lambda array: np.asarray(array, np.float64), found[1]))
        return found

    updates._gradient = note
    # Biases and layer norms begin at values that show their decay.
    noise = np.random.default_rng(0)
    begin = (
        jax.tree.map(
            lambda a: jax.device_put(
                np.asarray(a) + noise.normal(0, 0.3, a.shape).astype(np.float32)
            ),
            begin[0],
        ),
        *begin[1:],
    )
    expected = {
        path: np.asarray(array, np.float64)
        for path, array in traverse_util.flatten_dict(begin[0]).items()
    }
    before = {path: array.copy() for path, array in expected.items()}
    params, _, losses, _ = run_all(updates, *begin, epochs)
    assert len(gradients) == len(losses) > 1
    optimizer = oracle.AdamW(expected, lr=RATE, weight_decay=0.1)
    for gradient in gradients:
        expected = optimizer.step(expected, traverse_util.flatten_dict(gradient))
    for path, found in traverse_util.flatten_dict(params).items():
        # AdamW's bias correction in float32 is off by 1.3e-5, and each step rounds a few times.
        largest = np.abs(before[path]).max()
        atol = len(losses) * (1e-4 * RATE + 2e-7 * largest)
        assert largest * (1 - (1 - 0.1 * RATE) ** len(losses)) > 20 * atol, (
            "a decay that was left out would show"
        )
        np.testing.assert_allclose(found, expected[path], atol=atol, rtol=0, err_msg=str(path))


@pytest.mark.nightly
@pytest.mark.parametrize("name, chunk_tokens", [("ESN+i", 20), ("LSTM", 1)])
def test_an_update_in_parts_is_the_update_in_one_piece(name, chunk_tokens):
    """Down to a sentence a part."""
    text = store(LENGTHS)
    (whole, begin, epochs), (parts, again, _) = (
        prepare(name, text),
        prepare(name, text, chunk_tokens=chunk_tokens),
    )
    assert epochs[0].predictions.min() > 20
    params, _, losses, _ = run_all(whole, *begin, epochs)
    other, _, other_losses, _ = run_all(parts, *again, epochs)
    # Sums in another order: a few roundings of each loss; Adam makes of a gradient's relative error
    # one of the step.
    np.testing.assert_allclose(other_losses, losses, rtol=1e-6)
    for found, expected in zip(jax.tree.leaves(other), jax.tree.leaves(params), strict=True):
        np.testing.assert_allclose(found, expected, atol=len(losses) * RATE * 1e-3, rtol=0)


def note_sizes(updates):
    """Returns the slots of each batch that is trained on from now on, and the rows that go to the
    readout."""
    sizes, batches_of = [], updates.inputs.batches

    def note(u):
        for batch in batches_of(u):
            sizes.append((batch.inputs.tokens.shape[1], len(batch.rows)))
            yield batch

    updates.inputs.batches = note
    return sizes


def test_padding_of_long_sentences_is_bounded_by_chunk_tokens(monkeypatch):
    """Three of 31 predictions: 8 slots of 32 steps would be 256 positions where chunk_tokens asks
    for 64."""
    monkeypatch.setattr(batching, "MIN_BATCH_STEPS", 12)
    updates, begin, epochs = prepare("LSTM", store([32, 32, 32, 6]), chunk_tokens=64)
    sizes = note_sizes(updates)
    run_all(updates, *begin, epochs)
    assert [slots for slots, _ in sizes] == [2, 2]
    for device, multiple in (("cpu", 1), ("gpu", 4)):
        monkeypatch.setattr(
            updates.inputs, "slots_multiple", end_to_end.SLOTS_MULTIPLE.get(device, 8)
        )
        assert updates.inputs.slots(longest=8) == (5, multiple), "of 12 steps"
        assert updates.inputs.slots(longest=100) == (1, 1)
    bounded = ComputeConfig(chunk_tokens=1024)
    monkeypatch.setattr(updates.inputs, "compute", bounded)
    for longest in range(1, 1025):
        fewest, multiple = updates.inputs.slots(longest)
        assert batch_steps(longest) * max(fewest, multiple) <= 1024


@pytest.mark.parametrize(
    "name, on_nonfinite, chunk_tokens",
    [pytest.param("LSTM", "skip", 1024, marks=pytest.mark.nightly), ("ESN+i", "stop", 20)],
)
def test_an_update_that_is_not_finite(name, on_nonfinite, chunk_tokens):
    """It is left out, or the last one that is looked at; the bits are those of a run without it."""
    settings = {"poisoned": True, "chunk_tokens": chunk_tokens, "on_nonfinite": on_nonfinite}
    text = store(LENGTHS, POISONED)
    updates, begin, epochs = prepare(name, text, **settings)
    params, state, losses, applied = run_all(updates, *begin, epochs)
    assert not np.isfinite(losses[BAD]) and np.isfinite(losses[:BAD]).all()
    good = [u for u in range(UPDATES) if u < BAD or (u > BAD and on_nonfinite == "skip")]
    assert applied == [u in good for u in range(UPDATES)]
    without, expected, _ = prepare(name, text, **settings)
    without.inputs.load(0, range(UPDATES))
    for u in good:
        *expected, _ = without.run(*expected, u)
    assert same_bits((params, state), tuple(expected))
    finite = traverse_util.flatten_dict(
        jax.tree.map(lambda array: np.isfinite(array).all(), params)
    )
    assert not finite.pop(TRAINED_INPUT[name]) and jax.tree.all(finite)


# ---- whole runs ----


def oracle_of(run):
    """From ids to log p of each after the first, with the run's arrays in NumPy; nothing is
    dropped."""
    params = jax.tree.map(np.asarray, run.model.params)
    readout = params.pop("readout")
    if run.config.model.family == "lstm":
        features = partial(oracle.lstm_states, **params)
    else:
        reservoir = run.model.reservoir
        weights = (
            oracle.dense(reservoir.stored_w_rec),
            oracle.dense(reservoir.stored_w_in),
            reservoir.leak,
        )
        features = partial(oracle.states, *weights, f=lambda x: np.maximum(x, 0))

    def log_probs(ids):
        return oracle.log_softmax(oracle.logits(readout, features(sentence=ids[:-1])))[
            np.arange(len(ids) - 1), ids[1:]
        ]

    return log_probs


@pytest.mark.parametrize("name", ["lstm", "esn_i"])
def test_a_finished_run_loads_and_agrees_with_the_oracle(name, trained, stores):
    """Scores and the validation NLL, from disk; 30 contracting steps, so a few hundred
    roundings."""
    run, tolerance = esnlm.load(trained(name)), 300 * float(np.finfo(np.float32).eps)
    sentences, log_probs_of = ["The cats sleep.", "Who said that?", ""], oracle_of(run)
    encoded = [
        np.array([run.tokenizer.bos, *run.tokenizer.encode(text), run.tokenizer.eos])
        for text in sentences
    ]
    expected = [log_probs_of(ids) for ids in encoded]
    for found, log_probs in zip(run.token_log_probs(sentences), expected, strict=True):
        np.testing.assert_allclose(found, log_probs, rtol=tolerance)
    totals = [log_probs.sum() for log_probs in expected]
    # a blank text is no sentence
    np.testing.assert_allclose(run.log_probs(sentences), [*totals[:2], np.nan], rtol=tolerance)
    log_probs = np.concatenate([log_probs_of(ids) for ids in open_store(stores / "dev")])
    summary = json.loads((trained(name) / "summary.json").read_text())
    assert summary["val_nll"] == pytest.approx(-log_probs.mean(), rel=tolerance)


@pytest.mark.parametrize("name", ["lstm", "esn_i"])
def test_training_changes_what_is_trained_only(name, trained):
    before, after = (
        esnlm.load(trained(name), untrained=True).arrays(),
        esnlm.load(trained(name)).arrays(),
    )
    changed = {part for part in before if not np.array_equal(before[part], after[part])}
    of_esn_i = {
        part for part in before if part.startswith("readout") or part == "reservoir.input.values"
    }
    assert changed == (set(before) if name == "lstm" else of_esn_i)
