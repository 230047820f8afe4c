"""Prints the log-probability of each sentence under a trained run, in nats, and the sentence.

With --tokens it makes a table of the surprisal of each word or token instead; docs/surprisal.md describes it.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from esnlm.commands.base import SEVERAL, STEP, step
from esnlm.errors import InputError
from esnlm.evaluation.conventions import CONVENTIONS

HELP = "prints log-probabilities of sentences, or surprisals of words, under a trained run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--run", required=True, metavar="DIR", help="the run directory")
    add("--input", type=_text_file, metavar="FILE", help="one sentence a line; - is standard input (default)")
    add("--scoring", choices=list(CONVENTIONS), default="paper", help="the convention (default: %(default)s)")
    add("--step", type=step, metavar="N", help=STEP)
    add("--tokens", action="store_true", help="a table of the surprisal of each word or token, with what follows here")
    table = parser.add_argument_group("with --tokens")
    add = table.add_argument
    add("--by", choices=("word", "token"), help="a row a word, or a row a token (default: word)")
    add("--unit", choices=("bits", "nats"), help="of surprisals (default: bits)")
    add("--column", metavar="NAME", help="read sentences from this column of a TSV or CSV, and repeat the others")
    add(
        "--word",
        metavar="NAME",
        help="a row of the TSV or CSV is a word, in this column: write it again with surprisals",
    )
    add(
        "--sentence",
        **SEVERAL,
        metavar="NAME",
        help="with --word: the columns that tell sentences apart (default: Punkt splits the words)",
    )
    add("--language", metavar="NAME", help="with --word: of Punkt (default: english)")
    add("--no-quotes", action="store_const", const=False, dest="quotes", help="quotation marks are a part of cells")
    add("--context", choices=("sentence", "document"), help="begin each with a fresh state (default: sentence)")
    add(
        "--document",
        metavar="NAME",
        help="the column that tells documents apart (default: all is one; in plain text a blank line ends one)",
    )
    add(
        "--punctuation",
        choices=("attached", "separate"),
        help="part of the word it touches, or a word (default: attached)",
    )
    add("--whitespace", choices=("leading", "trailing"), help="part of the word it begins, or ends (default: leading)")
    add("--no-eos", action="store_const", const=False, dest="eos", help="no row for the end of each sentence")
    add("--out", type=Path, metavar="FILE", help="the table's file, .tsv, .csv or .jsonl (default: standard output)")
    add("--format", choices=("tsv", "csv", "jsonl"), help="of the table (default: by the name of --out, else tsv)")
    add("--plot", type=Path, metavar="FILE.png", help="draw the words with their surprisals too")
    add("--overwrite", action="store_const", const=True, help="replace these files")


# The options of --tokens alone: each is None if it is not given.
ROWS = ("by", "unit", "punctuation", "whitespace", "eos")
FILES = ("out", "format", "plot", "overwrite")
INPUT = ("column", "word", "sentence", "language", "context", "document", "quotes")
FLAGS = {"eos": "--no-eos", "quotes": "--no-quotes"}


def _text_file(text: str) -> Path | None:
    """Returns the file that --input names; None: standard input."""
    return None if text == "-" else Path(text)


def run(options: argparse.Namespace) -> None:
    if options.tokens:
        from esnlm.commands.score_table import Input, Output, tabulate
        from esnlm.evaluation.surprisal import Options

        text = Input(file=options.input, **_given(options, INPUT))
        rows = Options(scoring=options.scoring, **_given(options, ROWS))
        print(tabulate(options.run, text, rows, Output(**_given(options, FILES)), options.step) or "", end="")
        return
    if given := [FLAGS.get(name, f"--{name}") for name in _given(options, ROWS + FILES + INPUT)]:
        raise InputError(f"{', '.join(given)}: for the table of surprisals, so give --tokens too")
    from esnlm.data.text_files import read_lines
    from esnlm.io.console import working
    from esnlm.loaded_run import load

    sentences = read_lines(options.input)
    if not sentences:
        raise InputError(f"{options.input or 'standard input'}: empty: no sentence to score; give one a line")
    with working(f"loading {options.run}"):
        loaded = load(options.run, options.step)
    log_probs = loaded.log_probs(sentences, options.scoring, progress="brief")
    for sentence, log_prob in zip(sentences, log_probs, strict=True):
        print(f"{log_prob:.6f}\t{sentence}")


def _given(options: argparse.Namespace, names: Sequence[str]) -> dict[str, Any]:
    """Returns the options of these names that were given."""
    return {name: value for name in names if (value := getattr(options, name)) is not None}
