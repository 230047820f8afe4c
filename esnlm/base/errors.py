"""Errors that the caller can fix, and warnings that name the caller's line."""

import importlib
import operator
import sys
import warnings
from collections.abc import Iterable
from typing import Any, SupportsIndex

LONGEST = 2000  # characters
# Packages whose frames are not the caller's, including wrappers of functions.
BETWEEN = ("esnlm", "jax", "contextlib", "functools")


class InputError(ValueError):
    """Bad input or configuration.

    The message is one line: what is wrong, the value, its file or field, and what to do. Control
    characters are escaped, and long messages are cut in the middle. The commands print it as
    `error: ...` and exit with status 2.
    """

    def __init__(self, message: str) -> None:
        line = "".join(
            c if c.isprintable() else c.encode("unicode_escape").decode() for c in message
        )
        super().__init__(
            line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} ... {line[-LONGEST // 2 :]}"
        )


def import_extra(module: str, work: str, extra: str) -> Any:
    """Imports a module of an extra. Raises InputError with the command that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise InputError(f"{work} needs {package}: pip install 'esnlm[{extra}]'") from None


def check_choice(name: str, value: str, choices: Iterable[str]) -> None:
    """Raises InputError if a value is none of the choices."""
    if value not in choices:
        raise InputError(f"{name} is {value!r}: choose from {', '.join(choices)}")


def whole_number(name: str, value: SupportsIndex, rule: str = "give a whole number") -> int:
    """Converts a whole number of any type, such as NumPy's, to int. Rejects others, such as 3.0."""
    try:
        return operator.index(value)
    except TypeError:
        raise InputError(f"{name} is {value!r}: {rule}") from None


def warn_caller(line: str, category: type[Warning] = UserWarning) -> None:
    """Warns at the line outside the package, to which the user's warning filters then apply."""
    frame, level = sys._getframe(), 1
    while (
        frame.f_back is not None
        and frame.f_globals.get("__name__", "").partition(".")[0] in BETWEEN
    ):
        frame, level = frame.f_back, level + 1
    warnings.warn(line, category, stacklevel=level)
