"""Prints the log-probability of each sentence under a trained run, in nats, and the sentence."""

import argparse
from pathlib import Path

from esnlm.evaluation.conventions import CONVENTIONS

HELP = "prints log-probabilities of sentences under a trained run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--run", required=True, metavar="DIR", help="the run directory")
    add("--input", type=Path, metavar="FILE", help="one sentence a line (default: standard input)")
    add("--scoring", choices=list(CONVENTIONS), default="paper", help="the convention (default: %(default)s)")
    add("--step", type=int, help="checkpoint (default: the newest that is good)")


def run(options: argparse.Namespace) -> None:
    from esnlm.data.text_files import read_lines
    from esnlm.errors import require
    from esnlm.loaded_run import load

    sentences = read_lines(options.input)
    require(len(sentences) > 0, f"{options.input or 'standard input'}: empty: no sentence to score; give one a line")
    log_probs = load(options.run, options.step).log_probs(sentences, options.scoring)
    for sentence, log_prob in zip(sentences, log_probs, strict=True):
        print(f"{log_prob:.6f}\t{sentence}")
