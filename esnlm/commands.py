"""What every command does with its end: exit status, and errors in one line."""

import sys
from collections.abc import Callable

from esnlm.errors import InputError


def exit_with(main: Callable[[], int | None]) -> int:
    """Runs a command and returns its exit status: main's own, 2 after one line on stderr for an InputError, 130 for Ctrl-C."""
    try:
        return main() or 0
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
