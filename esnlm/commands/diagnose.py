"""Diagnoses a reservoir: does it forget its initial state, and what does it remember?"""

import argparse
from pathlib import Path

from esnlm.commands.arguments import OVERWRITE, AnySetting, Argument, find_config, local_path

ARGUMENTS = [
    Argument("--run", metavar="DIR", help="the run directory"),
    Argument(
        "--config",
        type=find_config,
        metavar="FILE",
        help="configuration file, in place of a run; --section.key value overrides it",
    ),
    Argument(
        "--data",
        type=Path,
        metavar="FILE",
        help="input text, one sentence per line (default: the run's own)",
    ),
    Argument(
        "--out",
        type=local_path,
        metavar="DIR",
        help="folder for the report (default: diagnostics/ in the run directory)",
    ),
    OVERWRITE,
    AnySetting(),
]


def run(args: argparse.Namespace) -> None:
    from esnlm.diagnosis.diagnose import diagnose

    diagnose(
        args.run, args.config, args.overrides, args.data, args.out, args.overwrite, args.command
    )
