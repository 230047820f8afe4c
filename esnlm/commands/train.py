"""Trains a language model.

Without arguments it runs the quickstart on a generated corpus, which takes a minute or two.
--section.key value sets any setting of the configuration, such as --model.reservoir.state_size
2048. The command line overrides the file. The same command resumes an interrupted run.
"""

import argparse
from typing import TYPE_CHECKING

from esnlm.commands.arguments import (
    PROCESSES,
    SEVERAL,
    AnySetting,
    Argument,
    find_config,
    join_processes,
    shipped_configs,
)

if TYPE_CHECKING:
    from esnlm.training.config import Experiment

QUICKSTART = shipped_configs() / "quickstart.yaml"


ARGUMENTS = [
    Argument(
        "--config",
        metavar="FILE",
        help=f"YAML file (default: the file of --from, else {QUICKSTART})",
    ),
    Argument(
        "--from",
        dest="parent",
        metavar="RUN",
        help="start from this finished run and train in another directory, named by --run"
        " (docs/own_text.md)",
    ),
    Argument(
        "--plan",
        action="store_true",
        help="show parameters, updates, memory and disk, and train nothing",
    ),
    Argument(
        "--profile",
        metavar="FROM:TO",
        help="write a trace of these updates, counted from 1, into the run directory (for Perfetto,"
        " XProf, TensorBoard)",
    ),
    Argument(
        "--allow-change",
        **SEVERAL,
        default=[],
        metavar="KEY",
        help="settings that may differ from those of the existing run, e.g. compute.kernel",
    ),
    Argument(
        "--upload",
        metavar="URL",
        help="copy the run directory to s3://... or gs://... after each checkpoint",
    ),
    *PROCESSES,
    AnySetting(),
]


def run(args: argparse.Namespace) -> int | None:
    if not args.plan:
        join_processes(args, stops_together=True)
    from esnlm.training import plan
    from esnlm.training.interruption import parse_span

    experiment = read_experiment(args)
    traced = None if args.profile is None else parse_span(args.profile)
    if args.plan:
        return plan.show(experiment)
    from esnlm.reports.run_results import show_results
    from esnlm.training.run import train_run

    return train_run(
        experiment,
        args.allow_change,
        show_results=show_results,
        traced=traced,
        upload=args.upload,
    )


def read_experiment(args: argparse.Namespace) -> "Experiment":
    """Reads the configuration: of --config, else of the parent, else of the quickstart."""
    from esnlm.training import config_io
    from esnlm.training.settings import open_parent

    if args.parent is None:
        return config_io.read(find_config(args.config or QUICKSTART), args.overrides)
    parent = open_parent(args.parent)
    # A setting reads "null" as None.
    name = "./null" if args.parent == "null" else args.parent
    settings = [f"--parent.run={name}", *args.overrides]
    if args.config is None:
        return config_io.read_of_parent(parent.config, settings)
    return config_io.read(find_config(args.config), settings)
