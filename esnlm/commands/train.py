"""Trains a language model.

Without arguments it runs the quickstart: a corpus of its own, a minute or two.
--section.key value sets any setting of the configuration, such as --model.reservoir.state_size 2048. The command line
wins over the file. The same command resumes a run that was interrupted.
"""

import argparse
from pathlib import Path

from esnlm.commands.base import SEVERAL, accept_processes, accept_settings, find_config, join_processes, shipped_configs

QUICKSTART = shipped_configs() / "quickstart.yaml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    of_parent = "that of --from, or without it"
    add("--config", metavar="FILE", help=f"YAML file (default: {of_parent} {QUICKSTART})")
    parent = "continue from this finished run in another directory, which --run names (docs/own_text.md)"
    add("--from", dest="parent", metavar="RUN", help=parent)
    add("--plan", action="store_true", help="show parameters, updates, memory and disk, and train nothing")
    traced = "write a trace of these updates, counted from 1, into the run directory (for Perfetto, XProf, TensorBoard)"
    add("--profile", metavar="FROM:TO", help=traced)
    allowed = "settings that may differ from those that the run was begun with, e.g. compute.kernel"
    add("--allow-change", **SEVERAL, default=[], metavar="KEY", help=allowed)
    add("--upload", metavar="URL", help="copy the run directory to s3://... or gs://... after each checkpoint")
    accept_processes(parser)
    accept_settings(parser)


def run(options: argparse.Namespace) -> int | None:
    if not options.plan:
        join_processes(options, stops_together=True)
    from esnlm import config_io
    from esnlm.training import plan
    from esnlm.training.profile import parse_span
    from esnlm.workflows.train import train_run

    read = config_io.read if options.parent is None or options.config is not None else config_io.read_of_parent
    experiment = read(*_configuration(options))
    traced = None if options.profile is None else parse_span(options.profile)
    if options.plan:
        return plan.show(experiment)
    return train_run(experiment, options.allow_change, traced, upload=options.upload)


def _configuration(options: argparse.Namespace) -> tuple[Path, list[str]]:
    """Returns the file of the configuration and the settings that win over it, the last ones most."""
    from esnlm.training.parent import open_run

    if options.parent is None:
        return find_config(QUICKSTART if options.config is None else options.config), options.overrides
    parent = open_run(options.parent)
    config = parent.config if options.config is None else options.config
    parent_run = f"./{options.parent}" if options.parent == "null" else options.parent  # which a setting takes for none
    return find_config(config), [f"--parent.run={parent_run}", *options.overrides]
