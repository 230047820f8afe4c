"""`esnlm score --tokens`: a table of the surprisals of a text, from the text to the written files."""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from esnlm import loaded_run
from esnlm.data.sentences import load_punkt, punkt_splitter
from esnlm.data.tables import Table, read_table
from esnlm.data.text_files import read_lines
from esnlm.data.word_rows import group_rows, read_words, split_rows
from esnlm.errors import InputError
from esnlm.evaluation.surprisal import Options
from esnlm.io.atomic import require_writable, write_files
from esnlm.io.console import counted, say, tell, warn, working
from esnlm.loaded_run import Step
from esnlm.reporting import surprisal_plot
from esnlm.reporting.row_table import table_format, table_text


@dataclasses.dataclass(frozen=True, kw_only=True)
class Input:
    """The text and its form. All columns are None or empty for plain text of one sentence a line."""

    file: Path | None  # None: standard input
    column: str | None = None  # of a table: that of the sentences; the other columns are repeated in each row
    word: str | None = None  # of a table with a row a word: that of the words, in the order of reading
    sentence: Sequence[
        str
    ] = ()  # with `word`: neighbours that agree in all of these are one sentence; (): Punkt splits
    language: str | None = None  # with `word`: of Punkt; None: English
    document: str | None = None  # of a table: the column that tells documents apart; None: all is one
    context: str = "sentence"  # as in `Run.surprisal`
    quotes: bool = True  # as in `read_table`

    @property
    def name(self) -> str:
        """The input in messages."""
        return str(self.file or "standard input")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Output:
    """Where the table goes."""

    out: Path | None = None  # the table's file; None: the table is returned
    format: str | None = None  # "tsv", "csv" or "jsonl"; None: by the suffix of `out`
    plot: Path | None = None  # a PNG file to draw the surprisals in
    overwrite: bool = False  # whether to replace files


def tabulate(run: str | Path, text: Input, options: Options, files: Output, step: Step = None) -> str | None:
    """Scores the words of a text and writes their table. All input is checked before anything is scored.

    A table with a row a word is written again, with a column of surprisals. Of any other input there is a row for each word or
    token, and the cells of a table are repeated in it.

    Returns:
        The text of the table, or None if it went to a file.

    Raises:
        InputError: the text, the run, a column or a file is not usable.
    """
    _require_place(files)
    options.check()
    _require_together(text, options)
    value = f"surprisal_{options.unit}"
    if text.word is not None:
        table = read_table(text.file, text.quotes)
        words = read_words(table, text.word)
        documents: list[Any] = table.column(text.document) if text.document else [""] * len(words)
        its_rows = _find_sentences(table, text, words, documents)
        longest = max(map(len, its_rows))
        say(f"{counted(len(words), 'word')} in {counted(len(its_rows), 'sentence')}, the longest of {longest}")
        sentences: list[Any] = [[words[row] for row in rows] for rows in its_rows]
        documents = [documents[rows.start] for rows in its_rows]
        numbers, repeated = list(range(len(sentences))), table.others()
        own, options = [value], dataclasses.replace(options, eos=False)
    else:
        sentences, documents, repeated = _read_sentences(text)
        numbers = [number for number, sentence in enumerate(sentences) if sentence.strip()]
        if not numbers:
            raise InputError(f"{text.name}: no sentence to score: all of it is white space")
        own = options.columns()
    if twice := [name for name in own if name in repeated[0]]:
        raise InputError(f"{text.name}: column {twice[0]!r} would stand twice in the table: give it another name")

    with working(f"loading {run}"):
        loaded = loaded_run.load(run, step)
    rows = loaded.surprisal(
        [sentences[number] for number in numbers],
        context=text.context,
        documents=[documents[number] for number in numbers] if text.context == "document" else None,
        progress="brief",
        **dataclasses.asdict(options),
    )
    if text.word is not None:
        found = [cells | {value: row[value]} for cells, row in zip(repeated, rows, strict=True)]
    else:
        for row in rows:
            row["sentence"] = numbers[row["sentence"]]
        found = [row | repeated[row["sentence"]] for row in rows]
    return _write(files, found, rows, f"{loaded.name}, step {loaded.step}: surprisal in {options.unit}")


def _require_together(text: Input, options: Options) -> None:
    """Raises InputError for options that say nothing together."""
    is_table = text.column is not None or text.word is not None
    if text.column is not None and text.word is not None:
        raise InputError("--column has whole sentences and --word has words: give one of them")
    if text.word is None and (text.sentence or text.language):
        raise InputError("--sentence and --language are for a table with a row a word, so give --word too")
    if text.sentence and text.language:
        raise InputError(
            "--language says how words are split into sentences, and --sentence names these; leave one out"
        )
    if text.document is not None and not (text.word or (text.column and text.context == "document")):
        raise InputError("--document tells documents apart: give --word, or --column and --context document, with it")
    if not text.quotes and not is_table:
        raise InputError("--no-quotes is for tables: give --column or --word with it")
    if text.word is not None and (options.by, options.punctuation) != ("word", "attached"):
        raise InputError("with --word, a row is what a row of the table is; leave out --by and --punctuation")


def _read_sentences(text: Input) -> tuple[list[str], list[Any], list[dict[str, str]]]:
    """Returns the sentences, the document of each, and the cells that the table repeats of it."""
    if text.column is None:
        lines = read_lines(text.file)
        ends, numbers = 0, []
        for line in lines:
            ends += not line
            numbers.append(ends)
        return lines, numbers, [{} for _ in lines] or [{}]
    table = read_table(text.file, text.quotes)
    cells = table.texts(text.column)
    words_only = all(len(cell.split()) < 2 for cell in cells)  # or sentences of a language without spaces
    if len(cells) > 1 and words_only and sum(map(len, cells)) < 10 * len(cells):
        warn(
            f"{text.name}: each row of column {text.column!r} has one word, which is scored as a whole sentence; to score words in"
            f" their sentence, give --word {text.column} in place of --column {text.column}"
        )
    spaced = [line for line, cell in zip(table.lines, cells, strict=True) if cell != cell.strip() and cell.strip()]
    if spaced:
        more = f", and in {counted(len(spaced) - 1, 'more row')}" if len(spaced) > 1 else ""
        warn(f"{table.name}:{spaced[0]}: white space at an end of the cell{more}, is scored as a part of the sentence")
    documents: list[Any] = table.column(text.document) if text.document else [None] * len(cells)
    return cells, documents, table.others([text.column])


def _find_sentences(table: Table, text: Input, words: Sequence[str], documents: Sequence[str]) -> list[range]:
    """Returns the rows of each sentence."""
    if text.sentence:
        keys = list(zip(documents, *(table.column(name) for name in text.sentence), strict=True))
        sentences = group_rows(keys)
    else:
        language = text.language or "english"
        parameters = load_punkt(language)
        if parameters is None:
            raise InputError(
                f"no pretrained Punkt data for {language} found: nltk.download('punkt_tab') gets it; or name the column that tells"
                " sentences apart with --sentence"
            )
        sentences = split_rows(words, group_rows(documents), punkt_splitter(parameters))
    return sentences


def _require_place(files: Output) -> None:
    """Raises InputError if a name does not say what to write, nothing can be written there, or a file is not to be replaced."""
    table_format(files.out, files.format)
    if files.plot is not None and files.plot.suffix.lower() != ".png":
        raise InputError(f"{files.plot}: the plot's name must end in .png")
    if files.out is not None and files.plot is not None and os.path.realpath(files.out) == os.path.realpath(files.plot):
        raise InputError(f"{files.plot}: it is named for the table and for the plot; name two files")
    for file in filter(None, (files.out, files.plot)):
        if file.exists() and not files.overwrite:
            raise InputError(f"{file}: exists: name another file, or replace it with --overwrite")
        require_writable(file)


def _write(files: Output, table: Sequence[dict], rows: Sequence[dict], title: str) -> str | None:
    """Writes the files and says so. Returns the text of the table if it goes to no file."""
    text, note = table_text(table, table_format(files.out, files.format)), None
    contents: dict[Path, str | bytes] = {} if files.out is None else {files.out: text}
    if files.plot is not None:
        picture, note = surprisal_plot.plot(rows, title)
        if picture is not None:
            contents[files.plot] = picture
    write_files(contents)
    if contents:
        say(f"written: {', '.join(map(str, contents))}")
    if note:
        tell(note)  # also with --quiet
    return text if files.out is None else None
