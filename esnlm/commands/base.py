"""What all commands share: the parser of arguments, and the configurations that esnlm ships."""

import argparse
from pathlib import Path
from typing import Any, Literal, NoReturn

from esnlm.base.console import Level

PACKAGE = Path(__file__).parents[1]


class Parser(argparse.ArgumentParser):
    """Reports wrong arguments in one line, without the usage, and accepts no abbreviations."""

    def __init__(self, prog: str, **options: Any) -> None:
        options = {"formatter_class": argparse.RawDescriptionHelpFormatter} | options
        super().__init__(prog, allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message} (see --help)\n")


# Repeating an option of several values extends the list (argparse would keep only the last).
SEVERAL: dict[str, Any] = {"action": "extend", "nargs": "+"}


def accept_settings(parser: argparse.ArgumentParser) -> None:
    """Lets a command take `--section.key value` for any setting of a configuration, as the list
    `options.overrides`."""
    parser.set_defaults(overrides=[])


STEP = (
    "checkpoint to load: a step, or best for the best validation (default: the newest undamaged"
    " one)"
)


def step(text: str) -> int | Literal["best"]:
    """Returns the value of --step."""
    if text == "best":
        return "best"
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither the number of an update nor best"
        ) from None


def accept_levels(parser: argparse.ArgumentParser) -> None:
    """Lets a command take --quiet and --verbose, as `options.level`."""
    levels = parser.add_argument_group("output on standard error").add_mutually_exclusive_group()
    parser.set_defaults(level=Level.USUAL)
    constant: dict[str, Any] = {"action": "store_const", "dest": "level"}
    quiet = "warnings and errors only (results are still printed)"
    levels.add_argument("--quiet", const=Level.QUIET, help=quiet, **constant)
    verbose = "also automatic choices and the time of each stage"
    levels.add_argument("--verbose", const=Level.VERBOSE, help=verbose, **constant)


def accept_processes(parser: argparse.ArgumentParser) -> None:
    """Adds the options of runs with several processes, for `join_processes`."""
    add = parser.add_argument
    first = (
        "for several processes: host of process 0 and a free port there; auto: JAX finds all"
        " processes"
    )
    add("--coordinator", metavar="HOST:PORT", help=first)
    add(
        "--processes",
        type=int,
        metavar="P",
        help="number of processes (default: from SLURM or Open MPI)",
    )
    add("--process", type=int, metavar="I", help="number of this process, from 0")
    add(
        "--wait",
        type=int,
        default=300,
        metavar="SECONDS",
        help="maximum wait for the others (default: %(default)s)",
    )


def join_processes(options: argparse.Namespace, stops_together: bool) -> None:
    """Removes the options of `accept_processes` from `options` and joins the run's group of
    processes."""
    from esnlm.base import processes

    names = ("coordinator", "processes", "process", "wait")
    processes.join(
        **{name: vars(options).pop(name) for name in names}, stops_together=stops_together
    )


def shipped_configs() -> Path:
    """Returns the folder of the shipped configurations: inside an installed package, beside it in a
    checkout."""
    installed = PACKAGE / "configs"
    return installed if installed.is_dir() else PACKAGE.parent / "configs"


def find_config(file: str | Path) -> Path:
    """Returns `file`, or the shipped file of that name if `configs/...` is not in the working
    folder."""
    file = Path(file)
    shipped = shipped_configs().joinpath(*file.parts[1:])
    return (
        shipped
        if file.parts[:1] == ("configs",) and not file.exists() and shipped.is_file()
        else file
    )
