"""Dropout's masks belong to a token, whatever batch, slot or window it is in, and never touch the
carried state."""

import dataclasses
from functools import cache

import numpy as np
import pytest

from esnlm.features import dropout
from esnlm.features.batching import pack_batch
from esnlm.features.dropout import INPUT, OUTPUT
from esnlm.machine.compute import ComputeConfig
from esnlm.models.echo_state import EchoStateConfig
from esnlm.models.lstm import LstmConfig
from esnlm.models.trunk import HashedNgramsConfig
from esnlm.readout.linear import ReadoutConfig
from esnlm.reservoir.weights import ReservoirConfig
from esnlm.training import batches
from esnlm.training.config import Experiment, TrainingConfig
from esnlm.training.inputs import PrecomputedInputs, TokenInputs
from tests import deep_oracle, oracle
from tests.models.update_gradient import features_of, loss_and_gradient
from tests.training.test_precomputed import open_updates, run_all, start, store

V, N, SEED = 40, 24, 3
# 16 steps of sums of some tens of terms: a few hundred roundings, as in
# tests/features/test_recurrence.py.
TOLERANCE = 300 * float(np.finfo(np.float32).eps)

DENSE = ReservoirConfig(
    N,
    connectivity=0.5,
    input_connectivity=1.0,
    spectral_radius=0.993,
    leak_min=0.8,
    leak_max=0.8,
    activation="relu",
)
MODELS = {
    "dense": EchoStateConfig(reservoir=DENSE, readout=ReadoutConfig(None), dropout=0.1),
    "sparse": EchoStateConfig(
        reservoir=ReservoirConfig(N, mean_degree=5.0), readout=ReadoutConfig(6), dropout=0.3
    ),
    "ESN+i": EchoStateConfig(
        reservoir=DENSE, readout=ReadoutConfig(None), train_input=True, dropout=0.1
    ),
    "LSTM": LstmConfig(width=N, dropout=0.2),
    "LSTM, n-grams": LstmConfig(
        width=N, dropout=0.2, ngrams=HashedNgramsConfig(orders=(2, 3), buckets=30, width=4)
    ),
}
COMPUTE = ComputeConfig(kernel="csr", batch_slots=16, window_tokens=64)
TEXT = store([11, 8, 13, 6, 12, 9, 13, 12, 7, 10, 13])


@cache
def build(name):
    config = MODELS[name]
    return config.initialize(V, SEED, config.initialize_frozen(V, SEED)[0])


def masks(corpus_positions, site, width, rate, seed=SEED, epoch=0):
    keys = dropout.token_keys(
        dropout.epoch_key(seed, epoch), np.asarray(corpus_positions, np.uint32)
    )
    return np.asarray(dropout.mask(keys, site, width, rate))


# ---- masks ----


@pytest.mark.parametrize("rate", [0.1, 0.9])
@pytest.mark.parametrize("site", [INPUT, OUTPUT])
def test_a_number_is_dropped_at_the_rate_and_else_scaled_up(site, rate):
    """Five standard errors: over all of them, of one token, and of one unit over the tokens."""
    found = masks(range(300), site, 400, rate)
    assert found.dtype == np.float32 and set(np.unique(found)) == {0, np.float32(1 / (1 - rate))}
    deviation = np.sqrt(rate * (1 - rate))
    for share, count in (
        ((found == 0).mean(), 120_000),
        ((found == 0).mean(0), 300),
        ((found == 0).mean(1), 400),
    ):
        assert np.abs(share - rate).max() < 5 * deviation / np.sqrt(count)


@pytest.mark.parametrize(
    "other",
    [
        {"corpus_positions": [8]},
        {"corpus_positions": [7 + 2**31]},
        {"site": OUTPUT},
        {"seed": SEED + 1},
        {"epoch": 1},
    ],
    ids=["the next token", "a far token", "the other site", "another seed", "another epoch"],
)
def test_two_masks_are_independent(other):
    width, rate = 20_000, 0.3
    settings = {"corpus_positions": [7], "site": INPUT, "seed": SEED, "epoch": 0}
    one, two = (
        (masks(width=width, rate=rate, **some) == 0) - rate for some in (settings, settings | other)
    )
    assert abs((one * two).mean()) < 5 * rate * (1 - rate) / np.sqrt(width)


# ---- features ----


@cache
def masks_of_all(site, rate, epoch):
    """Of every token of TEXT by its place, (tokens, N)."""
    return masks(range(TEXT.offsets[-1]), site, N, rate, epoch=epoch)


def expected_features(name, s, epoch=0, dropped=True):
    """Of sentence s, in NumPy; before the mask of the output."""
    model, (ids, corpus_positions) = build(name), sentence(s)
    keep = (
        masks_of_all(INPUT, model.config.dropout, epoch)[corpus_positions]
        if dropped
        else np.ones((len(corpus_positions), N))
    )
    if name.startswith("LSTM"):  # the embedding of each token, dropped; what n-grams add is not
        layer = {
            key: array
            for key, array in model.params.items()
            if key not in ("readout", "embedding", "ngrams")
        }
        embeddings = np.asarray(model.params["embedding"])[ids[:-1]] * keep
        states = oracle.lstm_states(embeddings, **layer, sentence=range(len(corpus_positions)))
        tables = model.params.get("ngrams")
        return (
            states
            if tables is None
            else states + deep_oracle.ngrams(tables, ids[:-1], model.config.ngrams.orders)
        )
    f = np.tanh if model.config.reservoir.activation == "tanh" else lambda x: np.maximum(x, 0)
    return oracle.dropped_states(*weights(name), ids[:-1], keep, f)


@cache
def weights(name):
    reservoir = build(name).reservoir
    return (
        oracle.dense(reservoir.stored_w_rec),
        oracle.dense(reservoir.stored_w_in),
        oracle.dense(reservoir.leak[...]),
    )


def sentence(s):
    """Its ids, and the corpus_positions of those that are read."""
    return TEXT.sentence(s), np.arange(TEXT.offsets[s], TEXT.offsets[s + 1] - 1)


@pytest.mark.parametrize("name", ["sparse", "LSTM, n-grams"])
def test_precomputed_features_are_dropped_before_the_recurrence_is_added(name):
    """In any slots, order and company."""
    model, key = build(name), dropout.epoch_key(SEED, 1)
    for slots, chosen in ((16, range(10, -1, -1)), (3, [4, 2, 6, 9])):
        compute = dataclasses.replace(COMPUTE, batch_slots=slots)
        stream = model.for_device(compute).stream(compute)
        inputs, corpus_positions = zip(
            *[(sentence(s)[0][:-1], sentence(s)[1]) for s in chosen], strict=True
        )
        packed = stream.pack(list(inputs), corpus_positions=list(corpus_positions))
        _, [buffer] = stream.run([packed], key=key)
        for s, row in zip(chosen, packed.rows, strict=True):
            np.testing.assert_allclose(
                np.asarray(buffer)[row],
                expected_features(name, s, epoch=1),
                atol=TOLERANCE,
                rtol=TOLERANCE,
            )


@pytest.mark.parametrize("name", ["dense"])
def test_nothing_is_dropped_without_corpus_positions(name):
    """As validation and scoring read, and inside a gradient without a key."""
    model, texts = build(name), [sentence(s)[0][:-1] for s in range(11)]
    ready = model.for_device(COMPUTE)
    stream = ready.stream(COMPUTE)
    assert stream.dropout > 0
    batch, rows = pack_batch(texts, texts)
    on_a_sheet = features_of(ready, batch)
    for read in (
        lambda: (on_a_sheet, rows),
        lambda: stream.read(texts),
        lambda: stream.read(texts, prefix_tree=True),
    ):
        buffer, found = read()
        for s, row in enumerate(found):
            np.testing.assert_allclose(
                np.asarray(buffer)[row],
                expected_features(name, s, dropped=False),
                atol=TOLERANCE,
                rtol=TOLERANCE,
            )


@pytest.mark.parametrize(
    "name", ["ESN+i", pytest.param("LSTM, n-grams", marks=pytest.mark.nightly)]
)
def test_inside_a_gradient_the_readout_sees_a_dropped_copy(name):
    """The loss of an update with dropout, and the readout's gradient, from the oracle's features
    with both masks."""
    model, update = build(name), batches.read_sentences(TEXT, np.arange(11))
    batch, rows = pack_batch(update.inputs, update.corpus_positions)
    packed = batches.pack_targets(
        update, rows, batches.bucket_size(update.predictions()), update.predictions()
    )
    key = dropout.epoch_key(SEED, 0)
    loss, gradient = loss_and_gradient(model.for_device(COMPUTE), batch, packed, key)
    rate = model.config.dropout
    features = np.concatenate(
        [
            expected_features(name, s) * masks_of_all(OUTPUT, rate, 0)[sentence(s)[1]]
            for s in range(11)
        ]
    )
    expected_loss, expected = oracle.mean_nll_and_gradient(
        model.params["readout"], features, np.concatenate(update.targets)
    )
    assert loss == pytest.approx(expected_loss, rel=TOLERANCE)
    for part in expected:
        difference = np.asarray(gradient["readout"][part], np.float64) - expected[part]
        assert np.linalg.norm(difference) <= TOLERANCE * np.linalg.norm(expected[part])


# ---- trajectories ----

EPOCHS, BATCH = 2, 3
WAYS = {
    "precomputed, small windows and few slots": (
        PrecomputedInputs,
        {"window_tokens": 100, "batch_slots": 3, "kernel": "bcoo"},
    ),
    "end to end, in parts": (TokenInputs, {"chunk_tokens": 16}),
}


@cache
def expected_trajectory():
    """Two epochs of AdamW in NumPy: (params, losses)."""
    model = build("dense")
    params = {
        part: np.asarray(array, np.float64) for part, array in model.params["readout"].items()
    }
    adamw, losses = oracle.AdamW(params), []
    for epoch in range(EPOCHS):
        for update in batches.plan_epoch(TEXT.lengths, SEED, epoch, BATCH, 1).updates:
            keep = masks_of_all(OUTPUT, model.config.dropout, epoch)
            features = np.concatenate(
                [expected_features("dense", s, epoch) * keep[sentence(s)[1]] for s in update]
            )
            targets = np.concatenate([sentence(s)[0][1:] for s in update])
            loss, gradient = oracle.mean_nll_and_gradient(params, features, targets)
            params = adamw.step(params, gradient)
            losses.append(loss)
    return params, losses


@pytest.mark.parametrize("way", WAYS)
def test_a_training_with_dropout_is_the_same_in_every_way(way):
    model, (kind, settings) = build("dense"), WAYS[way]
    compute = ComputeConfig(**{"batch_slots": 8, "kernel": "csr", "window_tokens": 4096} | settings)
    experiment = Experiment(
        seed=SEED,
        model=model.config,
        training=TrainingConfig(epochs=EPOCHS, batch_size=BATCH),
        compute=compute,
    )
    epochs = [
        batches.plan_epoch(TEXT.lengths, SEED, epoch, BATCH, compute.window_tokens)
        for epoch in range(EPOCHS)
    ]
    updates = open_updates(kind, model, experiment, TEXT, epochs)
    params, _, losses, applied = run_all(updates, *start(experiment, model.params), epochs)

    expected, expected_losses = expected_trajectory()
    assert all(applied)
    np.testing.assert_allclose(losses, expected_losses, rtol=TOLERANCE)
    for part, array in expected.items():
        # Adam turns a gradient's relative error into one of its step; a thousandth leaves room for
        # sums that cancel.
        np.testing.assert_allclose(
            params["readout"][part], array, atol=len(losses) * 1e-3 * 1e-3, rtol=0
        )
