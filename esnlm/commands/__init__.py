"""The command line: `esnlm COMMAND ...`, also as `python -m esnlm COMMAND ...`.

A command is a module of two functions, listed in COMMANDS. Its docstring is the text of `esnlm COMMAND --help`, and the
first line of it that of `esnlm --help`:

    add_arguments(parser)      its arguments, for argparse
    run(options)               does the work and returns the exit status, where None is 0

It imports what is heavy inside `run`, so that --help and wrong arguments are answered at once.
"""

import importlib
import os
import shlex
import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from types import ModuleType

from esnlm.commands.base import Parser, accept_levels
from esnlm.errors import InputError
from esnlm.io.console import clock, detail, speaking
from esnlm.io.remote import full_name, is_url
from esnlm.process import exit_with

OFTEN = ("train", "blimp", "prepare", "score", "likelihood", "curve", "generate", "study")
OTHERS = ("lm-eval", "babylm", "diagnose", "report", "export")
COMMANDS = {name: f"esnlm.commands.{name.replace('-', '_')}" for name in (*OFTEN, *OTHERS)}
COMMANDS["import"] = "esnlm.commands.import_gpt2"


def main(arguments: Sequence[str] | None = None, program: str = "esnlm") -> int:
    """Runs the command that the first argument names and returns its exit status (process.py).

    `arguments` are those of this process by default. `program` is how a person calls it.
    """
    return exit_with(lambda: _run(_whole_parser(program), arguments))


def run_command(name: str, arguments: Sequence[str] | None, program: str) -> int:
    """Runs one command of COMMANDS under the name `program` and returns its exit status; as `main` beside this."""
    return exit_with(lambda: _run(parser_of(name, program), arguments))


def _whole_parser(program: str) -> Parser:
    parser = Parser(program, description="Echo state network language models at scale.")
    commands = parser.add_subparsers(title="commands, each with a --help of its own", metavar="COMMAND", required=True)
    for name, module in COMMANDS.items():
        command = importlib.import_module(module)
        first = (command.__doc__ or "").splitlines()[0]
        added = _with_arguments(commands.add_parser(name, help=first, conflict_handler="resolve"), command)
        if "_ARGCOMPLETE" in os.environ and added.get_default("overrides") is not None:
            from esnlm.config import Experiment, as_dict, flatten

            for setting in flatten(as_dict(Experiment())):
                added.add_argument(f"--{setting}")
    if "_ARGCOMPLETE" in os.environ:  # a shell completes a line: eval "$(register-python-argcomplete esnlm)"
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
    if any(not word and before not in ("--prompt", "--separator") for before, word in pairwise(["", *words])):
        parser.error("an argument is empty, as that of a variable that is not set; leave it out, or give a value")
    if "overrides" in options:
        options.overrides = others
    elif others:
        parser.error(f"unrecognized arguments: {' '.join(others)}")
    for option in ("out", "html", "plot"):
        place = getattr(options, option, None)
        if place is not None and is_url(place):
            raise InputError(f"--{option} {full_name(place)}: this is written to this machine only; name a local place")
    options.command = " ".join([parser.prog, shlex.join(words)]).strip()
    level, work = vars(options).pop("level"), vars(options).pop("work")
    began = time.monotonic()
    with speaking(level):
        status = work(options)
        detail(f"{parser.prog}: {clock(time.monotonic() - began)}")
    return status
