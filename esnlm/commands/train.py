"""Trains a language model.

Without arguments it runs the quickstart: a corpus of its own, three minutes.
--section.key value sets any setting of the configuration, such as --model.reservoir.state_size 2048. The command line
wins over the file. The same command resumes a run that was interrupted.
"""

import argparse

from esnlm.commands.base import accept_processes, accept_settings, find_config, join, shipped_configs

HELP = "trains a language model; --section.key value sets any setting"
QUICKSTART = shipped_configs() / "quickstart.yaml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--config", default=QUICKSTART, metavar="FILE", help="YAML file (default: %(default)s)")
    add("--plan", action="store_true", help="show parameters, memory, disk and time, and train nothing")
    allowed = "settings that may differ from those that the run was begun with, e.g. compute.kernel"
    add("--allow-change", nargs="+", default=(), metavar="KEY", help=allowed)
    accept_processes(parser)
    accept_settings(parser)


def run(options: argparse.Namespace) -> int | None:
    if not options.plan:
        join(options)
    from esnlm import config_io
    from esnlm.training import plan
    from esnlm.workflows.train import train_run

    experiment = config_io.read(find_config(options.config), options.settings)
    return plan.show(experiment) if options.plan else train_run(experiment, options.allow_change)
