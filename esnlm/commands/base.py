"""What all commands share: the parser of arguments, and the configurations that esnlm ships."""

import argparse
import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NoReturn

from esnlm.io.console import Level

PACKAGE = Path(__file__).parents[1]


class Parser(argparse.ArgumentParser):
    """Reports wrong arguments in one line, without the usage, and accepts no abbreviations."""

    def __init__(self, program: str, **options: Any) -> None:
        super().__init__(program, allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message} (see --help)\n")


MAY_BE_EMPTY = ("prompt",)  # options whose value may be empty
# Options whose value need not be UTF-8: of files that are only read, among others.
MAY_HOLD_BYTES = ("prompt", "input", "text")


def require_values(parser: argparse.ArgumentParser) -> None:
    """Lets a parser refuse empty values, which are those of variables that are not set, and values that are not UTF-8.

    An empty name would stand for the default without a word, or for the working folder. A name that is not UTF-8 can be written neither
    into a configuration nor by the libraries that keep checkpoints.
    """
    for action in parser._actions:
        if action.nargs != 0:
            action.type = _checked(action.dest, action.type if callable(action.type) else str)


def _checked(option: str, kind: Callable[[str], Any]) -> Callable[[str], Any]:
    @functools.wraps(kind, updated=())  # argparse names what it expected by the name of its type
    def convert(text: str) -> Any:
        if not text and option not in MAY_BE_EMPTY:
            raise argparse.ArgumentTypeError("the value is empty, as that of a variable which is not set; give one")
        if option not in MAY_HOLD_BYTES and (fault := describe_bytes(text)) is not None:
            raise argparse.ArgumentTypeError(fault)
        return kind(text)

    return convert


def describe_bytes(text: str) -> str | None:
    """Returns a line on a word of the command line that is not UTF-8, or None for any other."""
    try:
        text.encode()
    except UnicodeEncodeError:
        shown = re.sub("[\udc80-\udcff]", lambda byte: f"\\x{ord(byte[0]) - 0xDC00:02x}", text)
    else:
        return None
    return f"{shown} is not UTF-8, and no such name can be used here; give another one"


# How argparse takes an option of several values. Where it is given again, these are added: by its default the last ones alone would count.
SEVERAL: dict[str, Any] = {"action": "extend", "nargs": "+"}


def accept_settings(parser: argparse.ArgumentParser) -> None:
    """Lets a command take `--section.key value` for any setting of a configuration, as the list `options.settings`."""
    parser.set_defaults(settings=[])


STEP = "the checkpoint of this step, or best: that of the best validation (default: the newest that is good)"


def step(text: str) -> int | Literal["best"]:
    """Returns the value of --step."""
    if text == "best":
        return "best"
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not the number of an update, nor best") from None


def accept_levels(parser: argparse.ArgumentParser) -> None:
    """Lets a command take --quiet and --verbose; `take_level` reads them."""
    levels = parser.add_argument_group("what is said on standard error").add_mutually_exclusive_group()
    levels.add_argument("--quiet", action="store_true", help="warnings and errors only; results are shown all the same")
    levels.add_argument("--verbose", action="store_true", help="also what was chosen, and how long each stage took")


def take_level(options: argparse.Namespace) -> Level:
    """Takes --quiet and --verbose out of the options of a command, and returns what they ask for."""
    quiet, verbose = vars(options).pop("quiet"), vars(options).pop("verbose")
    return Level.QUIET if quiet else Level.VERBOSE if verbose else Level.USUAL


PROCESS_OPTIONS = ("coordinator", "processes", "process", "wait")


def accept_processes(parser: argparse.ArgumentParser) -> None:
    """Lets a command be one of several processes of a run; `join` makes it one."""
    add = parser.add_argument
    add(
        "--coordinator",
        metavar="HOST:PORT",
        help="of several processes: the machine of process 0, and a free port there",
    )
    add(
        "--processes",
        type=int,
        metavar="P",
        help="how many there are (default: as SLURM and the like have started them)",
    )
    add("--process", type=int, metavar="I", help="the number of this one, from 0")
    add("--wait", type=float, default=300.0, metavar="SECONDS", help="in which all must come (default: %(default)g)")


def join(options: argparse.Namespace) -> None:
    """Makes this process one of those that the options, or the environment, name."""
    from esnlm.distributed.start import join

    join(options.coordinator, options.processes, options.process, options.wait)


def shipped_configs() -> Path:
    """Returns the folder of the configurations that come with esnlm.

    It is inside an installed package. In a checkout it stands beside the package.
    """
    installed = PACKAGE / "configs"
    return installed if installed.is_dir() else PACKAGE.parent / "configs"


def find_config(file: str | Path) -> Path:
    """Returns `file`, or the shipped file of that name where `configs/...` is not in the working folder."""
    file = Path(file)
    if file.parts[:1] == ("configs",) and ".." not in file.parts and not file.exists():
        shipped = shipped_configs().joinpath(*file.parts[1:])
        return shipped if shipped.is_file() else file
    return file
