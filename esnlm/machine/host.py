"""The host: its cores, XLA's threads on them, and memory that the C library keeps.

**Threads.** XLA runs all devices of a CPU on one pool of threads: as many as there are cores, or
devices if these are more. Inside a collective operation each device holds a thread until the last
one arrives. A program whose launch has to wait, because 32 programs of a device are in flight,
holds one thread per device too. So with fewer than two threads per device the last device may find
none, and XLA aborts the process after 40 seconds. GPUs launch programs without this pool.

**Memory.** An update with GPT-2's vocabulary allocates and frees hundreds of megabytes. glibc
returns such blocks to the system, which zeroes every page again at the next use: a fifth of an
update's time on a CPU. Other C libraries ignore these requests.
"""

import contextlib
import ctypes
import os
import re
from collections.abc import Sequence
from typing import Any

from esnlm.base.errors import InputError

THREADS = "PJRT_NPROC"  # environment variable, which XLA reads when JAX starts
THREADS_PER_DEVICE = 2
SIMULATED = re.compile(r"--xla_force_host_platform_device_count=(\d+)")
# Parameters of mallopt, from glibc's malloc.h. No other interface names them.
M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8


def available_cores() -> int:
    """Returns the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def usable_cores() -> int:
    """Returns the number of programs of one CPU device that XLA can run at the same time."""
    return min(available_cores(), _pool_size(1))


def set_threads() -> None:
    """Asks XLA for enough threads for simulated devices. Call it before JAX starts."""
    flags = SIMULATED.findall(os.environ.get("XLA_FLAGS", ""))
    devices = int(flags[-1]) if flags else _number_in("JAX_NUM_CPU_DEVICES") or 1
    if devices > 1 and _pool_size(devices) < THREADS_PER_DEVICE * devices:
        os.environ.setdefault(THREADS, str(THREADS_PER_DEVICE * devices))


def check_threads(devices: Sequence[Any]) -> None:
    """Raises InputError if a mesh has more devices of this CPU than XLA has threads for."""
    local = sum(
        device.platform == "cpu" and device.process_index == devices[0].process_index
        for device in devices
    )
    threads = THREADS_PER_DEVICE * local
    if local > 1 and _pool_size(local) < threads:
        raise InputError(
            f"{local} CPU devices need {threads} threads of XLA, which has {_pool_size(local)}: set"
            f" {THREADS}={threads} before Python starts"
        )


def keep_freed_memory() -> bool:
    """Lets malloc keep freed memory, and returns whether it can.

    The main thread's heap keeps all of it. The heaps of other threads hold at most 64 MB and return
    larger or empty blocks; `share_one_heap` keeps these, too.
    """
    return _call("mallopt", M_MMAP_MAX, 0) and _call("mallopt", M_TRIM_THRESHOLD, -1)


def share_one_heap() -> bool:
    """Lets all threads share one heap, which keeps all freed memory.

    Call it before other threads allocate. Updates of large arrays become faster and updates of
    small ones slower, since all threads search the same heap.
    """
    return _call("mallopt", M_ARENA_MAX, 1)


def return_freed_memory() -> None:
    """Returns free pages to the system. Otherwise, buffers of changing sizes make the heap grow."""
    _call("malloc_trim", 0)


def _pool_size(devices: int) -> int:
    return max(_number_in(THREADS) or _number_in("NPROC") or available_cores(), devices)


def _number_in(variable: str) -> int | None:
    """Returns the number in an environment variable. XLA and JAX ignore or name other text."""
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else None


def _call(name: str, *arguments: int) -> bool:
    with contextlib.suppress(AttributeError, OSError, TypeError):
        return bool(getattr(ctypes.CDLL(None), name)(*arguments))
    return False
