"""`esnlm score --tokens`: a table of the surprisals of a text, from the text to the written
files."""

import argparse
import dataclasses
import json
from bisect import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, groupby, pairwise
from pathlib import Path
from typing import Any

from esnlm import loaded_run
from esnlm.base.console import counted, say, tell, warn, working
from esnlm.base.errors import InputError
from esnlm.base.files import require_writable, spell_nonfinite, write_files
from esnlm.data.sentences import load_punkt, punkt_splitter
from esnlm.data.tables import Table, read_table
from esnlm.data.text_files import read_lines
from esnlm.evaluation.sequences import is_blank
from esnlm.evaluation.surprisal import JoinedSentence, Options, join, separator_of
from esnlm.reports import plots, surprisal_plot
from esnlm.reports.report import csv_table

SEPARATORS = {"tsv": "\t", "csv": ","}
POSITIONS = ("word_number", "ia_id", "zone", "position")  # columns of positions, in lower case
DECIMALS = 6
NO_SPACE = ("no", "false", "0", "0.0", "0,0")  # in lower case


@dataclass(frozen=True)
class InputText:
    """The sentences to score, and what the output copies of the input."""

    sentences: list[Any]  # texts, or lists of words
    documents: list[Any]  # of each sentence
    # copied to the output: of each sentence or, with `rows`, of each row of the table
    cells: list[dict[str, str]]
    rows: list[list[int]] | None = None  # of each sentence in a table with one word per row
    spaces: list[list[bool]] | None = None  # whether a space follows each word


def tabulate(asked: argparse.Namespace) -> None:
    """Scores the words of a text and prints or writes their table. Checks all input before it
    scores."""
    if asked.word is None and (
        asked.sentence or asked.position or asked.space_after or asked.separator is not None
    ):
        raise InputError(
            "--sentence, --position, --separator and --space-after are for tables with one word per"
            " row: give --word"
        )
    kind = asked.format or (
        "tsv" if asked.out is None else asked.out.suffix.lower().removeprefix(".")
    )
    if kind not in (*SEPARATORS, "jsonl"):
        raise InputError(f"{asked.out}: end the name in .tsv, .csv or .jsonl, or give --format")
    if asked.plot is not None and asked.plot.suffix.lower() not in plots.SUFFIXES:
        raise InputError(f"{asked.plot}: the name must end in {' or '.join(plots.SUFFIXES)}")
    for file in filter(None, (asked.out, asked.plot)):
        require_writable(file, asked.overwrite)
    options = Options(
        **{field.name: getattr(asked, field.name) for field in dataclasses.fields(Options)}
    )
    value = f"surprisal_{options.unit}"
    if asked.word is not None:  # one row per row of the input table
        options = dataclasses.replace(options, by="word", punctuation="attached", eos=False)
        text = _read_words(asked)
        columns = [value]
    else:
        text = _read_sentences(asked)
        columns = options.columns()
    if text.rows is None and all(map(is_blank, text.sentences)):
        raise InputError(f"{asked.input}: no sentence to score: the text is all white space")
    if twice := [name for name in columns if name in text.cells[0]]:
        raise InputError(
            f"{asked.input}: column {twice[0]!r} would appear twice in the table: rename it"
        )
    if not asked.quotes and kind in SEPARATORS:
        _check_unquoted(text, asked.input, kind)

    with working(f"loading {asked.run}"):
        loaded = loaded_run.load(asked.run, asked.step)
    rows = loaded.surprisal(
        text.sentences,
        context=asked.context,
        documents=text.documents if asked.context == "document" else None,
        separator=asked.separator,
        spaces=text.spaces,
        progress="brief",
        **dataclasses.asdict(options),
    )
    if text.rows is not None:
        value_of = {number: row[value] for number, row in zip(chain(*text.rows), rows, strict=True)}
        table = [cells | {value: value_of[number]} for number, cells in enumerate(text.cells)]
        if shared := sum(each is None for each in value_of.values()):
            say(
                f"{counted(shared, 'empty cell')}: the word shares a token with the one before,"
                " which has both surprisals"
            )
    else:
        table = [row | text.cells[row["sentence"]] for row in rows]
    content, note = table_text(table, kind, asked.quotes), None
    contents: dict[Path, str | bytes] = {} if asked.out is None else {asked.out: content}
    if asked.plot is not None:
        title = f"{loaded.name}, step {loaded.step}: surprisal in {options.unit}"
        picture, note = surprisal_plot.plot(rows, title, asked.plot.suffix)
        contents |= {} if picture is None else {asked.plot: picture}
    write_files(contents)
    if contents:
        say(f"written: {', '.join(map(str, contents))}")
    if note:
        tell(note)  # also with --quiet
    if asked.out is None:
        print(content, end="")


def _check_unquoted(text: InputText, file: Path, kind: str) -> None:
    """Raises InputError if a cell has the separator of the table, which is to be written without
    quotation marks."""
    separator = SEPARATORS[kind]
    copied = chain.from_iterable(cells.values() for cells in text.cells)
    for cell in chain(text.cells[0], copied, text.sentences if text.rows is None else []):
        if separator in cell:
            raise InputError(
                f"{file}: {cell!r} has the separator of {kind}, which --no-quotes cannot write:"
                " choose another --format"
            )


def _read_sentences(asked: argparse.Namespace) -> InputText:
    if asked.column is None:
        lines = read_lines(asked.input)
        return InputText(
            lines, list(accumulate(not line for line in lines)), [{} for _ in lines] or [{}]
        )
    table = read_table(asked.input, asked.quotes, "--no-quotes")
    cells = table.texts(asked.column)
    if len(cells) > 1 and separator_of(cells) and all(len(cell.split()) < 2 for cell in cells):
        warn(
            f"{table.name}: each row has one word, scored as a sentence; give --word if rows are"
            " words of sentences"
        )
    others = [
        {name: cell for name, cell in row.items() if name != asked.column} for row in table.rows
    ]
    return InputText(cells, table.keys(asked.document), others)


def _read_words(asked: argparse.Namespace) -> InputText:
    """Reads a table with one word per row."""
    table = read_table(asked.input, asked.quotes, "--no-quotes")
    words = [cell.strip() for cell in table.texts(asked.word)]
    if "" in words:
        line = table.lines[words.index("")]
        raise InputError(
            f"{table.name}:{line}: no word in column {asked.word!r}: leave the row out"
        )
    spaces = None if asked.space_after is None else _spaces(table, asked.space_after)
    documents = table.keys(asked.document)
    sentences = _in_order(table, [*asked.document, *asked.sentence], asked.position)
    if not asked.sentence:
        if not separator_of(words):
            raise InputError(
                "Punkt finds no end of a sentence in a script without spaces: give --sentence"
            )
        if (parameters := load_punkt(asked.language)) is None:
            raise InputError(
                f"no Punkt data for {asked.language}: get NLTK's punkt_tab, or give --sentence"
            )
        split, unsplit, sentences = punkt_splitter(parameters), sentences, []
        for rows in unsplit:
            separators = [" " if spaces is None or spaces[row] else "" for row in rows]
            joined = join([words[row] for row in rows], separators)
            numbers = dict(zip(rows, sentence_numbers(joined, split), strict=True))
            sentences += [list(part) for _, part in groupby(rows, numbers.__getitem__)]
    longest = max(map(len, sentences))
    say(
        f"{counted(len(words), 'word')} in {counted(len(sentences), 'sentence')}, the longest of"
        f" {longest}"
    )
    return InputText(
        sentences=[[words[row] for row in rows] for rows in sentences],
        documents=[documents[rows[0]] for rows in sentences],
        cells=table.rows,
        rows=sentences,
        spaces=None if spaces is None else [[spaces[row] for row in rows] for rows in sentences],
    )


def _spaces(table: Table, column: str) -> list[bool]:
    """Returns whether a space follows the word of each row: unless the cell says No, or
    SpaceAfter=No among others."""
    cells = [cell.strip().lower() for cell in table.column(column)]
    spaces = [cell not in NO_SPACE and "spaceafter=no" not in cell.split("|") for cell in cells]
    if all(spaces):
        raise InputError(
            f"{table.name}: no cell of column {column!r} says that no space follows its word: write"
            " No, False, 0 or SpaceAfter=No there, or leave out --space-after"
        )
    return spaces


def _in_order(table: Table, columns: Sequence[str], asked: str | None) -> list[list[int]]:
    """Returns the rows of each sentence (neighbours that agree in `columns`) in order of
    position."""
    keys = table.keys(columns)
    found = [list(rows) for _, rows in groupby(range(len(keys)), keys.__getitem__)]
    known = {name.lower(): name for name in table.rows[0] if name not in columns}
    name = asked or next((known[each] for each in POSITIONS if each in known), "none")
    try:
        position = list(map(int, table.numbers(name))) if name != "none" else range(len(keys))
    except ValueError as error:
        if asked:
            raise InputError(
                f"{table.name}: column {name!r} does not hold positions of words: {error}"
            ) from None
        return found
    # scattered over the table
    if name != "none" and len(set(keys)) < len(found) and len(keys) < 2 * len(found):
        rank = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        together = sorted(range(len(keys)), key=lambda row: rank[keys[row]])
        found = [list(rows) for _, rows in groupby(together, keys.__getitem__)]
    for rows in found:
        rows.sort(key=position.__getitem__)
        if twice := [row for before, row in pairwise(rows) if position[before] == position[row]]:
            raise InputError(
                f"{table.name}:{table.lines[twice[0]]}: {name} {position[twice[0]]} occurs twice in"
                " a sentence: name all columns that identify sentences and documents (readers,"
                " too), or another --position, or --position none"
            )
    if moved := sum(any(row > other for row, other in pairwise(rows)) for rows in found):
        say(
            f"{counted(moved, 'sentence')} not in the order of {name}: scored in that order; rows"
            " keep their places"
        )
    return found


def sentence_numbers(joined: JoinedSentence, split: Callable[[str], list[str]]) -> list[int]:
    """Returns the number of the sentence of each word (by its first character), from a function
    that splits text."""
    text, ends = joined.text, [0]
    for sentence in split(text):
        ends.append(text.index(sentence, ends[-1]) + len(sentence))
    return [bisect(ends, begin) for begin, _ in joined.words or []]


def table_text(rows: Sequence[dict], kind: str, quotes: bool = True) -> str:
    """Formats one or more rows with the same keys as TSV, CSV or JSON lines, with six decimals."""
    # + 0.0: no -0.000000
    rounded = [
        {k: round(v, DECIMALS) + 0.0 if isinstance(v, float) else v for k, v in row.items()}
        for row in rows
    ]
    if kind == "jsonl":
        return "".join(
            json.dumps(spell_nonfinite(row), ensure_ascii=False) + "\n" for row in rounded
        )
    cells = [
        [f"{v:.{DECIMALS}f}" if isinstance(v, float) else v for v in row.values()]
        for row in rounded
    ]
    return csv_table(list(rows[0]), cells, SEPARATORS[kind], quotes)
