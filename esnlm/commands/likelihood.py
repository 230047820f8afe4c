"""Measures how likely texts are under a trained run, beside a unigram and a bigram model of its training text.

NLL (nats per predicted token) with and without EOS, bits per byte, nats per word and perplexity. EOS is predicted, and its nats
are in every figure but "without EOS". It is no word and has no bytes. Words are what stands between white space.

A text (--text) is one sentence a line, and all of its sentences are kept. For text that is to be split into sentences, make a
store: esnlm prepare --input FILE --tokenizer DIR/tokenizer --out STORE, which also drops sentences of fewer than 6 tokens.
"""

import argparse
from pathlib import Path

from esnlm.commands.base import SEVERAL, STEP, step


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--run", required=True, metavar="DIR", help="the run directory")
    add("--store", dest="stores", **SEVERAL, type=Path, default=[], metavar="STORE", help="token stores")
    add("--text", dest="texts", **SEVERAL, type=Path, default=[], metavar="FILE", help="texts, one sentence a line")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--step", type=step, metavar="N", help=STEP)
    which.add_argument("--untrained", action="store_true", help="the model before its first update")
    add("--out", type=Path, metavar="FILE.json", help="write the figures there, too")
    add("--overwrite", action="store_true", help="replace FILE.json where it exists")


def run(options: argparse.Namespace) -> None:
    from esnlm.commands.likelihood_table import measure_run

    measure_run(**vars(options))
