"""The exception for errors that the caller can fix."""

import operator
from typing import SupportsIndex

LONGEST = 2000  # characters


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


def whole_number(name: str, value: SupportsIndex, rule: str = "give a whole number") -> int:
    """Converts a whole number of any type (such as NumPy's) to int. Raises InputError for others,
    such as 3.0."""
    try:
        return operator.index(value)
    except TypeError:
        raise InputError(f"{name} is {value!r}: {rule}") from None
