"""`esnlm score --tokens`: a table of the surprisals of a text, from the text to the written files."""

import argparse
import dataclasses
import json
from bisect import bisect
from collections.abc import Callable, Sequence
from itertools import accumulate, chain, groupby, pairwise
from pathlib import Path
from typing import Any

from esnlm import loaded_run
from esnlm.data.sentences import load_punkt, punkt_splitter
from esnlm.data.tables import Table, read_table
from esnlm.data.text_files import read_lines
from esnlm.errors import InputError
from esnlm.evaluation.surprisal import Options, separator_of
from esnlm.io.atomic import require_writable, write_files
from esnlm.io.console import counted, say, tell, warn, working
from esnlm.io.json_file import spell_nonfinite
from esnlm.reporting import plots, surprisal_plot
from esnlm.reporting.tables import csv_table

SEPARATORS = {"tsv": "\t", "csv": ","}
POSITIONS = ("word_number", "ia_id", "zone", "position")  # columns of positions, in lower case
DECIMALS = 6


def tabulate(asked: argparse.Namespace) -> None:
    """Scores the words of a text and prints or writes their table. Checks all input before it scores."""
    if asked.word is None and (asked.sentence or asked.position or asked.separator is not None):
        raise InputError("--sentence, --position and --separator are for tables with one word per row: give --word")
    kind = asked.format or ("tsv" if asked.out is None else asked.out.suffix.lower().removeprefix("."))
    if kind not in (*SEPARATORS, "jsonl"):
        raise InputError(f"{asked.out}: end the name in .tsv, .csv or .jsonl, or give --format")
    if asked.plot is not None and asked.plot.suffix.lower() not in plots.SUFFIXES:
        raise InputError(f"{asked.plot}: the name must end in {' or '.join(plots.SUFFIXES)}")
    for file in filter(None, (asked.out, asked.plot)):
        require_writable(file, asked.overwrite)
    options = Options(**{field.name: getattr(asked, field.name) for field in dataclasses.fields(Options)})
    value = f"surprisal_{options.unit}"
    if asked.word is not None:  # one row per row of the input table
        options = dataclasses.replace(options, by="word", punctuation="attached", eos=False)
        found, sentences, documents, repeated = _read_words(asked)
        own = [value]
    else:
        sentences, documents, repeated = _read_sentences(asked)
        own = options.columns()
    numbers = [number for number, sentence in enumerate(sentences) if asked.word or sentence.strip()]
    if not numbers:
        raise InputError(f"{asked.input}: no sentence to score: the text is all white space")
    if twice := [name for name in own if name in repeated[0]]:
        raise InputError(f"{asked.input}: column {twice[0]!r} would appear twice in the table: rename it")

    with working(f"loading {asked.run}"):
        loaded = loaded_run.load(asked.run, asked.step)
    rows = loaded.surprisal(
        [sentences[number] for number in numbers],
        context=asked.context,
        documents=[documents[number] for number in numbers] if asked.context == "document" else None,
        progress="brief",
        **dataclasses.asdict(options),
    )
    if asked.word is not None:
        value_of = {number: row[value] for number, row in zip(chain(*found), rows, strict=True)}
        table = [cells | {value: value_of[number]} for number, cells in enumerate(repeated)]
        if shared := sum(each is None for each in value_of.values()):
            say(
                f"{counted(shared, 'empty cell')}: the word shares a token with the one before, which has both surprisals"
            )
    else:
        table = [row | {"sentence": numbers[row["sentence"]]} | repeated[numbers[row["sentence"]]] for row in rows]
    text, note = table_text(table, kind), None
    contents: dict[Path, str | bytes] = {} if asked.out is None else {asked.out: text}
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
        print(text, end="")


def _read_sentences(asked: argparse.Namespace) -> tuple[list[str], list[Any], list[dict[str, str]]]:
    """Returns the sentences, the document of each, and the cells copied from its row."""
    if asked.column is None:
        lines = read_lines(asked.input)
        return lines, list(accumulate(not line for line in lines)), [{} for _ in lines] or [{}]
    table = read_table(asked.input, asked.quotes, "--no-quotes")
    cells = table.texts(asked.column)
    if len(cells) > 1 and separator_of(cells) and all(len(cell.split()) < 2 for cell in cells):
        warn(f"{table.name}: each row has one word, scored as a sentence; give --word if rows are words of sentences")
    others = [{name: cell for name, cell in row.items() if name != asked.column} for row in table.rows]
    return cells, table.keys(asked.document), others


def _read_words(asked: argparse.Namespace) -> tuple[list[list[int]], list[Any], list[Any], list[dict[str, str]]]:
    """Returns the sentences of a table with one word per row, as rows and as words; their documents; and all cells."""
    table = read_table(asked.input, asked.quotes, "--no-quotes")
    words = [cell.strip() for cell in table.texts(asked.word)]
    if "" in words:
        line = table.lines[words.index("")]
        raise InputError(f"{table.name}:{line}: no word in column {asked.word!r}: leave the row out")
    documents = table.keys(asked.document)
    found = _in_order(table, [*asked.document, *asked.sentence], asked.position)
    if not asked.sentence:
        if not separator_of(words):
            raise InputError("Punkt finds no end of a sentence in a script without spaces: give --sentence")
        if (parameters := load_punkt(asked.language)) is None:
            raise InputError(f"no Punkt data for {asked.language}: get NLTK's punkt_tab, or give --sentence")
        split, wholes, found = punkt_splitter(parameters), found, []
        for rows in wholes:
            numbers = dict(zip(rows, sentence_numbers([words[row] for row in rows], split), strict=True))
            found += [list(its) for _, its in groupby(rows, numbers.__getitem__)]
    say(f"{counted(len(words), 'word')} in {counted(len(found), 'sentence')}, the longest of {max(map(len, found))}")
    return found, [[words[row] for row in rows] for rows in found], [documents[rows[0]] for rows in found], table.rows


def _in_order(table: Table, columns: Sequence[str], asked: str | None) -> list[list[int]]:
    """Returns the rows of each sentence (neighbours that agree in `columns`) in order of position."""
    keys = table.keys(columns)
    found = [list(rows) for _, rows in groupby(range(len(keys)), keys.__getitem__)]
    known = {name.lower(): name for name in table.rows[0] if name not in columns}
    name = asked or next((known[each] for each in POSITIONS if each in known), "none")
    try:
        position = list(map(int, table.numbers(name))) if name != "none" else range(len(keys))
    except ValueError as error:
        if asked:
            raise InputError(f"{table.name}: column {name!r} does not hold positions of words: {error}") from None
        return found
    if name != "none" and len(set(keys)) < len(found) and len(keys) < 2 * len(found):  # scattered over the table
        rank = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        together = sorted(range(len(keys)), key=lambda row: rank[keys[row]])
        found = [list(rows) for _, rows in groupby(together, keys.__getitem__)]
    for rows in found:
        rows.sort(key=position.__getitem__)
        if twice := [row for before, row in pairwise(rows) if position[before] == position[row]]:
            raise InputError(
                f"{table.name}:{table.lines[twice[0]]}: {name} {position[twice[0]]} occurs twice in a"
                " sentence: name all columns that identify sentences and documents (readers, too), or another --position, or --position none"
            )
    if moved := sum(any(row > other for row, other in pairwise(rows)) for rows in found):
        say(f"{counted(moved, 'sentence')} not in the order of {name}: scored in that order; rows keep their places")
    return found


def sentence_numbers(words: Sequence[str], split: Callable[[str], list[str]]) -> list[int]:
    """Returns the number of the sentence of each word (by its first character), from a function that splits text."""
    text, ends = " ".join(words), [0]
    for sentence in split(text):
        ends.append(text.index(sentence, ends[-1]) + len(sentence))
    begins = accumulate((len(word) + 1 for word in words[:-1]), initial=0)
    return [bisect(ends, begin) for begin in begins]


def table_text(rows: Sequence[dict], kind: str) -> str:
    """Formats one or more rows with the same keys as TSV, CSV or JSON lines, with six decimals."""
    # + 0.0: no -0.000000
    rounded = [{k: round(v, DECIMALS) + 0.0 if isinstance(v, float) else v for k, v in row.items()} for row in rows]
    if kind == "jsonl":
        return "".join(json.dumps(spell_nonfinite(row), ensure_ascii=False) + "\n" for row in rounded)
    cells = [[f"{v:.{DECIMALS}f}" if isinstance(v, float) else v for v in row.values()] for row in rounded]
    return csv_table(list(rows[0]), cells, SEPARATORS[kind])
