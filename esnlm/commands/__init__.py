"""The command line: `esnlm COMMAND ...`, also as `python -m esnlm COMMAND ...`.

A command is a module of two functions, listed in COMMANDS. Its docstring is the text of `esnlm COMMAND --help`, and the
first line of it that of `esnlm --help`:

    add_arguments(parser)      its arguments, for argparse
    run(options)               does the work and returns the exit status, where None is 0

It imports what is heavy inside `run`, so that --help and wrong arguments are answered at once.
"""

import argparse
import importlib
import os
import shlex
import sys
import time
from collections.abc import Sequence

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
    """Runs the command that the first argument names and returns its exit status.

    Args:
        arguments: the words after the program's name (default: those of this process).
        program: how a person calls it, for --help and for the command that reports record.

    The status is 0 for --help, and 2 after one line on stderr for wrong arguments (process.py has the others).
    """
    return exit_with(lambda: _choose(arguments, program))


def run_command(name: str, arguments: Sequence[str] | None, program: str) -> int:
    """Runs one command of COMMANDS under the name `program` and returns its exit status; as `main` beside this."""
    return exit_with(lambda: _run(name, sys.argv[1:] if arguments is None else list(arguments), program))


def _choose(arguments: Sequence[str] | None, program: str) -> int | None:
    if "_ARGCOMPLETE" in os.environ:
        _complete()
    docs = {name: (importlib.import_module(module).__doc__ or "").splitlines()[0] for name, module in COMMANDS.items()}
    parser = Parser(
        program,
        usage=f"{program} COMMAND ...",
        description="Echo state network language models at scale.",
        epilog="\n".join(["commands (each has a --help of its own):", *(f"  {n:11} {doc}" for n, doc in docs.items())]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND", help="one of those below")
    others = parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    others.required = False  # so that the line about a missing COMMAND does not name what --help hides
    chosen = parser.parse_args(arguments)
    return _run(chosen.command, chosen.arguments, f"{program} {chosen.command}")


def _complete() -> None:
    """Answers a shell that completes a line: eval "$(register-python-argcomplete esnlm)"."""
    import argcomplete  # from esnlm[completion]

    from esnlm.config import Experiment, as_dict, flatten

    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers()
    for name in COMMANDS:
        command = parser_of(name, name)
        if command.get_default("settings") is not None:
            for setting in flatten(as_dict(Experiment())):
                command.add_argument(f"--{setting}")
        commands.add_parser(name, parents=[command], add_help=False)
    argcomplete.autocomplete(parser)


def parser_of(name: str, program: str) -> Parser:
    """Returns the parser of a command's arguments."""
    command = importlib.import_module(COMMANDS[name])
    parser = Parser(program, description=command.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_arguments(parser)
    accept_levels(parser)
    return parser


def _run(name: str, words: list[str], program: str) -> int | None:
    parser = parser_of(name, program)
    options, others = parser.parse_known_args(words)
    if "" in words and "prompt" not in options:
        parser.error("an argument is empty, as that of a variable that is not set; leave it out, or give a value")
    if "settings" in options:
        options.settings = others
    elif others:
        parser.error(f"unrecognized arguments: {' '.join(others)}")
    for option in ("out", "html", "plot"):
        place = getattr(options, option, None)
        if place is not None and is_url(place):
            raise InputError(f"--{option} {full_name(place)}: this is written to this machine only; name a local place")
    options.command = " ".join([program, shlex.join(words)]).strip()
    began = time.monotonic()
    with speaking(vars(options).pop("level")):
        status = importlib.import_module(COMMANDS[name]).run(options)
        detail(f"{program}: {clock(time.monotonic() - began)}")
    return status
