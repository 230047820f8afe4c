"""The input of `esnlm score --tokens`: a text, or a table with one sentence or word per row."""

import argparse
from bisect import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from typing import Any

from esnlm.base.console import counted, info, warn
from esnlm.base.errors import InputError
from esnlm.data.sentences import load_punkt, punkt_splitter
from esnlm.data.tables import Table, read_table
from esnlm.data.text_files import read_lines
from esnlm.evaluation.surprisal import JoinedSentence, join, separator_of

POSITIONS = ("word_number", "ia_id", "zone", "position")  # columns of positions, in lower case
NO_SPACE = ("no", "false", "0", "0.0", "0,0")  # in lower case


@dataclass(frozen=True)
class InputText:
    """The sentences to score, and the cells that the output copies."""

    sentences: list[Any]  # texts, or lists of words
    documents: list[Any]  # of each sentence
    cells: list[dict[str, str]]  # of each sentence or, with `rows`, of each row of the table
    rows: list[list[int]] | None = None  # of each sentence in a table with one word per row
    spaces: list[list[bool]] | None = None  # whether a space follows each word


def read_input(args: argparse.Namespace) -> InputText:
    """Reads the text that the options of `esnlm score` describe."""
    if args.word is not None:
        return _read_words(args)
    if args.sentence or args.position or args.space_after or args.separator is not None:
        raise InputError(
            "--sentence, --position, --separator and --space-after are for tables with one word per"
            " row: give --word"
        )
    if args.column is not None:
        return _read_sentences(args)
    lines = read_lines(args.input)
    documents = list(accumulate(not line for line in lines))  # a blank line ends a document
    return InputText(lines, documents, [{} for _ in lines] or [{}])


def _read_sentences(args: argparse.Namespace) -> InputText:
    """Reads a table with one sentence per row."""
    table = read_table(args.input, args.quotes, "--no-quotes")
    texts = table.texts(args.column)
    if len(texts) > 1 and separator_of(texts) and all(len(text.split()) < 2 for text in texts):
        warn(
            f"{table.name}: each row has one word, scored as a sentence; give --word if rows are"
            " words of sentences"
        )
    cells = [{k: cell for k, cell in row.items() if k != args.column} for row in table.rows]
    return InputText(texts, table.keys(args.document), cells)


def _read_words(args: argparse.Namespace) -> InputText:
    """Reads a table with one word per row."""
    table = read_table(args.input, args.quotes, "--no-quotes")
    words = [cell.strip() for cell in table.texts(args.word)]
    if "" in words:
        line = table.lines[words.index("")]
        raise InputError(f"{table.name}:{line}: no word in column {args.word!r}: leave the row out")
    spaces = None if args.space_after is None else _read_spaces(table, args.space_after)
    documents = table.keys(args.document)
    sentences = _order_rows(table, [*args.document, *args.sentence], args.position)
    if not args.sentence:
        sentences = _split_by_punkt(words, spaces, sentences, args.language)
    info(
        f"{counted(len(words), 'word')} in {counted(len(sentences), 'sentence')}, the longest of"
        f" {max(map(len, sentences))}"
    )
    return InputText(
        sentences=[[words[row] for row in rows] for rows in sentences],
        documents=[documents[rows[0]] for rows in sentences],
        cells=table.rows,
        rows=sentences,
        spaces=None if spaces is None else [[spaces[row] for row in rows] for rows in sentences],
    )


def _read_spaces(table: Table, column: str) -> list[bool]:
    """Returns whether a space follows the word of each row: not if the cell is No or has
    SpaceAfter=No."""
    cells = [cell.strip().lower() for cell in table.column(column)]
    spaces = [cell not in NO_SPACE and "spaceafter=no" not in cell.split("|") for cell in cells]
    if all(spaces):
        raise InputError(
            f"{table.name}: no cell of column {column!r} says that no space follows its word: write"
            " No, False, 0 or SpaceAfter=No there, or leave out --space-after"
        )
    return spaces


def _order_rows(table: Table, columns: Sequence[str], position: str | None) -> list[list[int]]:
    """Returns the rows of each sentence (neighbours that agree in `columns`) by position."""
    keys = table.keys(columns)
    sentences = [list(rows) for _, rows in groupby(range(len(keys)), keys.__getitem__)]
    names = {name.lower(): name for name in table.rows[0] if name not in columns}
    name = position or next((names[each] for each in POSITIONS if each in names), "none")
    if name == "none":
        return sentences
    try:
        positions = list(map(int, table.numbers(name)))
    except ValueError as error:
        if position is None:
            return sentences
        raise InputError(
            f"{table.name}: column {name!r} does not hold positions of words: {error}"
        ) from None
    if len(set(keys)) < len(sentences) and len(keys) < 2 * len(sentences):
        # The rows of a sentence are scattered over the table.
        rows_of: dict[tuple[str, ...], list[int]] = {}
        for row, key in enumerate(keys):
            rows_of.setdefault(key, []).append(row)
        sentences = list(rows_of.values())
    for rows in sentences:
        rows.sort(key=positions.__getitem__)
        for before, row in pairwise(rows):
            if positions[before] == positions[row]:
                raise InputError(
                    f"{table.name}:{table.lines[row]}: {name} {positions[row]} occurs twice in a"
                    " sentence: name all columns that identify sentences and documents (readers,"
                    " too), or another --position, or --position none"
                )
    if moved := sum(rows != sorted(rows) for rows in sentences):
        info(
            f"{counted(moved, 'sentence')} not in the order of {name}: scored in that order; rows"
            " keep their places"
        )
    return sentences


def _split_by_punkt(
    words: Sequence[str],
    spaces: Sequence[bool] | None,
    documents: Sequence[Sequence[int]],
    language: str,
) -> list[list[int]]:
    """Returns the rows of each sentence, from those of each document."""
    if not separator_of(words):
        raise InputError(
            "Punkt finds no end of a sentence in a script without spaces: give --sentence"
        )
    if (parameters := load_punkt(language)) is None:
        raise InputError(f"no Punkt data for {language}: get NLTK's punkt_tab, or give --sentence")
    split = punkt_splitter(parameters)
    sentences = []
    for rows in documents:
        separators = [" " if spaces is None or spaces[row] else "" for row in rows]
        joined = join([words[row] for row in rows], separators)
        numbers = dict(zip(rows, sentence_numbers(joined, split), strict=True))
        sentences += [list(part) for _, part in groupby(rows, numbers.__getitem__)]
    return sentences


def sentence_numbers(joined: JoinedSentence, split: Callable[[str], list[str]]) -> list[int]:
    """Returns the number of the sentence that has the first character of each word.

    `split` splits a text into sentences.
    """
    text, ends = joined.text, [0]
    for sentence in split(text):
        ends.append(text.index(sentence, ends[-1]) + len(sentence))
    return [bisect(ends, start) for start, _ in joined.words or []]
