"""Tells the C library what to do with the memory that is freed.

An update with GPT-2's vocabulary allocates and frees hundreds of megabytes. glibc hands such blocks straight back to the
system, and the system zeroes every page again at the next use. This took a fifth of an update's time on a CPU. The
commands own their process and ask glibc to keep such blocks. The library by itself asks for nothing. What is best differs: one heap
for all threads keeps most, and many threads that take memory from it get in each other's way.
"""

import contextlib
import ctypes

# Parameters of mallopt, from glibc's malloc.h. No other interface names them.
M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8


def keep_freed_memory() -> bool:
    """Lets malloc keep what is freed, as far as it can.

    The main thread's heap keeps all of it. Any other thread has a heap of blocks of at most 64 MB: an array that is larger goes back to
    the system when it is freed, and so does a block when all in it was freed. `share_one_heap` keeps these, too.

    Returns:
        Whether the C library can do it, as glibc can.
    """
    return _ask({M_MMAP_MAX: 0, M_TRIM_THRESHOLD: -1})


def share_one_heap() -> bool:
    """Lets all threads have one heap, in which malloc keeps whatever is freed. Call it before other threads allocate.

    A training whose updates take and free large arrays is faster for it. One of small arrays is slower: all threads then look for room
    in the same heap.

    Returns:
        As `keep_freed_memory`.
    """
    return _ask({M_ARENA_MAX: 1})


def _ask(values: dict[int, int]) -> bool:
    """Sets parameters of mallopt, and returns whether all of them were taken."""
    with contextlib.suppress(AttributeError, OSError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        # All are asked, whatever one answers.
        answers = [mallopt(parameter, value) for parameter, value in values.items()]
        return all(answers)
    return False


def give_back_freed_memory() -> None:
    """Hands the pages that are free now back to the system, where the C library can do it, as glibc can.

    It changes nothing for later allocations. Buffers of a megabyte, each a little larger or smaller than the last one,
    would otherwise leave ever more holes between what is in use, and the heap would grow as long as the work goes on.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
