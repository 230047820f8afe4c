"""The end of a command's process: its exit status, and one-line errors on standard error."""

import atexit
import errno
import gc
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any

from esnlm.base import processes
from esnlm.base.console import end_status, escape_unencodable
from esnlm.base.errors import InputError
from esnlm.machine import compilation_cache
from esnlm.machine.host import keep_freed_memory, set_threads

# System errors that the user can fix, wherever they come from. Others are bugs.
MENDABLE = {errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG}


def exit_with(main: Callable[[], int | None]) -> int:
    """Runs a command and returns its exit status.

    The status is that of `main` (None counts as 0), or 2 after one line on standard error for an
    InputError, a full disk and the like, or too little memory, or 130 for Ctrl-C, or 76 if another
    process of the run was lost.
    """
    # Imports make hundreds of thousands of objects and no garbage: Python would search them again
    # and again (0.1 s), and all modules at its end (0.3 s).
    gc.set_threshold(50_000)
    atexit.register(gc.freeze)
    keep_freed_memory()
    warnings.formatwarning = _spell_warning
    escape_unencodable()
    set_threads()  # before the cache, which is by number of threads
    compilation_cache.use()
    status = _flush(_run(main))
    if processes.count() > 1:  # It ends without the others; JAX's own end would wait for them.
        os._exit(status)
    return status


def _run(main: Callable[[], int | None]) -> int:
    """Calls a command, prints an error if it fails, and returns the status."""
    try:
        status = main() or 0
        processes.finish()
        return status
    except SystemExit as end:  # from --help and wrong arguments
        return int(end.code or 0)
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        return 0
    except KeyboardInterrupt:
        return _end(130, "interrupted")
    except InputError as error:
        return _end(2, f"error: {error}")
    except MemoryError as error:
        return _end(
            2,
            f"error: not enough memory: {error or 'no more is available'}; train.py --plan shows"
            " the need",
        )
    except Exception as error:
        if processes.is_loss(error):
            return _end(processes.LOST, f"error: {processes.LOSS}")
        if isinstance(error, OSError) and error.errno in MENDABLE:
            return _end(2, f"error: {error.filename or 'a file'}: {error.strerror}")
        if processes.count() == 1:
            raise
        traceback.print_exception(error)
        return 1


def _flush(status: int) -> int:
    """Flushes standard output and returns the status of the command."""
    try:
        sys.stdout.flush()
    except OSError as error:
        # or Python would flush again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            return status or _end(2, f"error: standard output: {error.strerror}")
    return status


def _end(status: int, line: str) -> int:
    """Prints why a command failed, ends the run's other processes and returns the status."""
    end_status()
    print(line, file=sys.stderr)
    if status == 2:
        processes.fail(line.removeprefix("error: "))
    return status


def _spell_warning(message: Warning | str, *_: Any, **__: Any) -> str:
    """Formats a warning of the module `warnings` as one line."""
    end_status()
    return f"warning: {message}\n"
