"""Training and evaluation with the state carried over the sentences of a document, beside float64
NumPy."""

from itertools import pairwise

import numpy as np
import pytest

import esnlm
from esnlm.base.errors import InputError
from esnlm.data.store import StoreWriter
from esnlm.data.tokenizer import word_tokenizer
from esnlm.features import recurrence
from esnlm.features.documents import equal_streams, whole_documents
from esnlm.training import batches
from tests import oracle
from tests.training import small

TOKENIZER = word_tokenizer([f"w{i}" for i in range(20)])
STREAMS, PIECE, EPOCHS = 3, 5, 2
MODELS = {
    "ESN": "model: {reservoir: {state_size: 16, mean_degree: 4}, readout: {rank: 4}}",
    "deep readout": (
        "model: {family: deep_readout, reservoir: {state_size: 8, mean_degree: 4}, readout:"
        " {rank: 4, recent_tokens: {count: 2, width: 4}, gated_mlp: {blocks:"
        " 1, width: 4}}}"
    ),
    "LSTM": "model: {family: lstm, width: 8, dropout: 0.2}",
    "LSTM with n-grams": (
        "model: {family: lstm, width: 8, dropout: 0, ngrams: {orders: [2, 3], buckets: 64,"
        " width: 4}}"
    ),
    "output feedback": (
        "model: {family: jaeger, rank: 4, reservoir: {state_size: 12, mean_degree: 4}}"
    ),
    "ESN+i": (
        "model: {reservoir: {state_size: 12, mean_degree: 4}, train_input: true, readout: {rank:"
        " null}}"
    ),
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Two stores of eleven and five documents, each of one to nine sentences."""
    folder, rng = tmp_path_factory.mktemp("stores"), np.random.default_rng(0)
    found = {}
    for name, documents in (("train", 11), ("validation", 5)):
        numbers = np.repeat(np.arange(documents), rng.integers(1, 10, documents))
        lengths = rng.integers(3, 9, len(numbers))
        tokens = rng.integers(0, TOKENIZER.bos, lengths.sum())
        ends = np.cumsum(lengths)
        tokens[ends - lengths], tokens[ends - 1] = TOKENIZER.bos, TOKENIZER.eos
        with StoreWriter(folder / name, TOKENIZER) as writer:
            writer.append(tokens, lengths, lengths - 2, lengths, numbers)
            found[name] = writer.finish()
    return found


def settings_of(name, stores, **training):
    data = {key: f"{store.folder}" for key, store in stores.items()}
    data |= {"kind": "store", "context": "document", "bptt_length": PIECE}
    training = {
        "epochs": EPOCHS,
        "batch_size": STREAMS,
        "learning_rate": 0.02,
        "log_every": 1,
    } | training
    # several windows of each epoch, and fewer slots than documents
    compute = {"window_tokens": 40, "batch_slots": 2}
    return f"data: {data}\ntraining: {training}\n{MODELS[name]}\ncompute: {compute}\n".replace(
        "'", ""
    )


def whole(store):
    """The tokens of each document."""
    firsts = [
        s for s in range(len(store)) if s == 0 or store.documents[s] != store.documents[s - 1]
    ]
    return [
        np.concatenate([store.sentence(s) for s in range(a, b)])
        for a, b in pairwise([*firsts, len(store)])
    ]


def after_sentences(document):
    """Whether each token but the last is EOS, after which nothing is predicted; BOS and EOS are one
    token."""
    ends = np.flatnonzero(document == TOKENIZER.eos)[1::2]
    return np.isin(np.arange(len(document) - 1), ends)


def steps_of(run):
    """The function from (state, token) to the next state, and from a state to log p, of a run's
    arrays in float64."""
    arrays = {
        name: array.astype(np.float64)
        for name, array in run.arrays().items()
        if array.dtype == np.float32
    }
    if "embedding" not in arrays:
        w_rec, w_in, leak = oracle.matrices(run.model.reservoir)
        w_out = arrays["readout.a"] @ arrays["readout.b"]

        def advance(h, token):
            return (1 - leak) * h + leak * np.tanh(w_rec @ h + w_in[:, token])

        zero, output = np.zeros(len(leak)), lambda h: h
    else:
        w_out = arrays["readout.w"]

        def advance(state, token):
            h, c = state
            x = (
                arrays["w_ih"] @ arrays["embedding"][token]
                + arrays["b_ih"]
                + arrays["w_hh"] @ h
                + arrays["b_hh"]
            )
            i, f, g, o = np.split(x, 4)
            c = c / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
            return np.tanh(c) / (1 + np.exp(-o)), c

        zero, output = (np.zeros(arrays["w_hh"].shape[1]),) * 2, lambda state: state[0]
    return (
        zero,
        advance,
        lambda state: oracle.log_softmax(w_out @ output(state) + arrays["readout.bias"]),
    )


@pytest.mark.parametrize("name", ["ESN", "LSTM"])
def test_losses_are_those_of_documents_read_from_their_beginning(name, stores, tmp_path):
    """At a learning rate of next to nothing, in the order of the corpus."""
    text = settings_of(name, stores, learning_rate=1e-30, order="corpus").replace(
        "dropout: 0.2", "dropout: 0"
    )
    run = small.train(tmp_path, "run", text=text)
    zero, advance, log_p = steps_of(esnlm.load(run, untrained=True))
    documents = whole(stores["train"])
    tokens = np.concatenate(documents)
    begins = np.cumsum([0, *map(len, documents)])
    silent = np.concatenate([np.append(after_sentences(document), True) for document in documents])
    losses = {}
    for first, last in pairwise(np.linspace(0, len(tokens), STREAMS + 1).astype(int)):
        state = zero
        for at in range(first, last):
            state = advance(zero if at in begins else state, tokens[at])
            if not silent[at]:
                losses.setdefault((at - first) // PIECE, []).append(-log_p(state)[tokens[at + 1]])
    found = [line["train_nll"] for line in small.metrics(run) if "train_nll" in line]
    # A state passes on at most what it was off by: a loss is off by some roundings of float32.
    np.testing.assert_allclose(
        found, [np.mean(losses[u]) for u in range(len(losses))] * EPOCHS, rtol=1e-6
    )


@pytest.mark.parametrize("name", MODELS)
def test_a_run_over_documents(name, stores, tmp_path, monkeypatch):
    """Its validation is that of whole documents, and a run that was stopped in each epoch ends with
    the same bits."""
    text = settings_of(name, stores)
    loaded = esnlm.load(run := small.train(tmp_path, "run", text=text))
    found = loaded.likelihood(stores["validation"])
    documents = whole(stores["validation"])
    given = zip(documents, loaded.token_log_probs_of_ids(documents), strict=True)
    expected = [log_probs[~after_sentences(document)] for document, log_probs in given]
    assert found.nats == pytest.approx(-np.concatenate(expected).sum(dtype=np.float64), rel=1e-6)
    targets = np.concatenate([document[1:][~after_sentences(document)] for document in documents])
    of_eos = np.concatenate(expected)[targets == TOKENIZER.eos]
    assert found.eos_nats == pytest.approx(-of_eos.sum(dtype=np.float64), rel=1e-6)
    summary, text_read = small.summary_of(run), stores["train"]
    assert (summary["val_nll"], summary["epochs"]) == (pytest.approx(found.nll, rel=1e-6), EPOCHS)
    assert summary["tokens"] == EPOCHS * sum(text_read.lengths - 1)
    assert found.tokens == sum(map(len, expected)) == sum(stores["validation"].lengths - 1)

    stopped = small.read(tmp_path, "stopped", text=text)
    assert small.train_with_stops(stopped, monkeypatch, every=12) == EPOCHS
    for key, array in loaded.arrays().items():
        np.testing.assert_array_equal(array, esnlm.load(tmp_path / "stopped").arrays()[key])


def test_the_sentences_of_an_update_end_in_it(stores):
    store, plan = stores["train"], batches.plan_documents(stores["train"], 0, 0, STREAMS, PIECE, 40)
    for u, numbers in enumerate(plan.updates):
        chunk = plan.chunk(range(u, u + 1))
        first = u * PIECE + np.arange(len(chunk.left))[:, None]
        read = chunk.steps.corpus_positions[first < plan.streams.sizes]
        assert len(read) == chunk.size and set(store.offsets[numbers + 1] - 1) <= set(read)
    assert sorted(np.concatenate(plan.updates)) == list(range(len(store)))


def test_streams_have_every_token_once(stores):
    store = stores["train"]
    for streams in (equal_streams(store, 4, np.random.default_rng(0)), whole_documents(store, 4)):
        chunk = streams.read(0, streams.steps)
        corpus_positions = chunk.steps.corpus_positions
        seen = [corpus_positions[:size, b] for b, size in enumerate(streams.sizes)]
        assert sorted(np.concatenate(seen)) == list(range(len(store.tokens)))
        assert (chunk.left > 0).sum() == len(store.tokens) - len(store)
    assert (chunk.steps.positions[chunk.left > 0] == 0).sum() == 11  # of whole documents


def test_what_carries_no_state_is_refused(tmp_path):
    for other in (
        "model: {family: gpt2}",
        "model: {readout: {rank: null}}\ntraining: {kind: ridge}",
    ):
        with pytest.raises(InputError, match="carries no state"):
            small.read(tmp_path, "run", text=f"data: {{kind: store, context: document}}\n{other}")


def test_inputs_are_dropped_in_training_and_not_in_validation(stores, tmp_path, monkeypatch):
    rates, run = [], recurrence.run
    monkeypatch.setattr(
        recurrence, "run", lambda *given, rate: rates.append(rate) or run(*given, rate=rate)
    )
    small.train(
        tmp_path,
        "run",
        text=settings_of("ESN", stores, epochs=1).replace("{reservoir", "{dropout: 0.2, reservoir"),
    )
    assert set(rates) == {0.0, 0.2}
