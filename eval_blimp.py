"""Score minimal pairs with a trained run: python eval_blimp.py --run DIR [--data DIR_OR_FILES ...]"""

import argparse
import shlex
import sys
from collections.abc import Sequence

from esnlm.commands.base import Parser, exit_with
from esnlm.evaluation.conventions import CONVENTIONS


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(prog="eval_blimp.py", description="Score minimal pairs (BLiMP) with a trained run.")
    parser.add_argument("--run", required=True, metavar="DIR", help="the run directory")
    parser.add_argument(
        "--data", nargs="+", metavar="PATH", help="folders of .jsonl files, or files (default: the run's own pairs)"
    )
    parser.add_argument(
        "--scoring", default="paper", choices=list(CONVENTIONS), help="convention (default: %(default)s)"
    )
    parser.add_argument("--out", metavar="FILE", help="the report, .json (default: DIR/evaluation/blimp-SCORING.json)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--step", type=int, metavar="N", help="the checkpoint of this step (default: the newest)")
    which.add_argument("--untrained", action="store_true", help="the model before its first update, a baseline")
    parser.add_argument("--compare", metavar="RUN_OR_REPORT", help="another run or report to set this against")
    parser.add_argument("--overwrite", action="store_true", help="replace a report of another run, step or data")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    from esnlm.workflows.blimp import evaluate_run  # after parsing, so that --help need not wait for JAX

    command = shlex.join(["python", "eval_blimp.py", *arguments])
    return exit_with(lambda: evaluate_run(**vars(options), command=command) and 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
