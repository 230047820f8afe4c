"""Prints the log-probability of each sentence under a trained run, in nats, and the sentence.

With --tokens it makes a table of the surprisal of each word or token instead; docs/surprisal.md describes it.
"""

import argparse
from pathlib import Path

from esnlm.commands.base import SEVERAL, STEP, step
from esnlm.errors import InputError
from esnlm.evaluation.conventions import CONVENTIONS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--run", required=True, metavar="DIR", help="the run directory")
    add("--input", type=Path, default=Path("-"), metavar="FILE", help="one sentence a line (default: standard input)")
    add("--scoring", choices=list(CONVENTIONS), default="paper", help="the convention (default: %(default)s)")
    add("--step", type=step, metavar="N", help=STEP)
    add("--tokens", action="store_true", help="a table of the surprisal of each word or token, with what follows here")
    table = parser.add_argument_group("with --tokens")
    add = table.add_argument
    add("--by", choices=("word", "token"), default="word", help="a row a word, or a row a token (default: word)")
    add("--unit", choices=("bits", "nats"), default="bits", help="of surprisals (default: bits)")
    which = table.add_mutually_exclusive_group()
    column = "read sentences from this column of a TSV or CSV, and repeat the others"
    which.add_argument("--column", metavar="NAME", help=column)
    word = "a row of the TSV or CSV is a word, in this column: write it again with surprisals"
    which.add_argument("--word", metavar="NAME", help=word)
    apart = "with --word: the columns that tell sentences apart (default: Punkt splits the words)"
    add("--sentence", **SEVERAL, default=[], metavar="NAME", help=apart)
    position = "with --word: the column of the word's place in its sentence (default: zone and the like); or none"
    add("--position", metavar="NAME", help=position)
    separator = "with --word: what joins words (default: a space, or nothing in Chinese, Japanese, Thai and the like)"
    add("--separator", metavar="TEXT", help=separator)
    add("--language", metavar="NAME", default="english", help="with --word: of Punkt (default: %(default)s)")
    add("--no-quotes", action="store_false", dest="quotes", help="quotation marks are a part of cells")
    context = "begin each with a fresh state (default: sentence)"
    add("--context", choices=("sentence", "document"), default="sentence", help=context)
    document = "the columns that tell documents apart (default: all is one; in plain text a blank line ends one)"
    add("--document", **SEVERAL, default=[], metavar="NAME", help=document)
    punctuation = "part of the word it touches, or a word (default: attached)"
    add("--punctuation", choices=("attached", "separate"), default="attached", help=punctuation)
    whitespace = "part of the word it begins, or ends (default: leading)"
    add("--whitespace", choices=("leading", "trailing"), default="leading", help=whitespace)
    add("--no-eos", action="store_false", dest="eos", help="no row for the end of each sentence")
    add("--out", type=Path, metavar="FILE", help="the table's file, .tsv, .csv or .jsonl (default: standard output)")
    add("--format", choices=("tsv", "csv", "jsonl"), help="of the table (default: by the name of --out, else tsv)")
    add("--plot", type=Path, metavar="FILE.png", help="draw the words with their surprisals too")
    add("--overwrite", action="store_true", help="replace these files")


def run(options: argparse.Namespace) -> None:
    if options.tokens:
        from esnlm.commands.score_table import tabulate

        tabulate(options)
        return
    if options.column or options.word or options.out or options.plot:
        raise InputError("--column, --word, --out and --plot are for the table of surprisals: give --tokens too")
    from esnlm.data.text_files import read_lines
    from esnlm.io.console import working
    from esnlm.loaded_run import load

    sentences = read_lines(options.input)
    if not sentences:
        raise InputError(f"{options.input}: empty: no sentence to score; give one a line")
    with working(f"loading {options.run}"):
        loaded = load(options.run, options.step)
    log_probs = loaded.log_probs(sentences, options.scoring, progress="brief")
    for sentence, log_prob in zip(sentences, log_probs, strict=True):
        print(f"{log_prob:.6f}\t{sentence}")
