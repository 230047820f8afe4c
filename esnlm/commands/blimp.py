"""Scores minimal pairs (BLiMP) with a trained run.

--data reads JSON lines, tables, Zorro's files and sets of sentences, compressed or not;
docs/minimal_pairs.md describes them.
"""

import argparse

from esnlm.commands.base import SEVERAL, STEP, accept_processes, join_processes, step
from esnlm.evaluation.conventions import CONVENTIONS, NORMALIZATIONS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--run", required=True, metavar="DIR", help="the run directory")
    data = (
        "files or folders of minimal pairs, or FOLDER/PARADIGM (default: the pairs of the run's own"
        " data)"
    )
    add("--data", **SEVERAL, metavar="PATH", help=data)
    add(
        "--good",
        metavar="COLUMN",
        help="column or field of the grammatical sentence (default: sentence_good)",
    )
    add(
        "--bad",
        **SEVERAL,
        metavar="COLUMN",
        help="column(s) of the ungrammatical sentence (default: sentence_bad)",
    )
    add(
        "--group",
        "--paradigm",
        metavar="COLUMN",
        help="column of the paradigm (default: UID or paradigm, or the file's name)",
    )
    add(
        "--phenomenon",
        metavar="COLUMN",
        help="column of the phenomenon (default: linguistics_term or phenomenon)",
    )
    add(
        "--label",
        metavar="COLUMN",
        help="column of grammaticality, in a table with one sentence per row (in --good)",
    )
    add(
        "--pair",
        metavar="COLUMN",
        help="column of the pair's number or name in its paradigm, in such a table",
    )
    add(
        "--scoring",
        default="paper",
        choices=list(CONVENTIONS),
        help="scoring convention (default: %(default)s)",
    )
    normalize = "also report the accuracy by log p per token or per byte (default: %(default)s)"
    add("--normalize", default="none", choices=NORMALIZATIONS, help=normalize)
    add(
        "--out",
        metavar="FILE",
        help="JSON report to write (default: DIR/evaluation/blimp-SCORING.json)",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--step", type=step, metavar="N", help=STEP)
    which.add_argument(
        "--untrained",
        action="store_true",
        help="score the model before its first update, a baseline",
    )
    add("--compare", metavar="RUN_OR_REPORT", help="run or report to compare with")
    add("--overwrite", action="store_true", help="replace a report made with other settings")
    accept_processes(parser)


def run(options: argparse.Namespace) -> None:
    join_processes(options, stops_together=False)
    from esnlm.commands.evaluate_run import evaluate_run

    evaluate_run(**vars(options))
