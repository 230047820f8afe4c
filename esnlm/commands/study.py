"""Trains the runs of a study file and prints their table. --section.key value is for all of them.

Where the file lists the values of a setting, or seeds, --section.key '[A, B]' and --seed '[0, 1]' replace its list.
"""

import argparse
from pathlib import Path

from esnlm.commands.base import SEVERAL, accept_settings, find_config

HELP = "trains the runs of a study file and prints their table"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("file", type=Path, metavar="FILE", help="a study, such as those in configs/studies; before all settings")
    add("--out", type=Path, metavar="DIR", help="where runs and table go (default: the file's out)")
    stores = "token stores for every run, in place of data.train and data.validation"
    add("--stores", nargs=2, metavar=("TRAIN", "VALIDATION"), default=(), help=stores)
    add("--blimp", type=Path, metavar="PATH", help="minimal pairs to score with each run (default: the file's blimp)")
    add("--plan", action="store_true", help="list the runs, what is done, and the time left; trains nothing")
    several = (
        "runs to train side by side, each with its share of the cores or one GPU; auto: what the machine has room for"
    )
    add("--jobs", metavar="J", help=several)
    part = "train every N-th run only, from number I on, counted from 0: one process of a SLURM array"
    add("--cell", metavar="I/N", help=part)
    elsewhere = "table.json of this study from other machines: the runs in them count as done"
    add("--finished", **SEVERAL, type=Path, metavar="TABLE", default=[], help=elsewhere)
    accept_settings(parser)


def run(options: argparse.Namespace) -> int:
    from esnlm.errors import require
    from esnlm.studies.shares import parse_jobs
    from esnlm.studies.study import parse_part, run_study

    behind = (
        any(word.endswith((".yaml", ".yml")) for word in options.settings) and not find_config(options.file).is_file()
    )
    line = "no such file; the study file stands before all settings, as in esnlm study FILE --seed 3"
    require(not behind, f"{options.file}: {line}")
    keys = ("--data.train", "--data.validation")
    stores = [word for pair in zip(keys, options.stores, strict=False) for word in pair]
    return run_study(
        find_config(options.file),
        out=options.out,
        blimp=options.blimp,
        only_plan=options.plan,
        overrides=[*stores, *options.settings],
        command=options.command,
        jobs=parse_jobs(options.jobs),
        part=parse_part(options.cell),
        finished=options.finished,
    )
