"""Prints the log-probability of each sentence under a trained run, in nats, followed by the
sentence.

With --by word or --by token it makes a table of surprisals instead, and with --word it adds
surprisals to a table of words (docs/surprisal.md).
"""

import argparse
import json
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain
from operator import itemgetter
from pathlib import Path
from typing import Any

from esnlm.base.console import info, notice, warn
from esnlm.base.errors import InputError
from esnlm.base.files import spell_nonfinite, write_files
from esnlm.commands.arguments import (
    CACHE,
    OVERWRITE,
    SCORING,
    SEVERAL,
    STEP,
    Argument,
    ArgumentGroup,
    OneOf,
    check_output,
    load_run,
    local_path,
)

SEPARATORS = {"tsv": "\t", "csv": ","}
# Options that only tables have, and their defaults.
FOR_TABLES: dict[str, Any] = {
    "unit": "bits",
    "column": None,
    "context": "sentence",
    "cache": False,
    "document": [],
    "punctuation": "attached",
    "whitespace": "leading",
    "eos": True,
    "out": None,
    "format": None,
    "plot": None,
}
DECIMALS = 6


ARGUMENTS = [
    Argument(
        "--run",
        required=True,
        **SEVERAL,
        metavar="DIR",
        help="the run directory, or several with --word",
    ),
    Argument(
        "--input",
        type=Path,
        default=Path("-"),
        metavar="FILE",
        help="one sentence per line, or a table with --column or --word (default: standard input)",
    ),
    SCORING,
    STEP,
    Argument(
        "--by",
        choices=("sentence", "word", "token"),
        default="sentence",
        help="print the log-probability of each sentence (default), or make a table of the"
        " surprisal of each word or token",
    ),
    ArgumentGroup(
        "for tables: --by word, --by token or --word",
        Argument(
            "--unit",
            choices=("bits", "nats"),
            default="bits",
            help="unit of surprisal (default: bits)",
        ),
        OneOf(
            Argument(
                "--column",
                metavar="NAME",
                help="read sentences from this column of a TSV or CSV file and copy its other"
                " columns",
            ),
            Argument(
                "--word",
                metavar="NAME",
                help="for a TSV or CSV file with one word per row, in this column: copy it and add"
                " surprisals and other predictors",
            ),
        ),
        Argument(
            "--baselines",
            **SEVERAL,
            default=[],
            metavar="MODEL",
            help="with --word: also unigram, bigram, trigram or, for example, 5-gram, of the first"
            " run's training text",
        ),
        Argument(
            "--previous",
            type=int,
            default=0,
            metavar="K",
            help="with --word: repeat the predictors of the K words before, in the document",
        ),
        Argument(
            "--sentence",
            **SEVERAL,
            default=[],
            metavar="NAME",
            help="with --word: columns that identify a sentence (default: Punkt finds the"
            " sentences)",
        ),
        Argument(
            "--position",
            metavar="NAME",
            help="with --word: column of the word's position in its sentence, or none (default:"
            " zone or similar)",
        ),
        Argument(
            "--separator",
            metavar="TEXT",
            help="with --word: text between words (default: a space; none in scripts such as"
            " Chinese or Thai)",
        ),
        Argument(
            "--space-after",
            metavar="NAME",
            help="with --word: column with No, False or 0 (or CoNLL-U's SpaceAfter=No) if no space"
            " follows the word",
        ),
        Argument(
            "--language",
            metavar="NAME",
            default="english",
            help="with --word: language of Punkt (default: %(default)s)",
        ),
        Argument(
            "--no-quotes",
            action="store_false",
            dest="quotes",
            help="read and write quotation marks as part of the cell",
        ),
        Argument(
            "--context",
            choices=("sentence", "document"),
            default="sentence",
            help="reset the state at each sentence or document (default: sentence)",
        ),
        CACHE,
        Argument(
            "--document",
            **SEVERAL,
            default=[],
            metavar="NAME",
            help="columns that identify a document, for --context document or --cache (default:"
            " one document; in plain text a blank line ends it)",
        ),
        Argument(
            "--punctuation",
            choices=("attached", "separate"),
            default="attached",
            help="part of the word it touches, or a word of its own (default: attached)",
        ),
        Argument(
            "--whitespace",
            choices=("leading", "trailing"),
            default="leading",
            help="part of the word after it (leading) or before it (trailing) (default: leading)",
        ),
        Argument(
            "--no-eos",
            action="store_false",
            dest="eos",
            help="leave out the row for the end of each sentence",
        ),
        Argument(
            "--out",
            type=local_path,
            metavar="FILE",
            help="file for the table: .tsv, .csv or .jsonl (default: standard output)",
        ),
        Argument(
            "--format",
            choices=("tsv", "csv", "jsonl"),
            help="format of the table (default: by --out's name, else tsv)",
        ),
        Argument(
            "--plot",
            type=local_path,
            metavar="FILE",
            help="also draw the words with their surprisals, in a .png, .pdf or .svg file",
        ),
        OVERWRITE,
    ),
]


def run(args: argparse.Namespace) -> None:
    if args.word is not None:
        if args.by != "sentence" or args.punctuation != "attached" or not args.eos:
            raise InputError("--by, --punctuation and --no-eos are for texts: leave them out")
        make_word_table(args)
        return
    for_words = (args.sentence, args.position, args.space_after, args.baselines, args.previous)
    if any(for_words) or args.separator is not None:
        raise InputError(
            "--sentence, --position, --separator, --space-after, --baselines and --previous are for"
            " tables with one word per row: give --word"
        )
    if len(args.run) > 1:
        raise InputError("several runs can score a table with one word per row only: give --word")
    unused = [name for name, default in FOR_TABLES.items() if getattr(args, name) != default]
    if args.by != "sentence":
        make_table(args)
    elif unused:
        option = "no-eos" if unused[0] == "eos" else unused[0]
        raise InputError(f"--{option} is for tables: give --by word, --by token or --word")
    else:
        print_log_probs(args)


def print_log_probs(args: argparse.Namespace) -> None:
    """Prints the log-probability and the text of each line; a blank line has no log-probability."""
    from esnlm.data.text_files import read_lines
    from esnlm.evaluation.conventions import is_blank

    sentences = read_lines(args.input)
    if not any(sentences):
        raise InputError(f"{args.input}: no sentence to score; give one per line")
    run = load_run(args, *args.run)
    log_probs = run.log_probs(sentences, args.scoring, progress="brief")
    for sentence, log_prob in zip(sentences, log_probs, strict=True):
        value = "" if is_blank(sentence) else f"{log_prob:.6f}"
        print(f"{value}\t{sentence}")


def make_table(args: argparse.Namespace) -> None:
    """Prints or writes the table of the words or tokens of a text. Checks all input first."""
    from esnlm.evaluation.conventions import is_blank
    from esnlm.evaluation.surprisal import columns

    kind = _check_outputs(args)
    sentences, documents, cells = _read_sentences(args)
    if all(map(is_blank, sentences)):
        raise InputError(f"{args.input}: no sentence to score: the text is all white space")
    for name in columns(args.by, args.unit):
        if name in cells[0]:
            raise InputError(
                f"{args.input}: column {name!r} would appear twice in the table: rename it"
            )
    if not args.quotes:
        _check_unquoted(args.input, kind, chain(*cells, *map(dict.values, cells), sentences))

    loaded = load_run(args, *args.run)
    rows = loaded.surprisal(
        sentences,
        args.by,
        args.unit,
        context=args.context,
        documents=documents if args.cache or args.context == "document" else None,
        punctuation=args.punctuation,
        whitespace=args.whitespace,
        eos=args.eos,
        scoring=args.scoring,
        cache=args.cache,
        progress="brief",
    )
    table = [row | cells[row["sentence"]] for row in rows]
    _write(args, kind, table, rows, f"{loaded.name}, step {loaded.step}")


def make_word_table(args: argparse.Namespace) -> None:
    """Prints or writes a table of words with the columns of `esnlm.score_words` added."""
    from esnlm.api.word_table import score_words
    from esnlm.data.tables import read_table

    kind = _check_outputs(args)
    if args.plot is not None and len(args.run) > 1:
        raise InputError("--plot draws the surprisals of one run: give one run, or no --plot")
    table = read_table(args.input, args.quotes, "--no-quotes")
    if not args.quotes:
        _check_unquoted(args.input, kind, chain(table.rows[0], *map(dict.values, table.rows)))
    loaded = [load_run(args, run) for run in args.run]
    rows = score_words(
        table,
        loaded,
        args.word,
        document=args.document,
        sentence=args.sentence,
        position=args.position,
        baselines=args.baselines,
        previous=args.previous,
        context=args.context,
        cache=args.cache,
        unit=args.unit,
        whitespace=args.whitespace,
        separator=args.separator,
        space_after=args.space_after,
        language=args.language,
        scoring=args.scoring,
        progress="brief",
    )
    words = []
    if args.plot is not None:
        surprisal = f"surprisal_{args.unit}"
        words = [
            {"word": row[args.word], "start": 0, "end": 1, surprisal: row[surprisal]}
            for row in sorted(rows, key=itemgetter("sentence_number", "sentence_position"))
        ]
    _write(args, kind, rows, words, f"{loaded[0].name}, step {loaded[0].step}")


def _check_outputs(args: argparse.Namespace) -> str:
    """Returns the format of the table. Raises InputError if a file cannot be written."""
    from esnlm.reports import plots

    suffix = ".tsv" if args.out is None else args.out.suffix.lower()
    kind = args.format or suffix.removeprefix(".")
    if kind not in (*SEPARATORS, "jsonl"):
        raise InputError(f"{args.out}: end the name in .tsv, .csv or .jsonl, or give --format")
    check_output(args.out, args.overwrite)
    check_output(args.plot, args.overwrite, plots.SUFFIXES)
    return kind


def _read_sentences(args: argparse.Namespace) -> tuple[list[str], list[Any], list[dict[str, str]]]:
    """Returns each sentence of a text or a table, its document, and the cells that rows copy."""
    from esnlm.data.tables import read_table
    from esnlm.data.text_files import read_lines
    from esnlm.evaluation.words import separator_of

    if args.column is None:
        lines = read_lines(args.input)
        documents = list(accumulate(not line for line in lines))  # a blank line ends a document
        return lines, documents, [{} for _ in lines] or [{}]
    table = read_table(args.input, args.quotes, "--no-quotes")
    texts = table.texts(args.column)
    if len(texts) > 1 and separator_of(texts) and all(len(text.split()) < 2 for text in texts):
        warn(
            f"{table.name}: each row has one word, scored as a sentence; give --word if rows are"
            " words of sentences"
        )
    cells = [{k: cell for k, cell in row.items() if k != args.column} for row in table.rows]
    return texts, table.keys(args.document), cells


def _check_unquoted(file: Path, kind: str, cells: Iterable[str]) -> None:
    """Raises InputError if a cell has the table's separator, which needs quotation marks."""
    for cell in cells:
        if kind in SEPARATORS and SEPARATORS[kind] in cell:
            raise InputError(
                f"{file}: {cell!r} has the separator of {kind}, which --no-quotes cannot write:"
                " write .jsonl or the other of .tsv and .csv, or leave out --no-quotes"
            )


def _write(
    args: argparse.Namespace, kind: str, table: list[dict], words: list[dict], run: str
) -> None:
    """Prints or writes a table, and plots words, rows of `Run.surprisal`."""
    from esnlm.reports import surprisal_plot

    content, note = table_text(table, kind, args.quotes), None
    contents: dict[Path, str | bytes] = {} if args.out is None else {args.out: content}
    if args.plot is not None:
        cache = ", with the cache" if args.cache else ""
        title = f"{run}{cache}: surprisal in {args.unit}"
        picture, note = surprisal_plot.plot(words, title, args.plot.suffix)
        if picture is not None:
            contents[args.plot] = picture
    write_files(contents)
    if contents:
        info(f"written: {', '.join(map(str, contents))}")
    if note:
        notice(note)  # also with --quiet
    if args.out is None:
        print(content, end="")


def table_text(rows: Sequence[dict], kind: str, quotes: bool = True) -> str:
    """Formats one or more rows with the same keys as TSV, CSV or JSON lines, with six decimals."""
    from esnlm.reports.report import csv_table

    # + 0.0: no -0.000000
    rounded = [
        {k: round(v, DECIMALS) + 0.0 if isinstance(v, float) else v for k, v in row.items()}
        for row in rows
    ]
    if kind == "jsonl":
        lines = [json.dumps(spell_nonfinite(row), ensure_ascii=False) for row in rounded]
        return "".join(f"{line}\n" for line in lines)
    cells = [
        [f"{v:.{DECIMALS}f}" if isinstance(v, float) else v for v in row.values()]
        for row in rounded
    ]
    return csv_table(list(rows[0]), cells, SEPARATORS[kind], quotes)
