"""Tells glibc to keep freed memory, in processes that run a command. Other C libraries ignore it.

An update with GPT-2's vocabulary allocates and frees hundreds of megabytes. glibc hands such blocks
straight back to the system, which zeroes every page again at the next use: a fifth of an update's
time on a CPU.
"""

import contextlib
import ctypes

# Parameters of mallopt, from glibc's malloc.h. No other interface names them.
M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8


def keep_freed_memory() -> bool:
    """Lets malloc keep freed memory, and returns whether it can.

    The main thread's heap keeps all of it. The heaps of other threads hold at most 64 MB and return
    larger or empty blocks; `share_one_heap` keeps these, too.
    """
    return _call("mallopt", M_MMAP_MAX, 0) and _call("mallopt", M_TRIM_THRESHOLD, -1)


def share_one_heap() -> bool:
    """Lets all threads share one heap, which keeps all freed memory. Call it before other threads
    allocate.

    Updates of large arrays become faster and updates of small ones slower, since all threads search
    the same heap.
    """
    return _call("mallopt", M_ARENA_MAX, 1)


def give_back_freed_memory() -> None:
    """Returns free pages to the system. Otherwise, buffers of changing sizes make the heap grow."""
    _call("malloc_trim", 0)


def _call(name: str, *arguments: int) -> bool:
    with contextlib.suppress(AttributeError, OSError, TypeError):
        return bool(getattr(ctypes.CDLL(None), name)(*arguments))
    return False
