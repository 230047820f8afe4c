"""Draws the learning curve of a run: NLL and minimal-pair accuracy of each saved checkpoint by
words of training text.

The baselines are a unigram, a bigram and a Witten-Bell n-gram model, counted on the sentences that
the run had read at each checkpoint. The page lists the words after which the run leads each, in
NLL, on all minimal pairs and by phenomenon.

`training.checkpoint_words` keeps the checkpoints to measure. The same command resumes an
interrupted measurement.
"""

import argparse
from pathlib import Path

from esnlm.commands.base import SEVERAL
from esnlm.evaluation.conventions import CONVENTIONS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--run", required=True, metavar="DIR", help="the run directory")
    add("--store", required=True, type=Path, metavar="STORE", help="token store to measure NLL on")
    add(
        "--data",
        **SEVERAL,
        metavar="PATH",
        help="minimal pairs to score, as for `blimp` (default: none)",
    )
    add(
        "--scoring",
        choices=list(CONVENTIONS),
        default="paper",
        help="scoring convention for --data (default: paper)",
    )
    add(
        "--order",
        type=int,
        default=5,
        metavar="N",
        help="order of the largest n-gram model (default: %(default)s)",
    )
    out = (
        "file for the figures, with .md and .png beside it (default:"
        " DIR/evaluation/curve/curve.json)"
    )
    add("--out", type=Path, metavar="FILE.json", help=out)
    add(
        "--overwrite",
        action="store_true",
        help="measure all checkpoints again and replace existing figures",
    )


def run(options: argparse.Namespace) -> None:
    from esnlm.commands.learning_curve import measure_curve

    measure_curve(**vars(options))
