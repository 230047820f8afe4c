"""Unigram and bigram models against counts kept in plain dictionaries."""

import math
from collections import Counter

import numpy as np
import pytest

from esnlm.errors import InputError
from esnlm.models import ngrams
from esnlm.models.ngrams import BigramModel, UnigramModel

V, EOS = 7, 6  # token 5 never occurs; BOS is EOS, as in GPT-2


@pytest.fixture
def corpus():
    rng = np.random.default_rng(0)
    return [np.array([EOS, *rng.integers(0, 5, rng.integers(0, 8)), EOS], np.uint16) for _ in range(40)]


def plain_unigram(corpus, word):
    predicted = [w for sentence in corpus for w in sentence[1:].tolist()]
    return (predicted.count(word) + 1) / (len(predicted) + V)


def plain_bigram(corpus, previous, word):
    follows = Counter(
        w
        for sentence in corpus
        for v, w in zip(sentence[:-1].tolist(), sentence[1:].tolist(), strict=False)
        if v == previous
    )
    count, types = sum(follows.values()), len(follows)
    if not count:
        return plain_unigram(corpus, word)
    return (follows[word] + types * plain_unigram(corpus, word)) / (count + types)


def test_unigram_is_add_one_over_the_predicted_tokens(corpus):
    model = UnigramModel.fit(corpus, V)
    np.testing.assert_allclose(np.exp(model.log_p), [plain_unigram(corpus, w) for w in range(V)], rtol=1e-13)
    assert np.exp(model.log_p).sum() == pytest.approx(1, rel=1e-13)


def test_bigram_is_witten_bell(corpus):
    model = BigramModel.fit(corpus, V)
    p = np.array([[math.exp(model.token_log_probs(np.array([v, w]))[0]) for w in range(V)] for v in range(V)])
    np.testing.assert_allclose(p, [[plain_bigram(corpus, v, w) for w in range(V)] for v in range(V)], rtol=1e-13)
    np.testing.assert_allclose(p.sum(axis=1), np.ones(V), rtol=1e-13)


@pytest.mark.parametrize("kind", [UnigramModel, BigramModel])
def test_each_token_after_bos_is_predicted(corpus, kind):
    model = kind.fit(corpus, V)
    log_p = model.token_log_probs(np.array([EOS, 3, 5, EOS]))
    assert log_p.shape == (3,) and log_p.dtype == np.float64
    pairs = [(EOS, 3), (3, 5), (5, EOS)]
    if kind is UnigramModel:
        expected = [math.log(plain_unigram(corpus, w)) for _, w in pairs]
    else:
        expected = [math.log(plain_bigram(corpus, v, w)) for v, w in pairs]
    np.testing.assert_allclose(log_p, expected, rtol=1e-13)
    assert model.token_log_probs(np.array([EOS])).shape == (0,)


@pytest.mark.parametrize("kind", [UnigramModel, BigramModel])
def test_nll_is_total_over_predicted_tokens(corpus, kind):
    model = kind.fit(corpus[:30], V)
    scores = np.concatenate([model.token_log_probs(sentence) for sentence in corpus[30:]])
    assert model.nll(iter(corpus[30:])) == pytest.approx(-scores.mean(), rel=1e-13)


@pytest.mark.parametrize("kind", [UnigramModel, BigramModel])
def test_a_corpus_read_in_blocks_gives_the_same_model(corpus, kind, monkeypatch):
    whole = kind.fit(corpus, V)
    monkeypatch.setattr(ngrams, "BLOCK_TOKENS", 10)
    blocks = kind.fit((sentence for sentence in corpus), V)
    for name in vars(whole):
        np.testing.assert_array_equal(getattr(blocks, name), getattr(whole, name))
    assert blocks.nll(corpus) == pytest.approx(whole.nll(corpus), rel=1e-13)


def test_bigram_keeps_only_the_pairs_that_occur_and_ids_do_not_overflow():
    vocab_size = 100_000  # v V + w passes 2^31
    model = BigramModel.fit([np.array([99_999, 99_998, 99_999], np.uint32)], vocab_size)
    assert len(model.pairs) == 2
    p1 = 2 / (2 + vocab_size)
    expected = math.log((1 + p1) / 2)
    np.testing.assert_allclose(model.token_log_probs(np.array([99_999, 99_998, 99_999])), [expected] * 2, rtol=1e-13)


@pytest.mark.parametrize("kind", [UnigramModel, BigramModel])
def test_bad_input_is_named(corpus, kind):
    with pytest.raises(InputError) as error:
        kind.fit([np.array([6, 7, 6])], V)
    assert str(error.value) == "n-gram model: token id 7 is outside the vocabulary of 7"
    with pytest.raises(InputError) as error:
        kind.fit(corpus, V).token_log_probs(np.array([6, -1, 6]))
    assert str(error.value) == "n-gram model: token id -1 is outside the vocabulary of 7"
    nothing = "n-gram model: no predicted token to {}: give sentences that hold at least BOS and EOS"
    for sequences in ([], [np.array([6])], [np.array([], np.int64)]):
        with pytest.raises(InputError) as error:
            kind.fit(sequences, V)
        assert str(error.value) == nothing.format("count")
    with pytest.raises(InputError) as error:
        kind.fit(corpus, V).nll([])
    assert str(error.value) == nothing.format("score")
