"""The one exception that means: the person who called can mend this."""

import operator
from typing import SupportsIndex

LONGEST = 2000  # characters


class InputError(ValueError):
    """Bad input or configuration.

    The message is one line: what is wrong, with which value, in which file or field, and what to do. Control characters in
    it are escaped, and it is cut in its middle if it is long. The commands print it as `error: ...` and exit with status 2.
    """

    def __init__(self, message: str) -> None:
        line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in message)
        super().__init__(line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} ... {line[-LONGEST // 2 :]}")


def whole_number(name: str, value: SupportsIndex, rule: str = "give a whole number") -> int:
    """Returns a whole number of any type, such as NumPy's, as Python's. Raises InputError for anything else, such as 3.0."""
    try:
        return operator.index(value)
    except TypeError:
        raise InputError(f"{name} is {value!r}: {rule}") from None
