"""Trains the runs of a study file and prints their table. --section.key value is for all of them.

If the file lists the values of a setting, or seeds, --section.key '[A, B]' and --seed '[0, 1]' replace its list.
"""

import argparse
from pathlib import Path

from esnlm.commands.base import accept_settings, find_config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("file", type=Path, metavar="FILE", help="a study, such as those in configs/studies; before all settings")
    add("--out", type=Path, metavar="DIR", help="where runs and table go (default: the file's out)")
    stores = "token stores for every run, instead of data.train and data.validation"
    add("--stores", nargs=2, metavar=("TRAIN", "VALIDATION"), default=(), help=stores)
    add("--blimp", type=Path, metavar="PATH", help="minimal pairs to score with each run (default: the file's blimp)")
    add("--plan", action="store_true", help="list the runs and what is done; trains nothing")
    add("--jobs", metavar="J", help="runs to train side by side; auto: one a GPU, or one for every two cores")
    part = "train every N-th run only, from number I on, counted from 0: one process of a SLURM array"
    add("--cell", metavar="I/N", help=part)
    accept_settings(parser)


def run(options: argparse.Namespace) -> int:
    from esnlm.studies.study import run_study

    keys = ("--data.train", "--data.validation")
    return run_study(
        find_config(options.file),
        out=options.out,
        blimp=options.blimp,
        only_plan=options.plan,
        overrides=[*(f"{key}={store}" for key, store in zip(keys, options.stores, strict=False)), *options.settings],
        command=options.command,
        jobs=options.jobs,
        part=options.cell,
    )
