"""Prints the log-probability of each sentence under a trained run, in nats, and the sentence.

With --tokens it makes a table of the surprisal of each word or token instead; docs/surprisal.md describes it.
"""

import argparse
from pathlib import Path

from esnlm.commands.base import STEP, step
from esnlm.errors import require
from esnlm.evaluation.conventions import CONVENTIONS

HELP = "prints log-probabilities of sentences, or surprisals of words, under a trained run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--run", required=True, metavar="DIR", help="the run directory")
    add("--input", type=Path, metavar="FILE", help="one sentence a line (default: standard input)")
    add("--scoring", choices=list(CONVENTIONS), default="paper", help="the convention (default: %(default)s)")
    add("--step", type=step, metavar="N", help=STEP)
    add("--tokens", action="store_true", help="a table of the surprisal of each word or token, with what follows here")
    table = parser.add_argument_group("with --tokens")
    add = table.add_argument
    add("--by", choices=("word", "token"), help="a row a word, or a row a token (default: word)")
    add("--unit", choices=("bits", "nats"), help="of surprisals (default: bits)")
    add("--column", metavar="NAME", help="read sentences from this column of a TSV or CSV, and repeat the others")
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


# The options that --tokens alone takes: each is None where it is not given. Those of ROWS say what a row of the table is.
ROWS = ["by", "unit", "punctuation", "whitespace", "eos"]
TABLE = ["by", "unit", "column", "context", "document", "punctuation", "whitespace", "eos"]
TABLE += ["out", "format", "plot", "overwrite"]


def run(options: argparse.Namespace) -> None:
    given = {name: getattr(options, name) for name in TABLE if getattr(options, name) is not None}
    if options.tokens:
        from esnlm.evaluation.surprisal import Options
        from esnlm.workflows.surprisal import tabulate

        rows = Options(scoring=options.scoring, **{name: given.pop(name) for name in ROWS if name in given})
        table = tabulate(options.run, options.input, rows, step=options.step, **given)
        print(table or "", end="")
        return
    names = ["--no-eos" if name == "eos" else f"--{name}" for name in given]
    require(not given, f"{', '.join(names)}: for the table of surprisals, so give --tokens too")
    from esnlm.data.text_files import read_lines
    from esnlm.loaded_run import load
    from esnlm.runs.console import working

    sentences = read_lines(options.input)
    require(len(sentences) > 0, f"{options.input or 'standard input'}: empty: no sentence to score; give one a line")
    with working(f"loading {options.run}"):
        loaded = load(options.run, options.step)
    log_probs = loaded.log_probs(sentences, options.scoring, progress="brief")
    for sentence, log_prob in zip(sentences, log_probs, strict=True):
        print(f"{log_prob:.6f}\t{sentence}")
