"""Draws the learning curve of a run: NLL and minimal pairs at every saved checkpoint, by the words read until then.

Beside it stand a unigram, a bigram and a Witten-Bell n-gram model, counted on the very sentences that the run had read by
then. The page says from how many words on the run is ahead of each, in NLL, on all minimal pairs, and by phenomenon.

`training.checkpoint_words` keeps the checkpoints to measure. A curve that was broken off goes on with the same command.
"""

import argparse
from pathlib import Path

from esnlm.commands.base import SEVERAL
from esnlm.evaluation.conventions import CONVENTIONS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--run", required=True, metavar="DIR", help="the run directory")
    add("--store", required=True, type=Path, metavar="STORE", help="the token store whose NLL is measured")
    add("--data", **SEVERAL, metavar="PATH", help="minimal pairs, as for `blimp` (default: none are scored)")
    add("--scoring", choices=list(CONVENTIONS), default="paper", help="the convention, with --data (default: paper)")
    add("--order", type=int, default=5, metavar="N", help="of the largest n-gram model (default: %(default)s)")
    out = "the figures, with .md and .png (default: DIR/evaluation/curve/curve.json)"
    add("--out", type=Path, metavar="FILE.json", help=out)
    add("--overwrite", action="store_true", help="replace the figures that are there, and measure all again")


def run(options: argparse.Namespace) -> None:
    from esnlm.workflows.learning_curve import measure_curve

    measure_curve(**vars(options))
