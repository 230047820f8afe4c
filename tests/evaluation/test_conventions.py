"""Sentences under each convention, with a tokenizer of one id a character, against sums written out
by hand."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from esnlm.base.errors import InputError
from esnlm.evaluation.conventions import describe_unscored, encode, list_texts, sum_log_probs

BOS, EOS = 1, 2
characters = SimpleNamespace(
    bos=BOS, eos=EOS, encode_batch=lambda texts: [[ord(c) for c in text] for text in texts]
)

SPACE, A, B = ord(" "), ord("a"), ord("b")


@pytest.mark.parametrize(
    "scoring, ab, a, empty",
    [
        ("paper", [BOS, A, B, EOS], [BOS, A, EOS], [BOS, EOS]),
        ("no-eos", [BOS, A, B], [BOS, A], [BOS]),
        ("lm-eval", [BOS, SPACE, A, B], [BOS, SPACE, A], [BOS, SPACE]),
        ("babylm", [BOS, A, B], [BOS, A], [BOS]),
        ("without-bos", [A, B], [A], []),
    ],
)
def test_ids_of_each_convention(scoring, ab, a, empty):
    sequences = encode(["ab", "a", ""], characters, scoring)
    assert [ids.tolist() for ids in sequences] == [ab, a, empty]
    assert all(ids.dtype == np.int32 for ids in sequences)


def test_sentences_of_one_token_are_not_scored_without_bos():
    texts = ["a", "ab", ""]
    found = [
        describe_unscored(encode(texts, characters, each), each)
        for each in ("without-bos", "no-eos", "paper")
    ]
    assert found[0].startswith("2 of 3 ") and found[1].startswith("1 of 3 ") and found[2] is None


def test_lines_with_their_ends_are_warned_of():
    """As `readlines` gives them: the line end would be a token of each sentence."""
    with pytest.warns(
        UserWarning, match="^line ends after 1 sentence, first after sentence 1, are read as tokens"
    ):
        list_texts(["a", "b\n"])
    with pytest.warns(
        UserWarning,
        match="^line ends after 2 sentences, first after sentence 0, are read as tokens",
    ):
        list_texts(["a\n", "b\n"])
    assert list_texts(["a\nb"]) == ["a\nb"]


@pytest.mark.parametrize("character", "\ufeff\u200b\u200e\u00ad\ufffd\0\x92\ud83d")
def test_characters_that_nobody_sees_are_warned_of(character):
    with pytest.warns(
        UserWarning,
        match=rf"^invisible .* in 1 sentence, first U\+{ord(character):04X} .* in sentence 1,",
    ):
        list_texts(["a\t\x0c", f"{character}b"])


@pytest.mark.parametrize("given", ["The cats sleep.", ["The cats sleep.", None], [[1, 2]]])
def test_what_is_no_list_of_texts_is_refused(given):
    with pytest.raises(InputError, match="^sentence"):
        list_texts(given)


def test_sentences_with_nothing_to_score_have_log_probability_zero():
    sequences = encode(["", "a", "ab"], characters, "without-bos")
    assert [len(ids) for ids in sequences] == [0, 1, 2]
    bigram = [-(ids[:-1] + ids[1:] / 1000) for ids in sequences]  # a made-up log p(next | last)
    assert sum_log_probs(bigram).tolist() == [0.0, 0.0, -(A + B / 1000)]


def test_the_sum_does_not_depend_on_the_order_of_its_terms():
    rng = np.random.default_rng(0)
    terms = rng.normal(size=40) * 10.0 ** rng.integers(-8, 8, 40)
    orders = [rng.permutation(terms) for _ in range(50)]
    # Summation term by term depends on the order. (Python's own sum is compensated from 3.12 on.)
    assert len({np.cumsum(order)[-1] for order in orders}) > 1
    assert set(sum_log_probs(orders)) == {math.fsum(terms)}


@pytest.mark.parametrize(
    "terms, total",
    [([-1.0, -np.inf], -np.inf), ([-1.0, np.nan], np.nan), ([np.inf, -np.inf], np.nan)],
)
def test_what_is_not_finite_stays_visible(terms, total):
    [found] = sum_log_probs([np.array(terms, np.float32)])
    np.testing.assert_equal(found, total)
