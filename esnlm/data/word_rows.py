"""Tables with a row a word, as reading times are published: which neighbouring rows make a sentence."""

import re
import unicodedata
from collections.abc import Callable, Container, Hashable, Sequence
from itertools import groupby

from esnlm.data.tables import Table
from esnlm.errors import require
from esnlm.io.console import counted

# Unicode's categories of marks that stand beside a word without a space: brackets, quotation marks, full stops and their like.
# Dashes (Pd) are not among them, and neither are SIGNS, which stand for words.
MARKS, SIGNS = {"Ps", "Pe", "Pi", "Pf", "Po"}, set("&@#%*/\\")
ENDING = re.compile(r"n['\u2019]t|['\u2019](s|re|ve|ll|d|m)", re.IGNORECASE)  # of the English word before it
OFTEN = 0.05  # [ours] of the words, the same as the one before it in its sentence: far more than in any text


def read_words(table: Table, column: str) -> list[str]:
    """Returns the word of each row, without white space at its ends.

    Raises:
        InputError: There is no such column, a row has no word, or a cell goes over a line end or a tab.
    """
    words = [cell.strip() for cell in table.texts(column)]
    for line, word in zip(table.lines, words, strict=True):
        require(bool(word), f"{table.name}:{line}: no word in column {column!r}: leave the row out")
    return words


def group_rows(keys: Sequence[Hashable]) -> list[range]:
    """Returns the rows of each sentence, or document: neighbours with one key.

    Args:
        keys: n values, one a row.
    """
    found: list[range] = []
    for _, rows in groupby(range(len(keys)), lambda row: keys[row]):
        first, *others = rows
        found.append(range(first, first + 1 + len(others)))
    return found


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
    words: Sequence[str], sentences: Sequence[range], keys: Sequence[Hashable] | None, after_blank: Container[int] = ()
) -> list[str]:
    """Returns a line for each thing about the rows that may not be as it was meant.

    Args:
        words: n words.
        sentences: the rows of each sentence.
        keys: what told the sentences apart, one a row; None: they were split.
        after_blank: the rows with a blank line before them.
    """
    found = []
    apart = [word for word in words if _belongs_to_a_word(word)]
    if apart:
        found.append(
            f"a punctuation mark, or the ending of a word, stands alone in {counted(len(apart), 'row')}, such as {apart[0]!r}: it is scored"
            " with a space before it, which running text does not have; to score it as running text, put it in the row of its word"
        )
    blank = sum(row in after_blank for rows in sentences for row in rows[1:])
    if blank:
        told = (
            "a blank line ends none here; name with --sentence what all words of a sentence share"
            if keys is None
            else "the words on both sides have the same name; where a sentence ends there, name a column that tells the two apart,"
            " too (--sentence DOCUMENT SENTENCE)"
        )
        found.append(f"{counted(blank, 'blank line')} in the midst of a sentence: {told}")
    again = sum(words[row] == words[row - 1] for rows in sentences for row in rows[1:])
    if again > OFTEN * len(words):
        found.append(
            f"a word is the same as the one before it in {counted(again, 'row')}: a table with a row for each reader of a word is scored as if all were one"
            " text; keep one row a word"
        )
    copied = sum(_begins_again([words[row] for row in rows]) for rows in sentences)
    if copied > OFTEN * len(sentences):
        found.append(
            f"the first words of {counted(copied, 'sentence')} come again, in the same order: where those are the rows of several readers,"
            " they are read as one sentence; name the column of readers with --sentence, too, or keep one row a word"
        )
    if keys is not None:
        if len(sentences) == len(words) > 1:
            found.append("each row is a sentence of its own: name with --sentence what all words of a sentence share")
        elif more := len(sentences) - len({keys[rows.start] for rows in sentences}):
            found.append(
                f"{counted(more, 'sentence')} came earlier under the same name, and other rows lie between: where names begin anew in each"
                " document, name its column too (--sentence DOCUMENT SENTENCE); else sort the rows in the order of reading"
            )
    return found


def _begins_again(words: Sequence[str]) -> bool:
    """Tells whether the first three words of a sentence come again in it, or all of a shorter half."""
    first = list(words[:3])
    again = any(list(words[i : i + 3]) == first for i in range(1, len(words) - 2))
    half = len(words) // 2
    return again or (half > 1 and list(words[:half]) == list(words[half:]))


def _belongs_to_a_word(word: str) -> bool:
    """Tells whether a row holds what running text writes together with the word before or after it."""
    is_mark = all(unicodedata.category(each) in MARKS and each not in SIGNS for each in word)
    return is_mark or ENDING.fullmatch(word) is not None
