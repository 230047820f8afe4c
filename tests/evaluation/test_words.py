"""The rows of a table of words as documents of sentences, in reading order."""

import pytest

from esnlm.base.errors import InputError
from esnlm.data.tables import table_of
from esnlm.evaluation import words
from esnlm.evaluation.surprisal import join
from esnlm.evaluation.words import read_words, sentence_numbers


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


def test_rows_in_any_order_are_read_by_their_positions(capsys):
    """The table is in alphabetical order, and positions count through a document."""
    text = ["The", "cats", "sleep.", "Dogs", "run."]
    words = [("a", s, i, word) for s, i, word in zip("11122", range(5), text, strict=True)]
    words += [("b", *row[1:]) for row in words]
    words.sort(key=lambda row: row[3])
    rows = [dict(zip(("story", "s", "zone", "word"), row, strict=True)) for row in words]
    for sentence, expected in ((["s"], [text[:3], text[3:]]), ([], [text])):
        table = table_of(rows)
        ordered = words_in_order(table, sentence)
        assert ordered == [expected, expected]
    assert "2 documents not in the order of zone: read in that order" in capsys.readouterr().err


def words_in_order(table, sentence):
    """Returns the words of each sentence of each document, without Punkt."""
    documents = words._order_rows(table, ["story"], sentence, None)
    return [[[table.rows[row]["word"] for row in rows] for rows in parts] for parts in documents]


def test_positions_that_begin_anew_leave_sentences_in_the_order_of_the_table():
    rows = rows_of("story s zone word", "a 2 1 The", "a 2 2 cats", "a 1 2 run.", "a 1 1 Dogs")
    assert words_in_order(table_of(rows), ["s"]) == [[["The", "cats"], ["Dogs", "run."]]]


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
