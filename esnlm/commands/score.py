"""Prints the log-probability of each sentence under a trained run, in nats, followed by the
sentence.

With --tokens it makes a table of the surprisal of each word or token instead (docs/surprisal.md).
"""

import argparse
from pathlib import Path

from esnlm.base.errors import InputError
from esnlm.commands.base import SEVERAL, STEP, step
from esnlm.evaluation.conventions import CONVENTIONS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--run", required=True, metavar="DIR", help="the run directory")
    add(
        "--input",
        type=Path,
        default=Path("-"),
        metavar="FILE",
        help="one sentence per line (default: standard input)",
    )
    add(
        "--scoring",
        choices=list(CONVENTIONS),
        default="paper",
        help="scoring convention (default: %(default)s)",
    )
    add("--step", type=step, metavar="N", help=STEP)
    add("--tokens", action="store_true", help="make a table of the surprisal of each word or token")
    table = parser.add_argument_group("with --tokens")
    add = table.add_argument
    add(
        "--by",
        choices=("word", "token"),
        default="word",
        help="one row per word or per token (default: word)",
    )
    add(
        "--unit", choices=("bits", "nats"), default="bits", help="unit of surprisal (default: bits)"
    )
    which = table.add_mutually_exclusive_group()
    column = "read sentences from this column of a TSV or CSV file and copy its other columns"
    which.add_argument("--column", metavar="NAME", help=column)
    word = "for a TSV or CSV file with one word per row, in this column: copy it and add surprisals"
    which.add_argument("--word", metavar="NAME", help=word)
    apart = "with --word: columns that identify a sentence (default: Punkt finds the sentences)"
    add("--sentence", **SEVERAL, default=[], metavar="NAME", help=apart)
    position = (
        "with --word: column of the word's position in its sentence, or none (default: zone or"
        " similar)"
    )
    add("--position", metavar="NAME", help=position)
    separator = (
        "with --word: text between words (default: a space; none in scripts such as Chinese or"
        " Thai)"
    )
    add("--separator", metavar="TEXT", help=separator)
    space = (
        "with --word: column with No, False or 0 (or CoNLL-U's SpaceAfter=No) if no space follows"
        " the word"
    )
    add("--space-after", metavar="NAME", help=space)
    add(
        "--language",
        metavar="NAME",
        default="english",
        help="with --word: language of Punkt (default: %(default)s)",
    )
    add(
        "--no-quotes",
        action="store_false",
        dest="quotes",
        help="read and write quotation marks as part of the cell",
    )
    context = "reset the state at each sentence or document (default: sentence)"
    add("--context", choices=("sentence", "document"), default="sentence", help=context)
    document = (
        "columns that identify a document (default: one document; in plain text a blank line"
        " ends it)"
    )
    add("--document", **SEVERAL, default=[], metavar="NAME", help=document)
    punctuation = "part of the word it touches, or a word of its own (default: attached)"
    add("--punctuation", choices=("attached", "separate"), default="attached", help=punctuation)
    whitespace = "part of the word after it (leading) or before it (trailing) (default: leading)"
    add("--whitespace", choices=("leading", "trailing"), default="leading", help=whitespace)
    add(
        "--no-eos",
        action="store_false",
        dest="eos",
        help="leave out the row for the end of each sentence",
    )
    add(
        "--out",
        type=Path,
        metavar="FILE",
        help="file for the table: .tsv, .csv or .jsonl (default: standard output)",
    )
    add(
        "--format",
        choices=("tsv", "csv", "jsonl"),
        help="format of the table (default: by --out's name, else tsv)",
    )
    add(
        "--plot",
        type=Path,
        metavar="FILE",
        help="also draw the words with their surprisals, in a .png, .pdf or .svg file",
    )
    add("--overwrite", action="store_true", help="replace existing files")


def run(options: argparse.Namespace) -> None:
    if options.tokens:
        from esnlm.commands.score_table import tabulate

        tabulate(options)
        return
    if (
        options.column
        or options.word
        or options.out
        or options.plot
        or options.context != "sentence"
    ):
        raise InputError("--column, --word, --context, --out and --plot need --tokens")
    from esnlm.base.console import working
    from esnlm.data.text_files import read_lines
    from esnlm.evaluation.sequences import is_blank
    from esnlm.loaded_run import load

    sentences = read_lines(options.input)
    if not any(sentences):
        raise InputError(f"{options.input}: no sentence to score; give one per line")
    with working(f"loading {options.run}"):
        loaded = load(options.run, options.step)
    log_probs = loaded.log_probs(sentences, options.scoring, progress="brief")
    for sentence, log_prob in zip(sentences, log_probs, strict=True):
        value = "" if is_blank(sentence) else f"{log_prob:.6f}"
        print(f"{value}\t{sentence}")
