"""The C library's memory, kept for the next time.

An update with GPT-2's vocabulary takes and gives back hundreds of megabytes. glibc hands such blocks straight back to
the system, which zeroes every page anew at the next use: a fifth of an update's time on a CPU. The commands, which own
their process, ask it to keep them; the library itself asks for nothing.
"""

import contextlib
import ctypes

# mallopt's parameters in glibc's malloc.h, which has no other interface to them.
M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8


def keep_freed_memory() -> bool:
    """Has malloc keep what is freed, in one heap for all threads. True where the C library can (glibc).

    Call it before other threads allocate: each of them would begin a heap of its own, of 64 MB at most.
    """
    return _set({M_ARENA_MAX: 1, M_MMAP_MAX: 0, M_TRIM_THRESHOLD: -1})


def _set(parameters: dict[int, int]) -> bool:
    with contextlib.suppress(AttributeError, OSError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        return all([mallopt(name, value) for name, value in parameters.items()])
    return False
