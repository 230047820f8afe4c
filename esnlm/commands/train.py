"""Trains a language model.

Without arguments it runs the quickstart: a corpus of its own, a minute or two.
--section.key value sets any setting of the configuration, such as --model.reservoir.state_size 2048. The command line
wins over the file. The same command resumes a run that was interrupted.
"""

import argparse
from pathlib import Path

from esnlm.commands.base import SEVERAL, accept_processes, accept_settings, find_config, join, shipped_configs

HELP = "trains a language model; --section.key value sets any setting"
QUICKSTART = shipped_configs() / "quickstart.yaml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    of_parent = "that of --from, or without it"
    add("--config", metavar="FILE", help=f"YAML file (default: {of_parent} {QUICKSTART})")
    parent = "go on from this finished run in another directory, which --run names (docs/continue.md)"
    add("--from", dest="parent", metavar="RUN", help=parent)
    add("--plan", action="store_true", help="show parameters, memory, disk and time, and train nothing")
    traced = "write a trace of these updates, counted from 1, into the run directory (for Perfetto, XProf, TensorBoard)"
    add("--profile", metavar="FROM:TO", help=traced)
    allowed = "settings that may differ from those that the run was begun with, e.g. compute.kernel"
    add("--allow-change", **SEVERAL, default=[], metavar="KEY", help=allowed)
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

    for before, word in zip(["", *options.settings], options.settings, strict=False):
        is_value = before.startswith("--") and "=" not in before
        is_file = word.endswith((".yaml", ".yml")) and not word.startswith("--") and not is_value
        require(not is_file, f"{word}: no option stands before it; give a configuration with --config {word}")
    read = config_io.read if options.parent is None or options.config is not None else config_io.read_of_parent
    experiment = read(*_configuration(options))
    traced = None if options.profile is None else parse_span(options.profile)
    if options.plan:
        return plan.show(experiment)
    return train_run(experiment, options.allow_change, traced)


def _configuration(options: argparse.Namespace) -> tuple[Path, list[str]]:
    """Returns the file of the configuration and the settings that win over it, the last ones most."""
    from esnlm.training.parent import open_run

    if options.parent is None:
        return find_config(QUICKSTART if options.config is None else options.config), options.settings
    parent = open_run(options.parent)
    chosen = [f"--parent.run={_spell_path(options.parent)}"]
    if options.config is None:
        # What the parent's own configuration says of its directory, device and parent is not for this run.
        chosen += ["--run=", "--compute.kernel=auto"]
        chosen += ["--compute.batch_slots=null", "--compute.window_tokens=null", "--compute.mesh=null"]
        chosen += ["--parent.step=null", "--parent.keep_optimizer=false", "--parent.config_sha256=null"]
    config = parent.config if options.config is None else options.config
    return find_config(config), [*chosen, *options.settings]


def _spell_path(path: str) -> str:
    """Returns a path so that YAML does not take it for null, as it does with `null`, `~` and `#1`."""
    import yaml

    try:
        is_null = yaml.safe_load(path) is None
    except (yaml.YAMLError, ValueError):  # also of a date that is none
        return path
    return f"./{path}" if is_null else path
