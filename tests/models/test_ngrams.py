"""N-gram models against counts kept in plain dictionaries."""

import math
from functools import partial

import numpy as np
import pytest

from esnlm.base.errors import InputError
from esnlm.models import ngrams
from esnlm.models.ngrams import NgramModel

V, EOS = 7, 6  # token 5 never occurs; BOS is EOS, as in GPT-2
FITS = {order: partial(NgramModel.fit, order=order) for order in (1, 2, 3, 5)}


def log_probs(model, ids):
    (found,) = model.token_log_probs_of_ids([ids])
    return found


@pytest.fixture
def corpus():
    rng = np.random.default_rng(0)
    return [
        np.array([EOS, *rng.integers(0, 5, rng.integers(0, 8)), EOS], np.uint16) for _ in range(40)
    ]


def plain(corpus, order, before, word):
    """Returns p(word | before) by Witten and Bell's method C, from the definition: nothing is
    numbered, all is counted anew."""
    if order == 1:
        predicted = [w for sentence in corpus for w in sentence[1:].tolist()]
        return (predicted.count(word) + 1) / (len(predicted) + V)
    if len(before) < order - 1:
        return plain(corpus, order - 1, before, word)
    context = list(before[len(before) - order + 1 :])
    follows = [
        sentence[i + len(context)].item()
        for sentence in corpus
        for i in range(len(sentence) - len(context))
        if sentence[i : i + len(context)].tolist() == context
    ]
    lower = plain(corpus, order - 1, before, word)
    if not follows:
        return lower
    return (follows.count(word) + len(set(follows)) * lower) / (len(follows) + len(set(follows)))


@pytest.mark.parametrize("order", FITS)
def test_probabilities_are_those_of_the_definition(corpus, order):
    model = FITS[order](corpus[:25], V)
    for sentence in corpus[25:]:  # with sequences that never occurred, and the token 5
        strange = np.array([*sentence[:-1], 5, *sentence[1:]])
        for ids in (sentence, strange):
            expected = [
                math.log(plain(corpus[:25], order, ids[:t].tolist(), ids[t]))
                for t in range(1, len(ids))
            ]
            np.testing.assert_allclose(log_probs(model, ids), expected, rtol=1e-12)


@pytest.mark.parametrize("order", FITS)
def test_probabilities_of_all_tokens_sum_to_one(corpus, order):
    model = FITS[order](corpus, V)
    for before in ([EOS], [EOS, 3], [EOS, 3, 2, 4, 1], [EOS, 5, 5], corpus[0][:-1].tolist()):
        p = [math.exp(log_probs(model, np.array([*before, w]))[-1]) for w in range(V)]
        assert sum(p) == pytest.approx(1, rel=1e-13)


@pytest.mark.parametrize("order", FITS)
def test_each_token_after_bos_is_predicted(corpus, order):
    model = FITS[order](corpus, V)
    log_p = log_probs(model, np.array([EOS, 3, 5, EOS]))
    assert log_p.shape == (3,) and log_p.dtype == np.float64
    assert log_probs(model, np.array([EOS])).shape == (0,)
    assert log_probs(model, np.array([], int)).shape == (0,)


@pytest.mark.parametrize("order", FITS)
def test_no_context_reaches_back_over_a_beginning(corpus, order):
    model = FITS[order](corpus, V)
    alone = [log_probs(model, sentence) for sentence in corpus]
    for together in (
        model.token_log_probs_of_ids(corpus),
        model.token_log_probs_of_ids([*corpus, np.array([EOS])]),
    ):
        for one, other in zip(alone, together, strict=False):
            np.testing.assert_array_equal(one, other)
    # A sentence counted beside others has no sequence that spans two of them.
    apart = FITS[order]([np.array([EOS, 1, EOS]), np.array([EOS, 2, EOS])], V)
    assert [level.counts.sum() for level in apart.levels] == [4, 2, 0, 0][: order - 1]


@pytest.mark.parametrize("order", FITS)
def test_a_corpus_read_in_blocks_gives_the_same_model(corpus, order, monkeypatch):
    whole = FITS[order](corpus, V)
    monkeypatch.setattr(ngrams, "BLOCK_TOKENS", 10)
    blocks = FITS[order]((sentence for sentence in corpus), V)
    for sentence in corpus:
        np.testing.assert_array_equal(log_probs(blocks, sentence), log_probs(whole, sentence))


@pytest.mark.parametrize("order", [1, 2, 3])
def test_a_lower_order_is_the_model_that_is_counted_for_it(corpus, order):
    lower, counted = FITS[5](corpus, V).lower(order), FITS[order](corpus, V)
    for sentence in corpus:
        np.testing.assert_array_equal(log_probs(lower, sentence), log_probs(counted, sentence))


def test_only_what_occurs_is_kept_and_numbers_do_not_overflow():
    vocab_size = 100_000  # the code of a pair passes 2^31
    model = NgramModel.fit([np.array([99_999, 99_998, 99_999], np.uint32)], vocab_size, order=5)
    assert [len(level.codes) for level in model.levels] == [2, 1, 0, 0]
    p1 = 2 / (2 + vocab_size)
    p2 = (1 + p1) / 2
    expected = [math.log(p2), math.log((1 + p2) / 2)]
    np.testing.assert_allclose(
        log_probs(model, np.array([99_999, 99_998, 99_999])), expected, rtol=1e-13
    )


def test_an_id_outside_the_vocabulary_and_a_text_of_nothing_are_refused(corpus):
    model = NgramModel.fit(corpus, V, order=3)
    for act in (
        lambda: NgramModel.fit([np.array([6, 7, 6])], V, order=3),
        lambda: log_probs(model, np.array([6, -1, 6])),
        lambda: NgramModel.fit([np.array([6])], V, order=1),
    ):
        with pytest.raises(InputError, match="^n-gram model: "):
            act()


@pytest.mark.parametrize("order", FITS)
def test_the_probability_of_a_group_is_the_sum_of_its_tokens(corpus, order):
    model, group = (
        FITS[order](corpus[:25], V),
        np.array([True, False, False, True, True, True, False]),
    )
    for sentence in corpus[25:]:
        ids = np.array([*sentence[:-1], 5, *sentence[1:]])
        (found,) = model.token_log_probs_of_ids([ids], group=group)
        expected = [
            sum(plain(corpus[:25], order, ids[:t].tolist(), w) for w in np.flatnonzero(group))
            for t in range(1, len(ids))
        ]
        np.testing.assert_allclose(np.exp(found), expected, rtol=1e-12)
