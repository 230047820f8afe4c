"""Scores minimal pairs (BLiMP) with a trained run.

docs/minimal_pairs.md describes what --data reads: JSON lines, tables, Zorro's files, and sets of sentences.
"""

import argparse

from esnlm.commands.base import SEVERAL, STEP, accept_processes, join_processes, step
from esnlm.evaluation.conventions import CONVENTIONS, NORMALIZATIONS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--run", required=True, metavar="DIR", help="the run directory")
    data = "folders or files, or FOLDER/NAME of a paradigm (default: the run's own)"
    add("--data", **SEVERAL, metavar="PATH", help=data)
    add("--good", metavar="COLUMN", help="the column or field of the right sentence (default: sentence_good)")
    add("--bad", **SEVERAL, metavar="COLUMN", help="that of the wrong one, or of several (default: sentence_bad)")
    add("--group", "--paradigm", metavar="COLUMN", help="that of the paradigm (default: UID, or the file's name)")
    add("--phenomenon", metavar="COLUMN", help="that of the phenomenon (default: linguistics_term or phenomenon)")
    add("--label", metavar="COLUMN", help="in a table with a row a sentence (--good): whether it is grammatical")
    add("--pair", metavar="COLUMN", help="and the number or name of its pair")
    add("--scoring", default="paper", choices=list(CONVENTIONS), help="the convention (default: %(default)s)")
    normalize = "give the accuracy by log p a token, or a byte, too (default: %(default)s)"
    add("--normalize", default="none", choices=NORMALIZATIONS, help=normalize)
    add("--out", metavar="FILE", help="the report, .json (default: DIR/evaluation/blimp-SCORING.json)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--step", type=step, metavar="N", help=STEP)
    which.add_argument("--untrained", action="store_true", help="the model before its first update, a baseline")
    add("--compare", metavar="RUN_OR_REPORT", help="another run or report to set this against")
    add("--overwrite", action="store_true", help="replace a report of another run, step or data")
    accept_processes(parser)


def run(options: argparse.Namespace) -> None:
    join_processes(options, stops_together=False)
    from esnlm.evaluate_run import evaluate_run

    evaluate_run(**vars(options))
