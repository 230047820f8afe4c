"""Diagnoses a reservoir: does it forget its initial state, and what does it remember?"""

import argparse
from pathlib import Path

from esnlm.commands.base import accept_settings, find_config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--run", metavar="DIR", help="the run directory")
    config = "configuration file, in place of a run; --section.key value overrides it"
    add("--config", type=find_config, metavar="FILE", help=config)
    add(
        "--data",
        type=Path,
        metavar="FILE",
        help="input text, one sentence per line (default: the run's own)",
    )
    add(
        "--out",
        type=Path,
        metavar="DIR",
        help="folder for the report (default: diagnostics/ in the run directory)",
    )
    add("--overwrite", action="store_true", help="replace a report of another reservoir or text")
    accept_settings(parser)


def run(options: argparse.Namespace) -> None:
    from esnlm.diagnosis.diagnose import diagnose

    diagnose(**vars(options))
