"""Locks of files against other processes of this machine. A lock goes with the process that holds it, however that ends."""

import fcntl
from typing import IO

from esnlm.errors import InputError


def lock(file: IO, taken: str = "") -> OSError | None:
    """Locks an open file until it is closed.

    Args:
        file: open for writing.
        taken: the line for the InputError where another process holds the lock; "": it is waited for.

    Returns:
        None, or why there is no lock: some file systems have none. Nobody is kept out then.

    Raises:
        InputError: another process holds the lock.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB if taken else fcntl.LOCK_EX)
    except BlockingIOError:
        raise InputError(taken) from None
    except OSError as error:
        return error
    return None
