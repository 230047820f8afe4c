"""Minimal pairs: every good sentence is in the language, no bad one is, and no n-gram model can tell them apart."""

import itertools
import json
import math
from collections import Counter
from functools import partial

import numpy as np
import pytest

from esnlm.data import grammar_pairs
from esnlm.data.grammar import log_prob, sentences, words
from esnlm.data.grammar_pairs import PARADIGMS, Paradigm, minimal_pairs, write_pairs
from esnlm.errors import InputError
from esnlm.models.ngrams import UnigramModel, WittenBellModel


@pytest.fixture(scope="module")
def corpus():
    return list(sentences(5000, seed=3))


@pytest.fixture(scope="module")
def pairs(corpus):
    return minimal_pairs(500, seed=3, exclude=set(corpus))


def tokens(sentence: str) -> list[str]:
    first, *others = sentence[:-1].split(" ")
    return [first, *(" " + word for word in others), "."]


def rows_of(pairs):
    return itertools.chain.from_iterable(pairs.values())


def test_each_paradigm_has_the_pairs_asked_for_and_none_twice(pairs):
    assert len(pairs) == 11
    for rows in pairs.values():
        assert len(rows) == len({row["sentence_good"] for row in rows}) == 500


def test_good_sentences_are_in_the_language_and_bad_ones_are_not(pairs):
    for row in rows_of(pairs):
        assert math.isfinite(log_prob(row["sentence_good"])), row
        assert log_prob(row["sentence_bad"]) == -math.inf, row


def test_pairs_are_held_out_from_the_corpus(pairs):
    uid, first = "wh_vs_that", pairs["wh_vs_that"][1]
    again = minimal_pairs(500, seed=3, exclude={first["sentence_good"]})
    goods = {row["sentence_good"] for row in again[uid]}
    assert first["sentence_good"] not in goods
    assert pairs[uid][0]["sentence_good"] not in goods, "its mirror image must go with it"
    assert all(again[other][:400] == pairs[other][:400] for other in ("npi_item", "reflexive_domain"))


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_no_ngram_model_can_do_better_than_half(pairs, n):
    """Good minus bad in n-gram counts (all that an n-gram model sees) is the opposite in the two pairs of a square."""

    def ngrams(sentence):
        padded = ["BOS"] * (n - 1) + tokens(sentence) + ["EOS"]
        return Counter(zip(*(padded[i:] for i in range(n)), strict=False))

    for uid, rows in pairs.items():
        for row, mirror in zip(rows[::2], rows[1::2], strict=False):
            goods = ngrams(row["sentence_good"]) + ngrams(mirror["sentence_good"])
            bads = ngrams(row["sentence_bad"]) + ngrams(mirror["sentence_bad"])
            assert goods == bads, (uid, row, mirror)


@pytest.mark.parametrize("fit", [UnigramModel.fit, partial(WittenBellModel.fit, order=2)])
def test_models_trained_on_the_corpus_get_half_of_every_paradigm(corpus, pairs, fit):
    ids = {token: number for number, token in enumerate(["EOS", *words()])}

    def encode(sentence):
        return np.array([0, *(ids[token] for token in tokens(sentence)), 0])

    fitted = fit(map(encode, corpus), len(ids))
    for uid, rows in pairs.items():
        difference = np.array(
            [
                math.fsum(fitted.token_log_probs(encode(row["sentence_good"])))
                - math.fsum(fitted.token_log_probs(encode(row["sentence_bad"])))
                for row in rows
            ]
        )
        accuracy = np.mean((difference > 1e-9) + 0.5 * (np.abs(difference) <= 1e-9))
        assert accuracy == 0.5, uid


def test_rows_have_blimps_fields(pairs):
    for uid, rows in pairs.items():
        for number, row in enumerate(rows):
            assert list(row) == ["sentence_good", "sentence_bad", "field", "linguistics_term", "UID", "pairID"]
            assert (row["UID"], row["pairID"]) == (uid, str(number))
            assert row["sentence_good"] != row["sentence_bad"]


def test_the_same_seed_gives_the_same_pairs(pairs, corpus):
    assert minimal_pairs(500, seed=3, exclude=set(corpus)) == pairs
    other = minimal_pairs(500, seed=4, exclude=set(corpus))
    for uid in pairs:
        shared = {row["sentence_good"] for row in pairs[uid]} & {row["sentence_good"] for row in other[uid]}
        assert len(shared) < 10


@pytest.mark.parametrize("uid", PARADIGMS)
def test_no_two_choices_of_words_give_the_same_sentence(uid, monkeypatch):
    monkeypatch.setattr(grammar_pairs, "PARADIGMS", {uid: PARADIGMS[uid]})
    monkeypatch.setattr(grammar_pairs, "WORDS", {slot: words[:2] for slot, words in grammar_pairs.WORDS.items()})
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
    assert str(error.value) == "per_paradigm: 12 pairs asked, small has only 10 outside the corpus: ask for fewer"


def test_write_pairs_makes_one_jsonl_per_paradigm(tmp_path):
    pairs = minimal_pairs(2, seed=0)
    folder = tmp_path / "new" / "pairs"
    write_pairs(pairs, folder)
    assert sorted(path.name for path in folder.iterdir()) == sorted(f"{uid}.jsonl" for uid in pairs)
    for uid, rows in pairs.items():
        lines = (folder / f"{uid}.jsonl").read_text(encoding="utf-8").splitlines()
        assert [json.loads(line) for line in lines] == rows
    assert [path.name for path in folder.parent.iterdir()] == ["pairs"], "nothing half-written is left"
