"""Tells the C library what to do with the memory that is freed.

An update with GPT-2's vocabulary allocates and frees hundreds of megabytes. glibc hands such blocks straight back to the
system, and the system zeroes every page again at the next use. This took a fifth of an update's time on a CPU. The
commands own their process and ask glibc to keep such blocks. The library by itself asks for nothing.
"""

import contextlib
import ctypes

# Parameters of mallopt, from glibc's malloc.h. No other interface names them.
M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8


def keep_freed_memory() -> bool:
    """Lets malloc keep what is freed, in one heap for all threads.

    Call it before other threads allocate. Each of them would otherwise open another heap, of at most 64 MB.

    Returns:
        Whether the C library can do it, as glibc can.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        # All are asked, whatever one answers.
        return all([mallopt(M_ARENA_MAX, 1), mallopt(M_MMAP_MAX, 0), mallopt(M_TRIM_THRESHOLD, -1)])
    return False


def give_back_freed_memory() -> None:
    """Hands the pages that are free now back to the system, where the C library can do it, as glibc can.

    It changes nothing for later allocations. Buffers of a megabyte, each a little larger or smaller than the last one,
    would otherwise leave ever more holes between what is in use, and the heap would grow as long as the work goes on.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
