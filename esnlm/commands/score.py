"""Prints the log-probability of each sentence under a trained run, in nats, followed by the
sentence.

With --tokens it makes a table of the surprisal of each word or token instead (docs/surprisal.md).
"""

import argparse
import dataclasses
import json
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from esnlm.base.console import counted, info, notice
from esnlm.base.errors import InputError
from esnlm.base.files import spell_nonfinite, write_files
from esnlm.commands.arguments import (
    CACHE,
    OVERWRITE,
    RUN,
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

if TYPE_CHECKING:
    from esnlm.commands.score_input import InputText

SEPARATORS = {"tsv": "\t", "csv": ","}
DECIMALS = 6


ARGUMENTS = [
    RUN,
    Argument(
        "--input",
        type=Path,
        default=Path("-"),
        metavar="FILE",
        help="one sentence per line (default: standard input)",
    ),
    SCORING,
    STEP,
    Argument(
        "--tokens", action="store_true", help="make a table of the surprisal of each word or token"
    ),
    ArgumentGroup(
        "with --tokens",
        Argument(
            "--by",
            choices=("word", "token"),
            default="word",
            help="one row per word or per token (default: word)",
        ),
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
                " surprisals",
            ),
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
    if args.tokens:
        make_table(args)
    elif (
        args.column
        or args.word
        or args.out
        or args.plot
        or args.cache
        or args.context != "sentence"
    ):
        raise InputError("--column, --word, --context, --cache, --out and --plot need --tokens")
    else:
        print_log_probs(args)


def print_log_probs(args: argparse.Namespace) -> None:
    """Prints the log-probability and the text of each line; a blank line has no log-probability."""
    from esnlm.data.text_files import read_lines
    from esnlm.evaluation.conventions import is_blank

    sentences = read_lines(args.input)
    if not any(sentences):
        raise InputError(f"{args.input}: no sentence to score; give one per line")
    log_probs = load_run(args).log_probs(sentences, args.scoring, progress="brief")
    for sentence, log_prob in zip(sentences, log_probs, strict=True):
        value = "" if is_blank(sentence) else f"{log_prob:.6f}"
        print(f"{value}\t{sentence}")


def make_table(args: argparse.Namespace) -> None:
    """Prints or writes the table of surprisals. Checks all input before it scores."""
    from esnlm.commands.score_input import read_input
    from esnlm.evaluation.conventions import is_blank
    from esnlm.evaluation.surprisal import Options
    from esnlm.reports import plots, surprisal_plot

    suffix = ".tsv" if args.out is None else args.out.suffix.lower()
    kind = args.format or suffix.removeprefix(".")
    if kind not in (*SEPARATORS, "jsonl"):
        raise InputError(f"{args.out}: end the name in .tsv, .csv or .jsonl, or give --format")
    check_output(args.out, args.overwrite)
    check_output(args.plot, args.overwrite, plots.SUFFIXES)
    options = Options(args.by, args.unit, args.punctuation, args.whitespace, args.eos, args.scoring)
    surprisal = f"surprisal_{args.unit}"
    columns = options.columns()
    if args.word is not None:  # one row per row of the input table
        options = dataclasses.replace(options, by="word", punctuation="attached", eos=False)
        columns = [surprisal]
    text = read_input(args)
    if text.rows is None and all(map(is_blank, text.sentences)):
        raise InputError(f"{args.input}: no sentence to score: the text is all white space")
    for name in columns:
        if name in text.cells[0]:
            raise InputError(
                f"{args.input}: column {name!r} would appear twice in the table: rename it"
            )
    if not args.quotes and kind in SEPARATORS:
        _check_unquoted(text, args.input, kind)

    loaded = load_run(args)
    rows = loaded.surprisal(
        text.sentences,
        context=args.context,
        documents=text.documents if args.cache or args.context == "document" else None,
        cache=args.cache,
        separator=args.separator,
        spaces=text.spaces,
        progress="brief",
        **dataclasses.asdict(options),
    )
    if text.rows is None:
        table = [row | text.cells[row["sentence"]] for row in rows]
    else:
        values = {
            row: scored[surprisal] for row, scored in zip(chain(*text.rows), rows, strict=True)
        }
        table = [cells | {surprisal: values[row]} for row, cells in enumerate(text.cells)]
        if shared := sum(value is None for value in values.values()):
            info(
                f"{counted(shared, 'empty cell')}: the word shares a token with the one before,"
                " which has both surprisals"
            )
    content = table_text(table, kind, args.quotes)
    note = None
    contents: dict[Path, str | bytes] = {} if args.out is None else {args.out: content}
    if args.plot is not None:
        cache = ", with the cache" if args.cache else ""
        title = f"{loaded.name}, step {loaded.step}{cache}: surprisal in {args.unit}"
        picture, note = surprisal_plot.plot(rows, title, args.plot.suffix)
        if picture is not None:
            contents[args.plot] = picture
    write_files(contents)
    if contents:
        info(f"written: {', '.join(map(str, contents))}")
    if note:
        notice(note)  # also with --quiet
    if args.out is None:
        print(content, end="")


def _check_unquoted(text: "InputText", file: Path, kind: str) -> None:
    """Raises InputError if a cell has the table's separator, which needs quotation marks."""
    separator = SEPARATORS[kind]
    copied = chain.from_iterable(cells.values() for cells in text.cells)
    for cell in chain(text.cells[0], copied, text.sentences if text.rows is None else []):
        if separator in cell:
            raise InputError(
                f"{file}: {cell!r} has the separator of {kind}, which --no-quotes cannot write:"
                " choose another --format"
            )


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
