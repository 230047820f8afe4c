"""The parser of a command's arguments, the kinds of arguments, and those that commands share."""

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from esnlm.base import processes
from esnlm.base.console import spinner
from esnlm.base.errors import InputError
from esnlm.base.files import require_writable
from esnlm.base.remote import full_name, is_url
from esnlm.evaluation.conventions import CONVENTIONS

if TYPE_CHECKING:
    from esnlm.loaded_run import Run

PACKAGE = Path(__file__).parents[1]


class Parser(argparse.ArgumentParser):
    """Reports wrong arguments in one line, without the usage, and accepts no abbreviations."""

    def __init__(self, prog: str, **options: Any) -> None:
        options = {"formatter_class": argparse.RawDescriptionHelpFormatter} | options
        super().__init__(prog, allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message} (see --help)\n")


class Argument:
    """An argument of a command, as argparse's `add_argument` describes it."""

    def __init__(self, *names: str, **description: Any) -> None:
        self.names, self.description = names, description

    def add_to(self, parser: Any) -> None:
        parser.add_argument(*self.names, **self.description)


class OneOf:
    """Arguments that exclude each other."""

    def __init__(self, *arguments: Argument) -> None:
        self.arguments = arguments

    def add_to(self, parser: Any) -> None:
        group = parser.add_mutually_exclusive_group()
        for argument in self.arguments:
            argument.add_to(group)


class ArgumentGroup:
    """Arguments under a title of their own in --help."""

    def __init__(self, title: str, *arguments: Argument | OneOf) -> None:
        self.title, self.arguments = title, arguments

    def add_to(self, parser: Any) -> None:
        group = parser.add_argument_group(self.title)
        for argument in self.arguments:
            argument.add_to(group)


class AnySetting:
    """Any setting of a configuration as `--section.key value`, in the list `args.overrides`."""

    def add_to(self, parser: Any) -> None:
        parser.set_defaults(overrides=[])


def step_or_best(text: str) -> int | Literal["best"]:
    """Returns the value of --step; argparse names this function if it raises ValueError."""
    return "best" if text == "best" else int(text)


def local_path(text: str) -> Path:
    """Returns the path of results, which are written on this machine only."""
    if is_url(text):
        raise argparse.ArgumentTypeError(
            f"{full_name(text)}: results go to this machine only; name a local path"
        )
    return Path(text)


# Repeating an option of several values extends the list (argparse would keep only the last).
SEVERAL: dict[str, Any] = {"action": "extend", "nargs": "+"}

RUN = Argument("--run", required=True, metavar="DIR", help="the run directory")
STEP = Argument(
    "--step",
    type=step_or_best,
    metavar="N",
    help="checkpoint to load: a step, or best for the best validation (default: the newest"
    " undamaged one)",
)
UNTRAINED = Argument(
    "--untrained", action="store_true", help="load the model before its first update, a baseline"
)
PAIRS = Argument(
    "--data",
    **SEVERAL,
    metavar="PATH",
    help="files or folders of minimal pairs, or FOLDER/PARADIGM",
)
SCORING = Argument(
    "--scoring",
    choices=list(CONVENTIONS),
    default="paper",
    help="scoring convention (default: %(default)s)",
)
CACHE = Argument(
    "--cache",
    action="store_true",
    help="raise the probability of tokens that the document has had (docs/own_text.md)",
)
OVERWRITE = Argument("--overwrite", action="store_true", help="replace existing results")
PROCESSES = [
    Argument(
        "--coordinator",
        metavar="HOST:PORT",
        help="for several processes: host of process 0 and a free port there; auto: JAX finds all"
        " processes",
    ),
    Argument(
        "--processes",
        type=int,
        metavar="P",
        help="number of processes (default: from SLURM or Open MPI)",
    ),
    Argument("--process", type=int, metavar="I", help="number of this process, from 0"),
    Argument(
        "--wait",
        type=int,
        default=300,
        metavar="SECONDS",
        help="maximum wait for the others (default: %(default)s)",
    ),
]
LEVELS = ArgumentGroup(
    "output on standard error",
    OneOf(
        Argument(
            "--quiet",
            action="store_const",
            dest="level",
            const=logging.WARNING,
            default=logging.INFO,
            help="warnings and errors only (results are still printed)",
        ),
        Argument(
            "--verbose",
            action="store_const",
            dest="level",
            const=logging.DEBUG,
            default=logging.INFO,
            help="also automatic choices and the time of each stage",
        ),
    ),
)


def join_processes(args: argparse.Namespace, stops_together: bool) -> None:
    """Joins the run's group of processes, by the options in PROCESSES."""
    processes.join(args.coordinator, args.processes, args.process, args.wait, stops_together)


def load_run(args: argparse.Namespace, run: str | None = None) -> "Run":
    """Loads a run, by default that of --run, at --step or --untrained if the command has these."""
    from esnlm import loaded_run

    run = args.run if run is None else run
    choice = {name: value for name, value in vars(args).items() if name in ("step", "untrained")}
    with spinner(f"loading {run}"):
        return loaded_run.load(run, **choice)


def check_output(file: Path | None, overwrite: bool, suffixes: Sequence[str] = ()) -> None:
    """Raises InputError if a file of results has another suffix or cannot be written."""
    if file is None:
        return
    if suffixes and file.suffix.lower() not in suffixes:
        raise InputError(f"{file}: the name must end in {' or '.join(suffixes)}")
    require_writable(file, overwrite)


def shipped_configs() -> Path:
    """Returns the folder of the shipped configurations; in a checkout it is beside the package."""
    installed = PACKAGE / "configs"
    return installed if installed.is_dir() else PACKAGE.parent / "configs"


def find_config(file: str | Path) -> Path:
    """Returns `file`, or the shipped file of that name if `configs/...` is not in the working
    folder."""
    file = Path(file)
    shipped = shipped_configs().joinpath(*file.parts[1:])
    is_shipped = file.parts[:1] == ("configs",) and not file.exists() and shipped.is_file()
    return shipped if is_shipped else file
