"""Minimal pairs: every good sentence is in the language, no bad one is, and no n-gram model can
tell them apart."""

import itertools
import math
from collections import Counter

import pytest

from esnlm.base.errors import InputError
from esnlm.data import grammar_pairs
from esnlm.data.grammar import log_prob, sentences
from esnlm.data.grammar_pairs import PARADIGMS, Paradigm, minimal_pairs
from tests.data.test_grammar import tokens


@pytest.fixture(scope="module")
def corpus():
    return list(sentences(1000, seed=3))


@pytest.fixture(scope="module")
def pairs(corpus):
    return minimal_pairs(200, seed=3, exclude=set(corpus))


def rows_of(pairs):
    return itertools.chain.from_iterable(pairs.values())


def test_good_sentences_are_in_the_language_and_bad_ones_are_not(pairs):
    for row in rows_of(pairs):
        assert math.isfinite(log_prob(row["sentence_good"])), row
        assert log_prob(row["sentence_bad"]) == -math.inf, row


def test_pairs_are_held_out_from_the_corpus(pairs):
    uid, first = "wh_vs_that", pairs["wh_vs_that"][1]
    again = minimal_pairs(200, seed=3, exclude={first["sentence_good"]})
    goods = {row["sentence_good"] for row in again[uid]}
    assert first["sentence_good"] not in goods
    assert pairs[uid][0]["sentence_good"] not in goods, "its mirror image must go with it"
    assert all(
        again[other][:150] == pairs[other][:150] for other in ("npi_item", "reflexive_domain")
    )


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_no_ngram_model_can_do_better_than_half(pairs, n):
    """Good minus bad in n-gram counts (all that an n-gram model sees) is the opposite in the two
    pairs of a square."""

    def ngrams(sentence):
        padded = ["BOS"] * (n - 1) + tokens(sentence) + ["EOS"]
        return Counter(zip(*(padded[i:] for i in range(n)), strict=False))

    for uid, rows in pairs.items():
        for row, mirror in zip(rows[::2], rows[1::2], strict=False):
            goods = ngrams(row["sentence_good"]) + ngrams(mirror["sentence_good"])
            bads = ngrams(row["sentence_bad"]) + ngrams(mirror["sentence_bad"])
            assert goods == bads, (uid, row, mirror)


@pytest.mark.parametrize("uid", PARADIGMS)
def test_no_two_choices_of_words_give_the_same_sentence(uid, monkeypatch):
    monkeypatch.setattr(grammar_pairs, "PARADIGMS", {uid: PARADIGMS[uid]})
    monkeypatch.setattr(
        grammar_pairs, "WORDS", {slot: words[:2] for slot, words in grammar_pairs.WORDS.items()}
    )
    count = 2 * 2 ** len(PARADIGMS[uid].slots.split())
    assert len({row["sentence_good"] for row in minimal_pairs(count, seed=0)[uid]}) == count


def test_a_paradigm_gives_all_it_has_and_says_when_the_corpus_takes_too_many(monkeypatch):
    words = {"noun": ("dog", "cat"), "verb": ("sleep", "wait", "jump")}
    sides = ("the {noun} | {verb}s | ", "the {noun}s | {verb} | ")
    small = Paradigm("morphology", "agreement", "completion", "noun verb", *sides)
    monkeypatch.setattr(grammar_pairs, "PARADIGMS", {"small": small})
    monkeypatch.setattr(grammar_pairs, "WORDS", words)
    assert len({row["sentence_good"] for row in minimal_pairs(12, seed=0)["small"]}) == 12
    with pytest.raises(InputError) as error:
        minimal_pairs(12, seed=0, exclude={"The dog sleeps."})
    assert (
        str(error.value)
        == "per_paradigm: 12 pairs asked, small has only 10 outside the corpus: ask for fewer"
    )
