"""Tables with a row a word, as reading times are published: which neighbouring rows make a sentence."""

import re
import unicodedata
from collections.abc import Callable, Hashable, Sequence
from itertools import groupby

from esnlm.data.tables import Table
from esnlm.errors import InputError
from esnlm.io.console import counted

# Unicode's categories of marks that stand beside a word without a space: brackets, quotation marks, full stops and their like.
# Dashes (Pd) are not among them, and neither are SIGNS, which stand for words.
MARKS, SIGNS = {"Ps", "Pe", "Pi", "Pf", "Po"}, set("&@#%*/\\")
ENDING = re.compile(r"n['\u2019]t|['\u2019](s|re|ve|ll|d|m)", re.IGNORECASE)  # of the English word before it
OFTEN = 0.05  # [ours] of the words, the same as the one before it in its sentence: far more than in any text


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
    """Returns the rows of each sentence of documents. A word belongs to the sentence that its first character is in.

    Args:
        words: n words, one a row.
        documents: the rows of each document.
        split: from a text to its sentences, in order; between them is white space only.
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


def find_doubts(
    table: Table, words: Sequence[str], sentences: Sequence[range], keys: Sequence[Hashable] | None
) -> list[str]:
    """Returns a line for each thing about the rows that may not be as it was meant.

    Args:
        table: the table.
        words: its n words.
        sentences: the rows of each sentence.
        keys: what told the sentences apart, one a row; None: they were split.
    """
    found = []
    apart = [word for word in words if _belongs_to_a_word(word)]
    if apart:
        found.append(
            f"a punctuation mark, or the ending of a word, stands alone in {counted(len(apart), 'row')}, such as {apart[0]!r}: it is"
            " scored with a space before it, which running text does not have; put it in the row of its word"
        )
    inner = [row for rows in sentences for row in rows[1:]]
    blank = sum(table.is_after_blank(row) for row in inner)
    if blank:
        found.append(
            f"{counted(blank, 'blank line')} in the midst of a sentence, which it does not end: name its columns with --sentence"
        )
    again = sum(words[row] == words[row - 1] for row in inner)
    copied = sum(_begins_again([words[row] for row in rows]) for rows in sentences)
    if again > OFTEN * len(words) or copied > OFTEN * len(sentences):
        found.append(
            "words, or the beginnings of sentences, come again within a sentence: rows of several readers are scored as one text; name"
            " the column of readers with --sentence, too, or keep one row a word"
        )
    if keys is not None:
        if len(sentences) == len(words) > 1:
            found.append("each row is a sentence of its own: name with --sentence what all words of a sentence share")
        elif more := len(sentences) - len({keys[rows.start] for rows in sentences}):
            found.append(
                f"{counted(more, 'sentence')} came earlier under the same name, and other rows lie between: name the column of documents,"
                " too (--sentence DOCUMENT SENTENCE), or sort the rows in the order of reading"
            )
    return found


def _begins_again(words: Sequence[str]) -> bool:
    """Tells whether the first three words of a sentence come again in it, or all of a shorter half."""
    first, half = list(words[:3]), len(words) // 2
    again = any(list(words[i : i + 3]) == first for i in range(1, len(words) - 2))
    return again or (half > 1 and list(words[:half]) == list(words[half:]))


def _belongs_to_a_word(word: str) -> bool:
    """Tells whether a row holds what running text writes together with the word before or after it."""
    is_mark = all(unicodedata.category(each) in MARKS and each not in SIGNS for each in word)
    return is_mark or ENDING.fullmatch(word) is not None
