"""Trains the runs of a study file and prints their table. --section.key value applies to all runs.

If the file lists values of a setting, or seeds, --section.key '[A, B]' and --seed '[0, 1]' replace
the list.
"""

import argparse
from pathlib import Path

from esnlm.commands.base import accept_settings, find_config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "file",
        type=find_config,
        metavar="FILE",
        help="study file, as in configs/studies; give it before all settings",
    )
    add(
        "--out",
        type=Path,
        metavar="DIR",
        help="folder for runs and table (default: the file's out)",
    )
    stores = "token stores for every run, instead of data.train and data.validation"
    add("--stores", nargs=2, metavar=("TRAIN", "VALIDATION"), default=(), help=stores)
    add(
        "--blimp",
        type=Path,
        metavar="PATH",
        help="minimal pairs to score with each run (default: the file's blimp)",
    )
    add(
        "--plan",
        dest="only_plan",
        action="store_true",
        help="list the runs and their progress; train nothing",
    )
    add(
        "--jobs",
        metavar="J",
        help="runs to train at the same time; auto: one per GPU, or one per two cores",
    )
    part = "train every N-th run only, from run I (counted from 0): one process of a SLURM array"
    add("--cell", dest="part", metavar="I/N", help=part)
    accept_settings(parser)


def run(options: argparse.Namespace) -> int:
    from esnlm.studies.study import run_study

    if stores := vars(options).pop("stores"):
        options.overrides[:0] = [f"--data.train={stores[0]}", f"--data.validation={stores[1]}"]
    return run_study(**vars(options))
