"""`esnlm score --tokens`: a table of the surprisals of a text, from the text to the written files."""

import argparse
import dataclasses
import json
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from esnlm import loaded_run
from esnlm.data.sentences import load_punkt, punkt_splitter
from esnlm.data.tables import read_table
from esnlm.data.text_files import read_lines
from esnlm.data.word_rows import group_rows, read_words, split_rows
from esnlm.errors import InputError
from esnlm.evaluation.surprisal import Options
from esnlm.io.atomic import require_writable, write_file
from esnlm.io.console import counted, say, warn, working
from esnlm.io.json_file import spell_nonfinite
from esnlm.reporting.tables import csv_table

SEPARATORS = {"tsv": "\t", "csv": ","}
DECIMALS = 6


def tabulate(asked: argparse.Namespace) -> None:
    """Scores the words of a text and prints or writes their table. All input is checked before anything is scored.

    A table with a row a word is written again, with a column of surprisals. Of any other input there is a row for each word or
    token, and the cells of a table are repeated in it.

    Args:
        asked: the options of `esnlm score`.
    """
    if asked.sentence and asked.word is None:
        raise InputError("--sentence is for a table with a row a word, so give --word too")
    kind = asked.format or ("tsv" if asked.out is None else asked.out.suffix.lower().removeprefix("."))
    if kind not in (*SEPARATORS, "jsonl"):
        raise InputError(f"{asked.out}: end the name in .tsv, .csv or .jsonl, or give --format")
    if asked.out is not None:
        if asked.out.exists() and not asked.overwrite:
            raise InputError(f"{asked.out}: exists: name another file, or replace it with --overwrite")
        require_writable(asked.out)
    options = Options(**{field.name: getattr(asked, field.name) for field in dataclasses.fields(Options)})
    if asked.word is not None:  # a row is what a row of the table is
        options = dataclasses.replace(options, by="word", punctuation="attached", eos=False)
    options.check()
    value = f"surprisal_{options.unit}"
    if asked.word is not None:
        sentences, documents, repeated = _read_words(asked)
        own = [value]
    else:
        sentences, documents, repeated = _read_sentences(asked)
        own = options.columns()
    numbers = [number for number, sentence in enumerate(sentences) if asked.word or sentence.strip()]
    if not numbers:
        raise InputError(f"{asked.input or 'standard input'}: no sentence to score: all of it is white space")
    if twice := [name for name in own if name in repeated[0]]:
        raise InputError(f"{asked.input}: column {twice[0]!r} would stand twice in the table: give it another name")

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
        table = [cells | {value: row[value]} for cells, row in zip(repeated, rows, strict=True)]
    else:
        table = [row | {"sentence": numbers[row["sentence"]]} | repeated[numbers[row["sentence"]]] for row in rows]
    text = table_text(table, kind)
    if asked.out is None:
        print(text, end="")
    else:
        write_file(asked.out, text)
        say(f"written: {asked.out}")


def _read_sentences(asked: argparse.Namespace) -> tuple[list[str], list[Any], list[dict[str, str]]]:
    """Returns the sentences, the document of each, and the cells that the table repeats of it."""
    if asked.column is None:
        lines = read_lines(asked.input)
        return lines, list(accumulate(not line for line in lines)), [{} for _ in lines] or [{}]
    table = read_table(asked.input, asked.quotes)
    cells = table.texts(asked.column)
    if len(cells) > 1 and all(len(cell.split()) < 2 for cell in cells):
        warn(
            f"{table.name}: each row of column {asked.column!r} has one word, which is scored as a whole sentence; to score words in"
            f" their sentence, give --word {asked.column} in place of --column {asked.column}"
        )
    documents = table.column(asked.document) if asked.document else [None] * len(cells)
    return cells, documents, table.others([asked.column])


def _read_words(asked: argparse.Namespace) -> tuple[list[Any], list[Any], list[dict[str, str]]]:
    """Returns the sentences of a table with a row a word, each as its words; their documents; and the cells of each row.

    Sentences are neighbours that agree in the columns of --sentence, or what Punkt splits.
    """
    table = read_table(asked.input, asked.quotes)
    words = read_words(table, asked.word)
    documents = table.column(asked.document) if asked.document else [""] * len(words)
    if asked.sentence:
        its_rows = group_rows(list(zip(documents, *(table.column(name) for name in asked.sentence), strict=True)))
    else:
        if (parameters := load_punkt(asked.language)) is None:
            advice = "nltk.download('punkt_tab') gets it; or name the column that tells sentences apart with --sentence"
            raise InputError(f"no pretrained Punkt data for {asked.language} found: {advice}")
        its_rows = split_rows(words, group_rows(documents), punkt_splitter(parameters))
    longest = max(map(len, its_rows))
    say(f"{counted(len(words), 'word')} in {counted(len(its_rows), 'sentence')}, the longest of {longest}")
    sentences = [[words[row] for row in rows] for rows in its_rows]
    return sentences, [documents[rows.start] for rows in its_rows], table.others()


def table_text(rows: Sequence[dict], kind: str) -> str:
    """Returns rows (at least one) of the same keys as TSV, CSV or JSON lines, numbers with six decimals."""
    # + 0.0: no -0.000000
    rounded = [{k: round(v, DECIMALS) + 0.0 if isinstance(v, float) else v for k, v in row.items()} for row in rows]
    if kind == "jsonl":
        return "".join(json.dumps(spell_nonfinite(row), ensure_ascii=False) + "\n" for row in rounded)
    cells = [[f"{v:.{DECIMALS}f}" if isinstance(v, float) else v for v in row.values()] for row in rounded]
    return csv_table(list(rows[0]), cells, SEPARATORS[kind])
