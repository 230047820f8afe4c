"""The command line: `esnlm COMMAND ...`, also as `python -m esnlm COMMAND ...`.

A command is a module with two functions, listed in COMMANDS. `esnlm COMMAND --help` prints its
docstring, and `esnlm --help` the docstring's first line:

    add_arguments(parser)      adds its arguments to an argparse parser
    run(options)               does the work and returns the exit status (None means 0)

Heavy imports stand inside `run`, so that --help and wrong arguments are answered at once.
"""

import importlib
import os
import shlex
import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from types import ModuleType

from esnlm.base.console import clock, detail, speaking
from esnlm.base.errors import InputError
from esnlm.base.remote import full_name, is_url
from esnlm.commands.base import Parser, accept_levels
from esnlm.machine.process import exit_with

OFTEN = ("train", "blimp", "prepare", "score", "likelihood", "curve", "generate", "study")
OTHERS = ("lm-eval", "babylm", "diagnose", "report", "export")
COMMANDS = {name: f"esnlm.commands.{name.replace('-', '_')}" for name in (*OFTEN, *OTHERS)}
COMMANDS["import"] = "esnlm.commands.import_gpt2"


def main(arguments: Sequence[str] | None = None, program: str = "esnlm") -> int:
    """Runs the command named by the first argument and returns its exit status (process.py).

    `arguments` defaults to sys.argv[1:]. `program` is the program's name in the help text.
    """
    return exit_with(lambda: _run(_whole_parser(program), arguments))


def run_command(name: str, arguments: Sequence[str] | None, program: str) -> int:
    """Runs one command of COMMANDS under the name `program` and returns its exit status, as `main`
    does."""
    return exit_with(lambda: _run(parser_of(name, program), arguments))


def _whole_parser(program: str) -> Parser:
    parser = Parser(program, description="Echo state network language models at scale.")
    commands = parser.add_subparsers(
        title="commands (each has its own --help)", metavar="COMMAND", required=True
    )
    for name, module in COMMANDS.items():
        command = importlib.import_module(module)
        first = (command.__doc__ or "").splitlines()[0]
        added = _with_arguments(
            commands.add_parser(name, help=first, conflict_handler="resolve"), command
        )
        if "_ARGCOMPLETE" in os.environ and added.get_default("overrides") is not None:
            from esnlm.training.config import Experiment, as_dict, flatten

            for setting in flatten(as_dict(Experiment())):
                added.add_argument(f"--{setting}")
    # a shell completes a line: eval "$(register-python-argcomplete esnlm)"
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete  # from esnlm[completion]

        argcomplete.autocomplete(parser)
    return parser


def parser_of(name: str, program: str) -> Parser:
    """Returns the parser of a command's arguments."""
    return _with_arguments(Parser(program), importlib.import_module(COMMANDS[name]))


def _with_arguments(parser: Parser, command: ModuleType) -> Parser:
    parser.description = command.__doc__
    command.add_arguments(parser)
    accept_levels(parser)
    parser.set_defaults(work=command.run)
    return parser


def _run(parser: Parser, arguments: Sequence[str] | None) -> int | None:
    words = sys.argv[1:] if arguments is None else list(arguments)
    options, others = parser.parse_known_args(words)
    if any(
        not word and before not in ("--prompt", "--separator")
        for before, word in pairwise(["", *words])
    ):
        parser.error("an argument is empty (is a variable not set?); leave it out, or give a value")
    if "overrides" in options:
        options.overrides = others
    elif others:
        parser.error(f"unrecognized arguments: {' '.join(others)}")
    for option in ("out", "html", "plot"):
        place = getattr(options, option, None)
        if place is not None and is_url(place):
            raise InputError(
                f"--{option} {full_name(place)}: results go to this machine only; name a local path"
            )
    options.command = " ".join([parser.prog, shlex.join(words)]).strip()
    level, work = vars(options).pop("level"), vars(options).pop("work")
    began = time.monotonic()
    with speaking(level):
        status = work(options)
        detail(f"{parser.prog}: {clock(time.monotonic() - began)}")
    return status
