"""Sentences under each convention, with a tokenizer of one id a character, against sums written out by hand."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from esnlm.errors import InputError
from esnlm.evaluation.sequences import describe_unscored, encode, sum_log_probs

BOS, EOS = 1, 2
characters = SimpleNamespace(bos=BOS, eos=EOS, encode_batch=lambda texts: [[ord(c) for c in text] for text in texts])

SPACE, A, B = ord(" "), ord("a"), ord("b")


@pytest.mark.parametrize(
    "scoring, ab, a, empty",
    [
        ("paper", [BOS, A, B, EOS], [BOS, A, EOS], [BOS, EOS]),
        ("no-eos", [BOS, A, B], [BOS, A], [BOS]),
        ("lm-eval", [BOS, SPACE, A, B], [BOS, SPACE, A], [BOS, SPACE]),
        ("babylm", [A, B], [A], []),
    ],
)
def test_ids_of_each_convention(scoring, ab, a, empty):
    sequences = encode(["ab", "a", ""], characters, scoring)
    assert [ids.tolist() for ids in sequences] == [ab, a, empty]
    assert all(ids.dtype == np.int32 for ids in sequences)


def test_sentences_of_one_token_are_not_scored_without_bos():
    lines = [describe_unscored(encode(["a", "ab", "b"], characters, each), each) for each in ("babylm", "no-eos")]
    assert (
        lines[0].startswith("2 of 3 sentences are empty or one token, which babylm does not score") and lines[1] is None
    )


def test_empty_sentences_are_not_scored_without_eos():
    """Their log-probability is 0, whatever the model is."""
    lines = [describe_unscored(encode(["", "ab"], characters, each), each) for each in ("babylm", "no-eos", "paper")]
    assert lines[1].startswith("1 of 2 sentences are empty, which no-eos does not score: their log-probability is 0")
    assert lines[0].startswith("1 of 2 sentences are empty or one token") and lines[2] is None


def test_lines_with_their_ends_are_warned_of():
    """As `readlines` gives them: the line end would be a token of each sentence."""
    with pytest.warns(UserWarning, match="^1 sentences, first 1, end in a line end, which the model reads as a token"):
        encode(["a", "b\n"], characters, "paper")
    encode(["a\nb"], characters, "paper")


@pytest.mark.parametrize("character", "\ufeff\u200b\u200e\u00ad\ufffd")
def test_characters_that_nobody_sees_are_warned_of(character):
    with pytest.warns(UserWarning, match=rf"^1 sentences, first 1, hold .* U\+{ord(character):04X} \("):
        encode(["a", f"{character}b"], characters, "paper")


@pytest.mark.parametrize(
    "given, line",
    [
        ("The cats sleep.", "sentences is one text: give a list of texts"),
        (["The cats sleep.", None], "sentence 1 is NoneType: give a text"),
        ([[1, 2]], "sentence 0 is list: give a text"),
    ],
)
def test_what_is_no_list_of_texts_is_refused(given, line):
    with pytest.raises(InputError) as error:
        encode(given, characters, "paper")
    assert str(error.value) == line


def bigram(sequences):
    """A made-up log p(next | last) = -(last + next / 1000)."""
    return [-(ids[:-1] + ids[1:] / 1000) for ids in sequences]


@pytest.mark.parametrize(
    "scoring, expected",
    [
        ("paper", -(BOS + A / 1000) - (A + B / 1000) - (B + EOS / 1000)),
        ("no-eos", -(BOS + A / 1000) - (A + B / 1000)),
        ("lm-eval", -(BOS + SPACE / 1000) - (SPACE + A / 1000) - (A + B / 1000)),
        ("babylm", -(A + B / 1000)),
    ],
)
def test_log_prob_sums_everything_after_the_first_id(scoring, expected):
    [found] = sum_log_probs(bigram(encode(["ab"], characters, scoring)))
    assert found == pytest.approx(expected, rel=1e-15)


def test_sentences_with_nothing_to_score_have_log_probability_zero():
    sequences = encode(["", "a", "ab"], characters, "babylm")
    assert [len(ids) for ids in sequences] == [0, 1, 2]
    assert sum_log_probs(bigram(sequences)).tolist() == [0.0, 0.0, -(A + B / 1000)]


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


def test_gpt2_ids(data):
    from esnlm.data.tokenizer import load_tokenizer

    gpt2 = load_tokenizer(data / "gpt2_bpe")
    the, space_the, dog, end = 464, 383, 3290, 50256
    assert encode(["The dog"], gpt2, "paper")[0].tolist() == [end, the, dog, end]
    assert encode(["The dog"], gpt2, "no-eos")[0].tolist() == [end, the, dog]
    assert encode(["The dog"], gpt2, "lm-eval")[0].tolist() == [end, space_the, dog]
    assert encode(["The dog"], gpt2, "babylm")[0].tolist() == [the, dog]
    assert end not in encode(["<|endoftext|>"], gpt2, "babylm")[0]  # written out, it is ordinary text
