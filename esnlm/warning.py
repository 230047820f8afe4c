"""Warnings that name the caller's line, whatever lies between it and the place that notices something."""

import sys
import warnings

# The packages of frames that are not the caller's. Wrappers of functions are among them.
BETWEEN = ("esnlm", "jax", "contextlib", "functools")


def warn_caller(line: str) -> None:
    """Warns of something that the caller may want to know. Filters by module, and "once for each place", see the caller's line."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in BETWEEN:
        frame, level = frame.f_back, level + 1
    warnings.warn(line, stacklevel=level)
