"""Says which claims hold in studies: each sentence beside our numbers, the paper's if a paper says it, and a verdict."""

import argparse
from pathlib import Path

from esnlm.commands.base import find_config

HELP = "says which claims, by default the papers', hold in studies"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("folder", type=Path, metavar="DIR", help="where the folders of the studies lie, such as studies/two_cores")
    claims = "the claims, and how each is tested (default: %(default)s)"
    add("--claims", type=Path, default=Path("configs/studies/claims.yaml"), metavar="FILE", help=claims)
    add("--out", type=Path, metavar="FILE", help="write the page there, too, as Markdown")


def run(options: argparse.Namespace) -> None:
    from esnlm.studies.claims_page import write_page

    print(write_page(options.folder, find_config(options.claims), options.out, options.command), end="")
