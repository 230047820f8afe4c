"""Warnings that name the caller's line, at any depth of calls inside the package."""

import sys
import warnings

# Packages whose frames are not the caller's, including wrappers of functions.
BETWEEN = ("esnlm", "jax", "contextlib", "functools")


def warn_caller(line: str) -> None:
    """Warns at the caller's line, so that filters by module and "once for each place" apply to
    it."""
    frame, level = sys._getframe(), 1
    while (
        frame.f_back is not None
        and frame.f_globals.get("__name__", "").partition(".")[0] in BETWEEN
    ):
        frame, level = frame.f_back, level + 1
    warnings.warn(line, stacklevel=level)
