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


@pytest.mark.parametrize(
    "text, line",
    [
        ("word\trt\nThe\t1\n \t2\n", ":3: no word in column 'word': leave the row out"),
        (
            'word\n"You\nsaid"\n',
            ":2: a line end or a tab in 'You\\nsaid': where quotation marks are a part of the text, double them (esnlm score takes"
            " them as they are with --no-quotes); else write a space in its place",
        ),
    ],
)
def test_what_is_no_word_is_told_with_its_line(tmp_path, text, line):
    with pytest.raises(InputError) as error:
        read_words(table(tmp_path, text), "word")
    assert str(error.value) == f"{tmp_path / 'words.tsv'}{line}"


def test_quotation_marks_may_be_a_part_of_words(tmp_path):
    found = table(tmp_path, 'word\trt\nHe\t1\n"You\t2\nsaid"\t3\n', quotes=False)
    assert read_words(found, "word") == ["He", '"You', 'said"'] and found.column("rt") == ["1", "2", "3"]


def test_what_may_not_be_meant_is_told():
    words = ["The", "cats", "sleep", ".", "The", "cats", "run"]
    both = [range(0, 4), range(4, 7)]
    assert find_doubts(STORY, [range(0, 9)], None) == []
    (marks,) = find_doubts(words, both, [0] * 4 + [1] * 3)
    assert marks.startswith("a punctuation mark, or the ending of a word, stands alone in 1 row, such as '.'")
    (twice,) = find_doubts(["The", "The", "cats", "cats"], [range(0, 4)], [0] * 4)
    assert twice.startswith("a word is the same as the one before it in 2 rows: a table with a row for each reader")
    (alone,) = find_doubts(["The", "cats"], [range(0, 1), range(1, 2)], [0, 1])
    assert alone.startswith("each row is a sentence of its own")
    copied = [*STORY[:4], *STORY[:4], *STORY[:4]]  # as a table sorted by item, then by reader
    (readers,) = find_doubts(copied, [range(0, 12)], [0] * 12)
    assert readers.startswith(
        "the first words of 1 sentence come again, in the same order: where those are the rows of several"
    )
    (again,) = find_doubts(STORY, [range(0, 3), range(3, 6), range(6, 9)], [1, 1, 1, 2, 2, 2, 1, 1, 1])
    assert again.startswith("1 sentence came earlier under the same name")


@pytest.mark.parametrize("word", [".", "?!", ")", "\u201d", "\u2026", "\u3002", "(", "n't", "'s", "\u2019ll"])
def test_what_running_text_writes_together_is_told(word):
    (found,) = find_doubts(["He", "does", word, "sleep"], [range(0, 4)], [0] * 4)
    assert f"stands alone in 1 row, such as {word!r}" in found


@pytest.mark.parametrize("word", ["--", "\u2013", "&", "%", "$5", "Dr.", "'em", "n", "I'm"])
def test_what_running_text_writes_apart_is_not_told(word):
    assert find_doubts(["He", "does", word, "sleep"], [range(0, 4)], [0] * 4) == []


def test_a_blank_line_ends_no_sentence_and_is_told(tmp_path):
    found = table(tmp_path, "word\nThe\ncats\nsleep\n\nDogs\nbark\n")
    words = read_words(found, "word")
    (line,) = find_doubts(words, [range(0, 5)], None, found.after_blank)
    assert line.startswith("1 blank line in the midst of a sentence: a blank line ends none here; name with --sentence")
    assert find_doubts(words, [range(0, 3), range(3, 5)], None, found.after_blank) == []
    (line,) = find_doubts(words, [range(0, 5)], [1] * 5, found.after_blank)
    assert line.startswith("1 blank line in the midst of a sentence: the words on both sides have the same name;")
    assert find_doubts(words, [range(0, 3), range(3, 5)], [1, 1, 1, 2, 2], found.after_blank) == []


def test_a_cell_that_goes_over_a_line_end_is_no_blank_line(tmp_path):
    found = table(tmp_path, 'word\tnote\nThe\t"a\nb"\ncats\t\nsleep\t\n')
    assert found.lines == [2, 4, 5]
    assert find_doubts(read_words(found, "word"), [range(0, 3)], [1] * 3, found.after_blank) == []
