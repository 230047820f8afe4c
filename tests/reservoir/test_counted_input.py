"""The counted W_in: counts, PPMI and columns are those of a few loops over the text, in float64."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import esnlm
from esnlm.base.errors import InputError
from esnlm.data.store import TokenStore
from esnlm.reservoir import counted_input
from esnlm.reservoir.weights import ReservoirConfig, initialize_reservoir
from esnlm.runs.directory import RunDirectory
from esnlm.training.run import train_run
from tests import oracle
from tests.training.small import DATA, TRAINING, read

V, N, UNKNOWN = 40, 60, 39  # the last token is not in the text
COUNTED = {"state_size": N, "mean_degree": 6.0, "input_weights": "counted"}


def store(sentences):
    offsets = np.cumsum([0, *map(len, sentences)])
    one = np.ones(len(sentences))
    return TokenStore(
        Path(), {}, np.concatenate(sentences).astype(np.uint16), offsets, one, one, one
    )


@pytest.fixture(scope="module")
def text():
    """Tokens 7 and 8 stand in the same places; two sentences are too short for the window."""
    rng = np.random.default_rng(0)
    sentences = [[0, *np.minimum(rng.zipf(1.4, size=9), UNKNOWN - 1), 0] for _ in range(200)]
    twins = [[0, 3, token, 5, 30, 0] for token in (7, 8) for _ in range(20)]
    return store([*sentences, *twins, [9], [0, 10]])


def counts_by_hand(text):
    found = np.zeros((V, V))
    for sentence in text:
        for i, token in enumerate(sentence):
            for other in [*sentence[max(0, i - 2) : i], *sentence[i + 1 : i + 3]]:
                found[token, other] += 1
    return found


def ppmi_by_hand(counts):
    """From the probabilities of Levy, Goldberg and Dagan 2015, with contexts smoothed by 0.75."""
    joint, token = counts / counts.sum(), counts.sum(axis=1) / counts.sum()
    context = counts.sum(axis=0) ** 0.75
    with np.errstate(divide="ignore", invalid="ignore"):
        information = np.log(joint / np.outer(token, context / context.sum()))
    return np.where(counts > 0, np.maximum(information, 0), 0)


def columns_by_hand(text, projection, reached, scale):
    summed, found = projection @ ppmi_by_hand(counts_by_hand(text)).T, np.zeros((N, V))
    for token in range(V):
        if not summed[:, token].any():
            found[:, token] = projection[:, token]
            continue
        strongest = [
            unit for unit in np.argsort(-np.abs(summed[:, token]))[:reached] if summed[unit, token]
        ]
        kept = summed[strongest, token]
        found[strongest, token] = kept / np.sqrt(np.mean(kept**2)) * scale
    return found


@pytest.mark.parametrize("chunk", [1 << 22, 50])
def test_counts_and_information_are_those_of_loops(text, monkeypatch, chunk):
    monkeypatch.setattr(counted_input, "CHUNK", chunk)
    counts = counted_input.cooccurrences(text, V)
    by_hand = counts_by_hand(text)
    assert np.array_equal(counts.toarray(), by_hand) and by_hand[9].sum() < by_hand[10].sum()
    np.testing.assert_allclose(
        counted_input.ppmi(counts).toarray(), ppmi_by_hand(by_hand), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize(
    "share, reached", [(0.1, 6), (0.5, 30), (None, 60)], ids=["sparse", "half", "dense"]
)
def test_w_in_is_that_of_loops(text, monkeypatch, share, reached):
    """The random W_in of the same seed is the projection, and all else that is frozen is as without
    a text."""
    monkeypatch.setattr(counted_input, "ENTRIES", 7 * N)
    config = ReservoirConfig(**COUNTED, input_connectivity=share, input_scale=0.7)
    found = initialize_reservoir(config, V, 3, text).reservoir
    plain = initialize_reservoir(
        dataclasses.replace(config, input_weights="random", input_connectivity=share or 1.0), V, 3
    ).reservoir
    random = oracle.dense(plain.w_in)
    w_in = oracle.dense(found.w_in)
    # All is computed in float64, and float32 rounds each value once.
    np.testing.assert_allclose(w_in, columns_by_hand(text, random, reached, 0.7), rtol=1e-7, atol=0)
    np.testing.assert_array_equal(oracle.dense(found.w_rec), oracle.dense(plain.w_rec))
    np.testing.assert_array_equal(found.leak, plain.leak)


def test_tokens_that_are_used_alike_drive_the_same_units(text):
    config = ReservoirConfig(**COUNTED, layers=2, input_connectivity=0.1)
    w_in = oracle.dense(initialize_reservoir(config, V, 0, text).reservoir.layers[0].w_in)
    assert ((w_in != 0).sum(axis=0)[:UNKNOWN] == 6).all()
    cosine = (w_in.T @ w_in) / np.outer(*[np.linalg.norm(w_in, axis=0)] * 2)
    assert np.argsort(-cosine[7])[:2].tolist() == [7, 8] and cosine[7, 8] > 0.8


def test_a_training_counts_its_own_text(tmp_path):
    model = (
        "model: {reservoir: {state_size: 16, mean_degree: 4, input_weights: counted}, readout:"
        " {rank: 4}}\n"
    )
    experiment = read(tmp_path, "run", "--training.epochs", "1", text=DATA + TRAINING + model)
    assert train_run(experiment) == 0
    run = esnlm.load(tmp_path / "run")
    train_text, _ = experiment.data.open(RunDirectory(tmp_path / "run"), experiment.seed)
    again = initialize_reservoir(
        experiment.model.reservoir, run.tokenizer.vocab_size, experiment.seed, train_text
    )
    np.testing.assert_array_equal(
        oracle.dense(run.model.reservoir.w_in), oracle.dense(again.reservoir.w_in)
    )


def test_without_a_text_it_is_refused():
    with pytest.raises(
        InputError, match="^model.reservoir.input_weights is counted, and there is no training text"
    ):
        initialize_reservoir(ReservoirConfig(**COUNTED), V, 0)
