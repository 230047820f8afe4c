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
    on = "of --plan: devices that need not be there, such as h100:8, tpu-v5e:4x4 or a100; what is shown is then a bound"
    add("--on", metavar="DEVICE[:COUNT]", help=on)
    traced = "write a trace of these updates, counted from 1, into the run directory (for Perfetto, XProf, TensorBoard)"
    add("--profile", metavar="FROM:TO", help=traced)
    allowed = "settings that may differ from those that the run was begun with, e.g. compute.kernel"
    add("--allow-change", nargs="+", default=(), metavar="KEY", help=allowed)
    accept_processes(parser)
    accept_settings(parser)


def run(options: argparse.Namespace) -> int | None:
    if not options.plan:
        join(options)
    from esnlm import config_io
    from esnlm.errors import require
    from esnlm.training import plan
    from esnlm.training.profile import parse_span
    from esnlm.workflows.train import train_run

    require(options.plan or options.on is None, f"--on {options.on}: nothing is trained there; give --plan too")
    experiment = config_io.read(find_config(options.config), options.settings)
    traced = None if options.profile is None else parse_span(options.profile)
    if options.plan:
        return plan.show(experiment, options.on)
    return train_run(experiment, options.allow_change, traced)
