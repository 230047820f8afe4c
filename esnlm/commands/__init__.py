"""The command line: `esnlm COMMAND ...`, also as `python -m esnlm COMMAND ...`.

A command is a module listed in COMMANDS. Its docstring is the text of `esnlm COMMAND --help`, the
first line that of `esnlm --help`. It has

    ARGUMENTS      a list of the kinds of arguments in arguments.py
    run(args)      does the work and returns the exit status (None means 0)

Functions of a command import what imports NumPy or JAX, so that --help and wrong arguments are
answered at once.
"""

import importlib
import os
import shlex
import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from types import ModuleType

from esnlm.base.console import clock, debug, verbosity
from esnlm.commands.arguments import LEVELS, Parser
from esnlm.machine.process import exit_with

# In the order of `esnlm --help`: frequent ones first.
COMMANDS = {
    "train": "esnlm.commands.train",
    "blimp": "esnlm.commands.blimp",
    "prepare": "esnlm.commands.prepare",
    "score": "esnlm.commands.score",
    "likelihood": "esnlm.commands.likelihood",
    "curve": "esnlm.commands.curve",
    "generate": "esnlm.commands.generate",
    "study": "esnlm.commands.study",
    "lm-eval": "esnlm.commands.lm_eval",
    "babylm": "esnlm.commands.babylm",
    "diagnose": "esnlm.commands.diagnose",
    "report": "esnlm.commands.report",
    "export": "esnlm.commands.export",
    "import": "esnlm.commands.import_gpt2",
    "version": "esnlm.commands.version",
}


def main(arguments: Sequence[str] | None = None, program: str = "esnlm") -> int:
    """Runs the command that the first argument names and returns its exit status (process.py).

    `arguments` defaults to sys.argv[1:]. `program` is the program's name in the help text.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words[:1] == ["--version"]:
        words[0] = "version"
    return exit_with(lambda: _run(_parser_of_all(program), words))


def run_command(name: str, arguments: Sequence[str] | None = None, program: str = "esnlm") -> int:
    """Runs one command under the name `program` and returns its exit status, as `main` does."""
    return exit_with(lambda: _run(parser_of(name, program), arguments))


def parser_of(name: str, program: str) -> Parser:
    """Returns the parser of a command's arguments."""
    return _add_command(Parser(program), importlib.import_module(COMMANDS[name]))


def _parser_of_all(program: str) -> Parser:
    parser = Parser(program, description="Echo state network language models at scale.")
    commands = parser.add_subparsers(
        title="commands (each has its own --help)", metavar="COMMAND", required=True
    )
    for name, module in COMMANDS.items():
        command = importlib.import_module(module)
        summary = (command.__doc__ or "").splitlines()[0]
        subparser = commands.add_parser(name, help=summary, conflict_handler="resolve")
        _add_command(subparser, command)
    if "_ARGCOMPLETE" in os.environ:
        _complete(parser, list(commands.choices.values()))
    return parser


def _add_command(parser: Parser, command: ModuleType) -> Parser:
    parser.description = command.__doc__
    for argument in (*command.ARGUMENTS, LEVELS):
        argument.add_to(parser)
    parser.set_defaults(work=command.run)
    return parser


def _complete(parser: Parser, commands: Sequence[Parser]) -> None:
    """Completes a line of a shell: eval "$(register-python-argcomplete esnlm)"."""
    import argcomplete  # from esnlm[completion]

    from esnlm.training.config import Experiment, as_dict, flatten

    for command in commands:
        if command.get_default("overrides") is not None:
            for setting in flatten(as_dict(Experiment())):
                command.add_argument(f"--{setting}")
    argcomplete.autocomplete(parser)


def _run(parser: Parser, arguments: Sequence[str] | None) -> int | None:
    words = sys.argv[1:] if arguments is None else list(arguments)
    args, unknown = parser.parse_known_args(words)
    empty = [before for before, word in pairwise(["", *words]) if not word]
    if not {"--prompt", "--separator"}.issuperset(empty):
        parser.error("an argument is empty (is a variable not set?); leave it out, or give a value")
    if "overrides" in args:
        args.overrides = unknown
    elif unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    args.command = " ".join([parser.prog, shlex.join(words)]).strip()
    began = time.monotonic()
    with verbosity(args.level):
        status = args.work(args)
        debug(f"{parser.prog}: {clock(time.monotonic() - began)}")
    return status
