"""Trains a language model.

Without arguments it runs the quickstart on a generated corpus, which takes a minute or two.
--section.key value sets any setting of the configuration, such as --model.reservoir.state_size
2048. The command line overrides the file. The same command resumes an interrupted run.
"""

import argparse
from pathlib import Path

from esnlm.commands.base import (
    SEVERAL,
    accept_processes,
    accept_settings,
    find_config,
    join_processes,
    shipped_configs,
)

QUICKSTART = shipped_configs() / "quickstart.yaml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    of_parent = "the file of --from, else"
    add("--config", metavar="FILE", help=f"YAML file (default: {of_parent} {QUICKSTART})")
    parent = (
        "start from this finished run and train in another directory, named by --run"
        " (docs/own_text.md)"
    )
    add("--from", dest="parent", metavar="RUN", help=parent)
    add(
        "--plan",
        action="store_true",
        help="show parameters, updates, memory and disk, and train nothing",
    )
    traced = (
        "write a trace of these updates, counted from 1, into the run directory (for Perfetto,"
        " XProf, TensorBoard)"
    )
    add("--profile", metavar="FROM:TO", help=traced)
    allowed = "settings that may differ from those of the existing run, e.g. compute.kernel"
    add("--allow-change", **SEVERAL, default=[], metavar="KEY", help=allowed)
    add(
        "--upload",
        metavar="URL",
        help="copy the run directory to s3://... or gs://... after each checkpoint",
    )
    accept_processes(parser)
    accept_settings(parser)


def run(options: argparse.Namespace) -> int | None:
    if not options.plan:
        join_processes(options, stops_together=True)
    from esnlm.training import config_io, plan
    from esnlm.training.interruption import parse_span

    read = (
        config_io.read
        if options.parent is None or options.config is not None
        else config_io.read_of_parent
    )
    experiment = read(*_configuration(options))
    traced = None if options.profile is None else parse_span(options.profile)
    if options.plan:
        return plan.show(experiment)
    from esnlm.reports.run_results import show_results
    from esnlm.training.run import train_run

    return train_run(
        experiment,
        options.allow_change,
        show_results=show_results,
        traced=traced,
        upload=options.upload,
    )


def _configuration(options: argparse.Namespace) -> tuple[Path, list[str]]:
    """Returns the configuration file and the settings that override it, later ones over earlier
    ones."""
    from esnlm.training.settings import open_parent

    if options.parent is None:
        return (
            find_config(QUICKSTART if options.config is None else options.config),
            options.overrides,
        )
    parent = open_parent(options.parent)
    config = parent.config if options.config is None else options.config
    # a setting reads "null" as None
    parent_run = f"./{options.parent}" if options.parent == "null" else options.parent
    return find_config(config), [f"--parent.run={parent_run}", *options.overrides]
