"""Rows of words joined to sentences: by what they share, or by their marks."""

import re

import pytest

from esnlm.data.tables import read_table
from esnlm.data.word_rows import group_rows, read_words, split_rows
from esnlm.errors import InputError

STORY = ["The", "cats", "sleep.", "Dr.", "Who", "runs.", "The", "dog", "barks"]


def table(folder, text, **options):
    (folder / "words.tsv").write_text(text)
    return read_table(folder / "words.tsv", **options)


def split(text):
    """Sentences end at a period, but not behind Dr."""
    return re.findall(r"(?:Dr\.|[^.])+\.?(?=\s|$)", text.strip())


def rows(found):
    return [list(each) for each in found]


def test_neighbours_of_one_key_are_one_sentence():
    assert rows(group_rows(["a", "a", "b", "a"])) == [[0, 1], [2], [3]]
    assert group_rows([]) == []


def test_words_are_split_where_their_text_is():
    sentences = split_rows(STORY, [range(0, 9)], lambda text: [each.strip() for each in split(text)])
    assert [" ".join(STORY[row] for row in its) for its in sentences] == [
        "The cats sleep.",
        "Dr. Who runs.",
        "The dog barks",
    ]


def test_the_end_of_a_document_ends_a_sentence():
    assert rows(split_rows(STORY, [range(0, 2), range(2, 9)], lambda text: [text])) == [[0, 1], list(range(2, 9))]


def test_a_cell_of_several_words_is_whole():
    """The sentence that ends within a cell takes all of it."""
    words = ["It ended. Then", "it began."]
    assert rows(split_rows(words, [range(0, 2)], lambda text: ["It ended.", "Then it began."])) == [[0], [1]]


def test_words_have_no_white_space_around_them(tmp_path):
    assert read_words(table(tmp_path, "word\trt\n The\t1\ncats \t2\n"), "word") == ["The", "cats"]


def test_a_row_without_a_word_is_named(tmp_path):
    with pytest.raises(InputError, match="words.tsv:3: no word in column 'word': leave the row out"):
        read_words(table(tmp_path, "word\trt\nThe\t1\n \t2\n"), "word")


def test_quotation_marks_may_be_a_part_of_words(tmp_path):
    found = table(tmp_path, 'word\trt\nHe\t1\n"You\t2\nsaid"\t3\n', quotes=False)
    assert read_words(found, "word") == ["He", '"You', 'said"'] and found.column("rt") == ["1", "2", "3"]
