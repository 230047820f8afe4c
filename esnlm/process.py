"""How a process of esnlm ends: its exit status, and errors in one line on stderr."""

import sys
import warnings
from collections.abc import Callable

from esnlm import background, compilation_cache
from esnlm.allocator import keep_freed_memory
from esnlm.errors import InputError
from esnlm.runs.atomic import ADVICE, refusal


def exit_with(main: Callable[[], int | None]) -> int:
    """Runs a command and returns its exit status.

    The status is that of `main` (None counts as 0), or 2 after one line on stderr for an InputError, a full disk and the
    like, or too little memory, or 130 for Ctrl-C.
    """
    return background.leave(_status(main))


def _status(main: Callable[[], int | None]) -> int:
    """Runs a command and returns the status that its process should end with."""
    keep_freed_memory()
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    compilation_cache.use()
    try:
        return main() or 0
    except InputError as error:
        message = str(error)
    except OSError as error:  # raised where no file is named, for example by a result that cannot be written
        if error.errno not in ADVICE:
            raise
        message = refusal(error, error.filename or "a file")
    except MemoryError as error:
        message = f"not enough memory: {error or 'no more is given'}; ask for less (train.py --plan shows the need)"
    except KeyboardInterrupt:
        return 130
    print(f"error: {message}", file=sys.stderr)
    return 2
