"""Prints a table of several runs."""

import argparse
from pathlib import Path

HELP = "prints a table of several runs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run directories")
    add = parser.add_argument
    add("--out", type=Path, metavar="FILE", help="write it there, too, as Markdown, .tex or .csv, with JSON beside it")
    add("--seeds", action="store_true", help="make one row of runs that differ in nothing but their seed")
    rows = "what the rows are (default: %(default)s); of phenomena and paradigms, the accuracies of each run"
    add("--by", choices=["run", "phenomenon", "paradigm"], default="run", help=rows)
    add("--scoring", default="paper", metavar="NAME", help="with --by: which report, evaluation/blimp-NAME.json")


def run(options: argparse.Namespace) -> None:
    from esnlm.reporting.run_table import report

    print(report(options.runs, options.out, options.seeds, options.by, options.scoring), end="")
