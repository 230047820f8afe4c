"""Which characters belong to which token and word: by hand, and for any text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esnlm.data.tokenizer import train_bpe, word_tokenizer
from esnlm.evaluation.surprisal import begins_word, join_words, owners, token_spans, word_spans

WORDS = word_tokenizer(["The", " cats", " sleep"])
BPE = train_bpe(["The cats sleep in the house. " * 3, "Zoë naïve 日本語 日本語 😀😀 " * 3], 300)
TEXT = st.text(st.sampled_from("Tthe caz.,'\"-()ë日本😀\u0301 \u3000\t\n\u00a0"), max_size=40)


def covered(text, spans):
    return [text[start:end] for start, end in spans]


def test_a_token_has_the_space_before_it():
    text = "The cats  sleep."
    assert covered(text, token_spans(text, WORDS.encode(text), WORDS)) == [
        "The",
        " cats",
        " ",
        " sleep",
        ".",
    ]


def test_words_stand_between_white_space():
    text = '  "Don\'t\u3000stop," she\tsaid ...'
    assert covered(text, word_spans(text)) == ["\"Don't", 'stop,"', "she", "said", "..."]
    assert covered(text, word_spans(text, "separate")) == [
        '"',
        "Don't",
        "stop",
        ',"',
        "she",
        "said",
        "...",
    ]
    assert word_spans(" \n") == [] == word_spans("", "separate")


def test_white_space_belongs_to_the_word_that_it_begins():
    text = " T  cats "
    tokens = token_spans(text, WORDS.encode(text), WORDS)
    assert covered(text, tokens) == [" ", "T", " ", " cats", " "]
    assert owners(tokens, word_spans(text)) == [0, 0, 1, 1, 1]


def test_words_that_share_a_token_are_one():
    text = "(that is)"
    tokens = [(0, 1), (1, 7), (7, 9)]  # "(", "that i", "s)"
    assert covered(text, join_words(tokens, word_spans(text))) == ["(that is)"]
    assert covered(text, join_words(tokens, word_spans(text, "separate"))) == ["(", "that is)"]


@pytest.mark.parametrize(
    "token, begins",
    [(b" a", True), (b"\n", True), (b"a ", False), (b"\xe3\x80\x80", True), (b"\xe3", False)],
)
def test_which_tokens_end_the_word_before(token, begins):
    assert begins_word(token) == begins


@pytest.mark.parametrize("tokenizer", [WORDS, BPE], ids=["words", "bpe"])
@pytest.mark.parametrize("punctuation", ["attached", "separate"])
@given(TEXT)
def test_any_text_is_covered_in_order(tokenizer, punctuation, text):
    ids = tokenizer.encode(text)
    tokens = token_spans(text, ids, tokenizer)
    for (start, end), i in zip(tokens, ids, strict=True):
        assert tokenizer.decode_bytes([i]) in text[start:end].encode() and start < end
    assert tokens == sorted(tokens) and {c for a, b in tokens for c in range(a, b)} == set(
        range(len(text))
    )
    words = word_spans(text, punctuation)
    assert [c for start, end in words for c in range(start, end)] == [
        c for c, x in enumerate(text) if not x.isspace()
    ]
    if words:
        joined = join_words(tokens, words)
        found = owners(tokens, joined)
        assert found == sorted(found) and set(found) == set(range(len(joined)))
        for (start, end), word in zip(tokens, found, strict=True):
            assert text[start:end].isspace() or joined[word][0] <= start + len(
                text[start:end]
            ) - len(text[start:end].lstrip())
            assert text[start:end].isspace() or end <= joined[word][1]
