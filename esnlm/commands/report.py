"""Prints a table of several runs."""

import argparse
from pathlib import Path

HELP = "prints a table of several runs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run directories")
    parser.add_argument("--out", type=Path, metavar="FILE.md", help="write it there, too, and as JSON beside it")


def run(options: argparse.Namespace) -> None:
    from esnlm.reporting.run_table import report

    print(report(options.runs, options.out), end="")
