"""States of words, against the oracle's float64 states of tokens; alignment, against its
definition."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import esnlm
from esnlm import loaded_run
from esnlm.base.errors import InputError
from esnlm.data.sources import ImportedData
from esnlm.data.tokenizer import word_tokenizer
from esnlm.evaluation.words import covering_tokens, join, token_spans
from esnlm.models.echo_state import EchoStateConfig
from esnlm.models.lstm import LstmConfig
from esnlm.readout.linear import ReadoutConfig
from esnlm.reservoir.weights import ReservoirConfig
from tests import oracle
from tests.evaluation import small_run
from tests.evaluation.small_run import GPT2, OF_DOCUMENTS, TOLERANCE
from tests.evaluation.test_words import BPE, TEXT

TOKENIZER = word_tokenizer(["The", " cats", " sleep", " run", "cats", "do", "don"])
STACK = EchoStateConfig(
    reservoir=ReservoirConfig(state_size=24, mean_degree=4, layers=2), readout=ReadoutConfig(6)
)


@pytest.fixture(scope="module")
def run():
    return small_run.small_run(tokenizer=TOKENIZER)


def read(run, *texts):
    """h_0 .. h_T of the ids BOS text EOS BOS text EOS ..., in float64; h_0 is that after BOS."""
    ids = [i for text in texts for i in run.tokenizer.encode_framed([text])]
    return oracle.states(*oracle.matrices(run.model.reservoir), ids)


def assert_states(words, expected):
    assert words.states.dtype == np.float32 and len(words.states) == len(words.rows)
    np.testing.assert_allclose(words.states, expected, atol=TOLERANCE)


def test_a_word_of_several_tokens_has_the_state_after_its_last_or_first_or_their_mean(run):
    text = "\tThe  cats sleep."  # \t, The, " ", " cats", " sleep", "."
    h = read(run, text)
    chosen = {"last": [[2], [4], [6]], "first": [[2], [4], [5]], "mean": [[2], [4], [5, 6]]}
    for at, tokens in chosen.items():
        words = run.word_states(["cats", text], at=at)
        after = read(run, "cats")[1]
        assert_states(words, [after, *(h[each].mean(axis=0) for each in tokens)])
    assert words.rows[1:] == [
        {"sentence": 1, "position": i, "word": word, "start": start, "end": start + len(word)}
        | {"tokens": tokens, "runs_over": False, "shared": False}
        for i, (word, start, tokens) in enumerate(
            [("The", 1, 1), ("cats", 6, 1), ("sleep.", 11, 2)]
        )
    ]


def test_words_that_share_tokens_say_so(run):
    """A token runs over the end of "do", and "s" has no token of its own."""
    sentence = ["do", "n't", "cat", "s", "sleep"]
    spaces = [[False, True, False, True, False]]
    joined = join(sentence, ["", " ", "", " ", ""])
    assert joined.text == "don't cats sleep"
    spans = token_spans(joined.text, TOKENIZER.encode(joined.text), TOKENIZER)
    tokens = [joined.text[start:end] for start, end in spans]
    assert tokens == ["don", "'", "t", " cats", " sleep"]
    h = read(run, joined.text)
    last, first, mean = (
        run.word_states([sentence], space_after=spaces, at=at) for at in ("last", "first", "mean")
    )
    assert_states(last, h[[1, 3, 4, 4, 5]])
    assert_states(first, h[[1, 1, 4, 4, 5]])
    assert_states(mean, [h[1], h[1:4].mean(axis=0), h[4], h[4], h[5]])
    column = {name: [row[name] for row in last.rows] for name in last.rows[0]}
    assert column["word"] == sentence and column["position"] == [0, 1, 2, 3, 4]
    assert [joined.text[row["start"] : row["end"]] for row in last.rows] == sentence
    assert column["tokens"] == [1, 3, 1, 1, 1]
    assert column["runs_over"] == [True, False, True, False, False]
    assert column["shared"] == [False, True, False, True, False]
    assert last.rows == first.rows == mean.rows


@given(text=TEXT, cuts=st.sets(st.integers(1, 39)))
@settings(deadline=None)
def test_the_tokens_of_a_word_are_those_that_cover_its_characters(text, cuts):
    edges = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    words = [(a, b) for a, b in zip(edges, edges[1:], strict=False) if text[a:b].strip()]
    tokens = token_spans(text, BPE.encode(text), BPE)
    for (start, end), numbers in zip(words, covering_tokens(words, tokens), strict=True):
        covering = [i for i, token in enumerate(tokens) if token[0] < end and token[1] > start]
        assert covering == list(numbers) != []


def test_a_document_is_read_as_its_ids_end_to_end():
    run = small_run.small_run(tokenizer=TOKENIZER, data=OF_DOCUMENTS)
    sentences = ["The cats", ["cats", "sleep"], " ", "The", "cats run"]
    words = run.word_states(sentences, context="document", documents=[7, 7, 7, 3, 3])
    first, second = read(run, "The cats", "cats sleep"), read(run, "The", "cats run")
    assert_states(words, [*first[[1, 2, 5, 6]], *second[[1, 4, 5]]])
    assert [row["sentence"] for row in words.rows] == [0, 0, 1, 1, 3, 4, 4]
    together = run.word_states(sentences, context="document")
    assert_states(
        together, read(run, "The cats", "cats sleep", "The", "cats run")[[1, 2, 5, 6, 9, 12, 13]]
    )


def test_a_model_of_sentences_warns_of_documents(run):
    with pytest.warns(UserWarning, match="trained on single sentences"):
        run.word_states(["The cats", "run"], context="document")


@pytest.mark.parametrize("model", [small_run.ESN, GPT2], ids=["esn", "gpt2"])
def test_the_states_after_words_predict_as_surprisals_do(model):
    """Also in the windows of a GPT-2 of ten positions. Each word is one token."""
    data = ImportedData() if model is GPT2 else OF_DOCUMENTS
    run = small_run.small_run(model, TOKENIZER, data)
    sentences = [
        "The cats sleep run cats run run cats sleep sleep cats run sleep",
        "The run",
        "cats run",
    ]
    words = run.word_states(sentences, context="document")
    rows = run.surprisal(sentences, "token", "nats", context="document")
    readout = run.model.readout_arrays(run.model.params)
    bias = readout.get("bias", 0)
    log_p = oracle.log_softmax(words.states @ np.asarray(readout["w"], np.float64).T + bias)
    expected = {(row["sentence"], row["position"]): row["surprisal_nats"] for row in rows}
    for row, each in zip(words.rows, log_p, strict=True):
        ids = [*TOKENIZER.encode(sentences[row["sentence"]]), TOKENIZER.eos]
        after = row["position"] + 1
        assert -each[ids[after]] == pytest.approx(expected[row["sentence"], after], abs=1e-4)


def test_the_mean_over_tokens_in_two_windows_is_that_of_both():
    run = small_run.small_run(GPT2, TOKENIZER, ImportedData())
    sentences = ["The cats sleep. run. cats. cats. sleep. run. cats. run. sleep. cats."] * 2
    first, last, mean = (
        run.word_states(sentences, at=at, context="document") for at in ("first", "last", "mean")
    )
    assert {row["tokens"] for row in mean.rows} == {1, 2}
    np.testing.assert_allclose(mean.states, (first.states + last.states) / 2, atol=TOLERANCE)


LAYERS = {"esn": ["z", "layer1"], "lstm": ["c", "features"], "gpt2": ["layer0", "embedding"]}


@pytest.mark.parametrize("family", LAYERS)
def test_batches_of_any_size_and_order_of_layers_have_the_same_states(family, monkeypatch):
    model = {"esn": STACK, "lstm": LstmConfig(width=12), "gpt2": GPT2}[family]
    run, names = small_run.small_run(model, TOKENIZER), LAYERS[family]
    sentences = ["The cats sleep", "cats", "", "do n't run cats sleep", "The run."] * 7
    words = run.word_states(sentences, at="mean", layers=names)
    each = [run.word_states(sentences, at="mean", layers=name).states for name in names]
    assert [part.shape[1] for part in each] == [run.layers[name] for name in names]
    np.testing.assert_allclose(words.states, np.concatenate(each, axis=1), atol=TOLERANCE)
    for size in (1, 2000):
        monkeypatch.setattr(loaded_run, "MAX_BYTES_AT_ONCE", size)
        again = run.word_states(sentences, at="mean", layers=names)
        np.testing.assert_allclose(again.states, words.states, atol=TOLERANCE)
        assert again.rows == words.rows
    (states,) = run.states(["cats"], names)  # after BOS, the word and EOS
    np.testing.assert_allclose(words.states[3], states[1], atol=TOLERANCE)


def test_layers_are_those_that_the_model_has(run):
    assert run.layers == {"features": 24, "reservoir": 24, "layer0": 24}
    for wrong in ("c", ["layer0", "layer1"], ["layer0", "layer0"], []):
        with pytest.raises(InputError, match="choose from features, reservoir, layer0$"):
            run.word_states(["The cats"], layers=wrong)
    with pytest.raises(InputError, match="at is 'middle': choose from last, first, mean"):
        run.word_states(["The cats"], at="middle")


@pytest.mark.parametrize("sentences", [[], ["", " "], [[]]], ids=str)
def test_without_words_there_are_no_states(run, sentences):
    words = run.word_states(sentences)
    assert words.states.shape == (0, 24) and words.rows == []


def test_a_word_without_tokens_has_no_state(run):
    """As with a tokenizer that leaves characters out."""

    class Deaf(type(TOKENIZER)):
        def offsets(self, text):
            return [(0, 3), (9, 14)]

    deaf = Deaf(
        **{each.name: getattr(TOKENIZER, each.name) for each in dataclasses.fields(TOKENIZER)}
    )
    words = dataclasses.replace(run, tokenizer=deaf).word_states(["The cats sleep"])
    assert [row["tokens"] for row in words.rows] == [1, 0, 1]
    np.testing.assert_array_equal(np.isnan(words.states).all(axis=1), [False, True, False])
    assert np.isfinite(words.states[[0, 2]]).all()
    rows = dataclasses.replace(run, tokenizer=deaf).surprisal([["The", "cats", "sleep"]])
    assert [row["surprisal_bits"] is None for row in rows] == [False, True, False, False]


def test_an_untrained_run_has_the_states_of_its_weights(trained):
    """Its z changes in training, and its reservoir does not."""
    before, after = (esnlm.load(trained("esn"), untrained=untrained) for untrained in (True, False))
    text = "The cats sleep in the garden."
    h = read(before, text)
    ends = [end for _, end in token_spans(text, before.tokenizer.encode(text), before.tokenizer)]
    last = [1 + ends.index(end) for end in (3, 8, 14, 17, 21, 29)]
    assert_states(before.word_states([text]), h[last])
    assert_states(after.word_states([text]), h[last])
    z = h[last] @ np.asarray(before.model.readout.b[...], np.float64).T
    assert_states(before.word_states([text], layers="z"), z)
    assert not np.allclose(after.word_states([text], layers="z").states, z, atol=0.01)
