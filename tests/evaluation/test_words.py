"""Words: their characters and tokens by hand and in any text, the documents and sentences of a
table, and frequencies against counts by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esnlm.base.errors import InputError
from esnlm.data.encode import encode_sentences
from esnlm.data.tables import table_of
from esnlm.data.tokenizer import train_bpe, word_tokenizer
from esnlm.evaluation import words
from esnlm.evaluation.surprisal import begins_word
from esnlm.evaluation.words import (
    assign_tokens,
    count_forms,
    join,
    log_frequencies,
    merge_shared,
    read_words,
    sentence_numbers,
    token_spans,
    word_form,
    word_spans,
)

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
    assert assign_tokens(word_spans(text), tokens) == [range(2), range(2, 5)]


def test_words_that_share_a_token_are_one():
    text = "(that is)"
    tokens = [(0, 1), (1, 7), (7, 9)]  # "(", "that i", "s)"
    owned = assign_tokens(word_spans(text), tokens)
    assert owned == [range(3), None]
    assert covered(text, merge_shared(word_spans(text), owned)) == ["(that is)"]
    words = word_spans(text, "separate")  # "(", "that", "is", ")"
    owned = assign_tokens(words, tokens)
    assert owned == [range(1), range(1, 3), None, None]
    assert covered(text, merge_shared(words, owned)) == ["(", "that is)"]


def test_a_word_that_the_tokenizer_leaves_out_has_no_tokens():
    words, tokens = [(0, 3), (4, 8), (9, 14)], [(0, 3), (9, 14)]
    assert assign_tokens(words, tokens) == [range(1), range(1, 1), range(1, 2)]


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
        owned = assign_tokens(words, tokens)
        ranges = [numbers for numbers in owned if numbers is not None]
        assert [i for numbers in ranges for i in numbers] == list(range(len(tokens)))
        for (first, last), numbers in zip(merge_shared(words, owned), ranges, strict=True):
            assert len(numbers) > 0
            for start, end in (tokens[i] for i in numbers):
                blanks = len(text[start:end]) - len(text[start:end].lstrip())
                assert text[start:end].isspace() or first <= start + blanks < end <= last


def read(rows, document=(), sentence=(), position=None, space_after=None):
    return read_words(table_of(rows), "word", document, sentence, position, space_after, "english")


def rows_of(columns, *cells):
    return [dict(zip(columns.split(), row.split(), strict=True)) for row in cells]


@pytest.fixture
def split_by(monkeypatch):
    """Sets the sentences into which Punkt splits any text."""

    def split(sentences):
        monkeypatch.setattr(words, "load_punkt", lambda language: language)
        monkeypatch.setattr(words, "punkt_splitter", lambda parameters: lambda text: sentences)

    return split


@pytest.mark.parametrize(
    "words, sentences, numbers",
    [
        (["Dr.", "Who", "runs.", "It", "barks"], ["Dr. Who runs.", "It barks"], [1, 1, 1, 2, 2]),
        (
            ["It ended. Then", "it began."],
            ["It ended.", "Then it began."],
            [1, 2],
        ),  # a cell is whole
    ],
)
def test_a_word_is_in_the_sentence_of_its_first_character(words, sentences, numbers):
    joined = join(words, [" "] * len(words))
    assert sentence_numbers(joined, lambda text: sentences) == numbers


@pytest.mark.parametrize(
    "sentences, expected",
    [
        (["'It is over!'", "he announced."], [[0, 1, 2, 3, 4]]),
        (["“Is it?”", "she asked.", "He left."], [[0, 1, 2, 3], [4, 5]]),
        (["He said: »Why …?«", "and left."], [[0, 1, 2, 3, 4, 5]]),
        # a new sentence begins with a capital, or after a mark outside a quotation
        (["'It is over!'", "He announced it."], [[0, 1, 2], [3, 4, 5]]),
        (["It is over!", "he announced."], [[0, 1, 2], [3, 4]]),
    ],
)
def test_a_quotation_does_not_end_the_sentence_of_a_word_in_lower_case(
    split_by, sentences, expected
):
    split_by(sentences)
    rows = [{"word": word} for word in " ".join(sentences).split()]
    assert read(rows).documents == [expected]


def test_a_quotation_mark_may_have_its_row(split_by):
    split_by(['Why?"', "he said."])
    cells = rows_of("word space", "Why no", "? no", '" yes', "he yes", "said no", ". yes")
    assert read(cells, space_after="space").documents == [[[0, 1, 2, 3, 4, 5]]]


def test_sentences_that_begin_in_lower_case_are_reported(split_by, capsys):
    split_by(["It is over!", "he announced.", "He left."])
    rows = [{"word": word} for word in ["It", "is", "over!", "he", "announced.", "He", "left."]]
    read(rows)
    assert capsys.readouterr().err.splitlines() == [
        "7 words in 1 document and 3 sentences, the longest of 3 words",
        "1 sentence in lower case at the beginning, first 'he announced.' (the table, row 3): if"
        " Punkt is wrong, name columns that identify sentences (--sentence)",
    ]
    read([row | {"sentence": 1} for row in rows], sentence=["sentence"])  # as the user says
    assert "lower case" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "sentence, line",
    [
        (["s"], "the table, row 1: zone 1 occurs twice in a sentence: name all columns that"),
        ([], "the table, row 1: zone 1 occurs twice in a document: name all columns that identify"),
    ],
)
def test_positions_that_occur_twice_are_refused(sentence, line):
    rows = rows_of("s zone word", "1 1 The", "1 1 cats")
    with pytest.raises(InputError, match=f"^{line}"):
        read(rows, sentence=sentence)


@pytest.mark.parametrize("value", [None, float("nan")])
def test_a_row_without_a_word_or_a_document_is_refused(value):
    with pytest.raises(InputError, match=r"^the table, row 1: (None|nan) in column 'word': give"):
        read([{"word": "The"}, {"word": value}])
    with pytest.raises(InputError, match="^the table, row 0: no value in column 'item': give one"):
        read([{"word": "The", "item": value}], document=["item"])
    with pytest.raises(InputError, match="^the table, row 1: no word in column 'word': leave the"):
        read([{"word": "The"}, {"word": " "}])


SENTENCES = ["The cats sleep.", "“The” cats don't -- run!", "Über Übung?", "Zoë 😀 the", "end"]
TOKENIZER = train_bpe(SENTENCES * 3, 290)
COUNTS = {"the": 3, "cats": 2, "sleep": 1, "don't": 1, "run": 1, "über": 1, "übung": 1}
COUNTS |= {"zoë": 1, "end": 1}


@pytest.mark.parametrize("block", [1, 2, 5, 100])
def test_words_are_counted_by_their_forms_and_end_with_their_sentence(monkeypatch, block):
    monkeypatch.setattr(words, "BLOCK_SENTENCES", block)
    store = encode_sentences(SENTENCES, TOKENIZER)
    assert count_forms(store, TOKENIZER) == COUNTS


def test_frequencies_are_on_the_zipf_scale():
    """12 words of 9 forms: log10((c + 1) / (12 + 9) 10^6) + 3, also for a word that is unseen."""
    store = encode_sentences(SENTENCES, TOKENIZER)
    per_million = 1e6 / (12 + 9)
    expected = [math.log10((count + 1) * per_million) + 3 for count in (3, 1, 0)]
    assert log_frequencies(["the", "don't", "dogs"], store, TOKENIZER) == pytest.approx(expected)
    assert log_frequencies([""], store, TOKENIZER) == [None]


@pytest.mark.parametrize(
    "word, form",
    [("'Tis", "tis"), ("DOGS'", "dogs"), ("“well-known,”", "well-known"), ("--", ""), ("$5", "5")],
)
def test_a_form_has_no_punctuation_at_its_edges(word, form):
    assert word_form(word) == form
