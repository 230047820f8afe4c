"""Tables with a row a word, as reading times are published: which neighbouring rows make a sentence."""

from collections.abc import Callable, Hashable, Sequence
from itertools import groupby

from esnlm.data.tables import Table
from esnlm.errors import InputError


def read_words(table: Table, column: str) -> list[str]:
    """Returns the word of each row, without white space at its ends. Raises InputError if a row has none."""
    words = [cell.strip() for cell in table.texts(column)]
    for line, word in zip(table.lines, words, strict=True):
        if not word:
            raise InputError(f"{table.name}:{line}: no word in column {column!r}: leave the row out")
    return words


def group_rows(keys: Sequence[Hashable]) -> list[range]:
    """Returns the rows of each sentence, or document: neighbours with one key, of which each row has one."""
    groups = [list(rows) for _, rows in groupby(range(len(keys)), lambda row: keys[row])]
    return [range(rows[0], rows[-1] + 1) for rows in groups]


def split_rows(words: Sequence[str], documents: Sequence[range], split: Callable[[str], list[str]]) -> list[range]:
    """Returns the rows of each sentence of documents, by a function from a text to its sentences, between which is white space only.

    A word belongs to the sentence that its first character is in.
    """
    found: list[range] = []
    for document in documents:
        text, end, ends = " ".join(words[row] for row in document), 0, []
        for sentence in split(text):
            end = text.index(sentence, end) + len(sentence)
            ends.append(end)
        number, position, numbers = 0, 0, []  # of the sentence; of the word's first character; of each word's sentence
        for row in document:
            while position >= ends[number]:
                number += 1
            numbers.append(number)
            position += len(words[row]) + 1
        found += [range(document.start + rows.start, document.start + rows.stop) for rows in group_rows(numbers)]
    return found
