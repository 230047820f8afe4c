"""Trains the runs of a study file and prints their table. --section.key value applies to all runs.

If the file lists values of a setting, or seeds, --section.key '[A, B]' and --seed '[0, 1]' replace
the list.
"""

import argparse
from pathlib import Path

from esnlm.commands.arguments import AnySetting, Argument, find_config, local_path

ARGUMENTS = [
    Argument(
        "file",
        type=find_config,
        metavar="FILE",
        help="study file, as in configs/studies; give it before all settings",
    ),
    Argument(
        "--out",
        type=local_path,
        metavar="DIR",
        help="folder for runs and table (default: the file's out)",
    ),
    Argument(
        "--stores",
        nargs=2,
        metavar=("TRAIN", "VALIDATION"),
        default=(),
        help="token stores for every run, instead of data.train and data.validation",
    ),
    Argument(
        "--blimp",
        type=Path,
        metavar="PATH",
        help="minimal pairs to score with each run (default: the file's blimp)",
    ),
    Argument(
        "--plan",
        dest="only_plan",
        action="store_true",
        help="list the runs and their progress; train nothing",
    ),
    Argument(
        "--jobs",
        metavar="J",
        help="runs to train at the same time; auto: one per GPU, or one per two cores",
    ),
    Argument(
        "--part",
        metavar="I/N",
        help="train every N-th run only, from run I (counted from 0): one process of a SLURM array",
    ),
    AnySetting(),
]


def run(args: argparse.Namespace) -> int:
    from esnlm.studies.study import run_study

    settings = args.overrides
    if args.stores:
        train, validation = args.stores
        settings = [f"--data.train={train}", f"--data.validation={validation}", *settings]
    return run_study(
        args.file,
        args.out,
        args.blimp,
        args.only_plan,
        settings,
        args.command,
        args.jobs,
        args.part,
    )
