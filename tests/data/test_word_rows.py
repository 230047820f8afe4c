"""Rows of words joined to sentences: by what they share, or by their marks."""

import re

import pytest

from esnlm.data.tables import read_table
from esnlm.data.word_rows import find_doubts, group_rows, read_words, split_rows
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


def doubts(folder, words, sentences, keys):
    return find_doubts(table(folder, "word\n" + "\n".join(words) + "\n"), words, sentences, keys)


def test_what_may_not_be_meant_is_told(tmp_path):
    words = ["The", "cats", "sleep", ".", "The", "cats", "run"]
    both = [range(0, 4), range(4, 7)]
    assert doubts(tmp_path, STORY, [range(0, 9)], None) == []
    (marks,) = doubts(tmp_path, words, both, [0] * 4 + [1] * 3)
    assert marks.startswith("a punctuation mark, or the ending of a word, stands alone in 1 row, such as '.'")
    (alone,) = doubts(tmp_path, ["The", "cats"], [range(0, 1), range(1, 2)], [0, 1])
    assert alone.startswith("each row is a sentence of its own")
    copied = [*STORY[:4], *STORY[:4], *STORY[:4]]  # as a table sorted by item, then by reader
    for words in (copied, ["The", "The", "cats", "cats"]):
        (readers,) = doubts(tmp_path, words, [range(0, len(words))], [0] * len(words))
        assert readers.startswith("words, or the beginnings of sentences, come again within a sentence")
    (again,) = doubts(tmp_path, STORY, [range(0, 3), range(3, 6), range(6, 9)], [1, 1, 1, 2, 2, 2, 1, 1, 1])
    assert again.startswith("1 sentence came earlier under the same name")


@pytest.mark.parametrize("word", [".", "?!", ")", "\u201d", "\u2026", "\u3002", "(", "n't", "'s", "\u2019ll"])
def test_what_running_text_writes_together_is_told(tmp_path, word):
    (found,) = doubts(tmp_path, ["He", "does", word, "sleep"], [range(0, 4)], [0] * 4)
    assert f"stands alone in 1 row, such as {word!r}" in found


@pytest.mark.parametrize("word", ["--", "\u2013", "&", "%", "$5", "Dr.", "'em", "n", "I'm"])
def test_what_running_text_writes_apart_is_not_told(tmp_path, word):
    assert doubts(tmp_path, ["He", "does", word, "sleep"], [range(0, 4)], [0] * 4) == []


def test_a_blank_line_ends_no_sentence_and_is_told(tmp_path):
    found = table(tmp_path, "word\nThe\ncats\nsleep\n\nDogs\nbark\n")
    words = read_words(found, "word")
    (line,) = find_doubts(found, words, [range(0, 5)], None)
    assert line.startswith("1 blank line in the midst of a sentence, which it does not end")
    assert find_doubts(found, words, [range(0, 3), range(3, 5)], [1, 1, 1, 2, 2]) == []
