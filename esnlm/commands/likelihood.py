"""Measures the likelihood of texts under a trained run, beside unigram and bigram models of its
training text.

Prints NLL (nats per predicted token) with and without EOS, bits per byte, nats per word and
perplexity. All figures but "without EOS" include the nats of EOS, which counts as no word and no
bytes. Words are separated by white space.

--text reads one sentence per line and keeps all sentences; of records and tables, the lines of the
field `text`. To split running text into sentences, make a store: esnlm prepare --input FILE
--tokenizer DIR/tokenizer --out STORE, which also drops sentences of fewer than 6 tokens.
"""

import argparse
from pathlib import Path

from esnlm.commands.base import SEVERAL, STEP, step


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--run", required=True, metavar="DIR", help="the run directory")
    add(
        "--store",
        dest="stores",
        **SEVERAL,
        type=Path,
        default=[],
        metavar="STORE",
        help="token stores to measure",
    )
    add(
        "--text",
        dest="texts",
        **SEVERAL,
        type=Path,
        default=[],
        metavar="FILE",
        help="texts, one sentence per line; a blank line ends a document",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--step", type=step, metavar="N", help=STEP)
    which.add_argument(
        "--untrained", action="store_true", help="measure the model before its first update"
    )
    add("--out", type=Path, metavar="FILE.json", help="also write the figures to this file")
    add("--overwrite", action="store_true", help="replace an existing FILE.json")


def run(options: argparse.Namespace) -> None:
    from esnlm.commands.likelihood_table import measure_run

    measure_run(**vars(options))
