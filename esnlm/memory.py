"""How much memory there is, and how much of it is in use: that of the machine, and that of the device."""

import contextlib
import os
import resource
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax


class MemoryUse(NamedTuple):
    """Bytes in use now and at most. On a CPU they are those of the process, of which the system knows the peak only."""

    now: int | None
    peak: int

    @property
    def values(self) -> dict[str, int]:
        """Returns them under their names in metrics.jsonl."""
        return ({} if self.now is None else {"memory_bytes": self.now}) | {"peak_memory_bytes": self.peak}


def memory_use() -> MemoryUse:
    """Returns the memory in use of the fullest device of this process, or of the process where it computes on a CPU."""
    found = [statistics for statistics in _device_statistics() if "peak_bytes_in_use" in statistics]
    if found:
        return MemoryUse(*(max(each[name] for each in found) for name in ("bytes_in_use", "peak_bytes_in_use")))
    unit = 1 if sys.platform == "darwin" else 1024
    return MemoryUse(None, unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def device_memory() -> int:
    """Returns the bytes that JAX may use on a device; on a CPU all that this process may use."""
    return min((each["bytes_limit"] for each in _device_statistics() if "bytes_limit" in each), default=total_memory())


def total_memory() -> int:
    """Returns the bytes of memory that this process and its children may use, of the machine's or of its cgroup's."""
    limits = [limit for limit, _ in _cgroups()]
    return min([os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), *limits])


def free_memory() -> int:
    """Returns the bytes of memory that are free; where the system does not say, all of it."""
    free = [max(0, limit - used) for limit, used in _cgroups()]
    with contextlib.suppress(OSError, ValueError, KeyError):
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        free.append(1024 * int(lines["MemAvailable"].split()[0]))
    return min(free, default=total_memory())


def _device_statistics() -> list[dict[str, Any]]:
    """Returns what the devices of this process say of their memory; a CPU says nothing."""
    return [each.memory_stats() or {} for each in jax.local_devices()]


def _cgroups() -> list[tuple[int, int]]:
    """Returns limit and use of memory, in bytes, of each control group (version 2) around this process that has a limit.

    A scheduler such as SLURM gives a job a group of its own.
    """
    found = []
    with contextlib.suppress(OSError, ValueError):
        path = Path("/proc/self/cgroup").read_text().strip().rpartition("0::/")[2]
        folder = Path("/sys/fs/cgroup", path)
        for each in (folder, *folder.parents):
            with contextlib.suppress(OSError, ValueError):
                limit, used = (int((each / f"memory.{name}").read_text()) for name in ("max", "current"))
                # The cache of files counts as used, and is given back when memory is wanted.
                statistics = dict(line.split() for line in (each / "memory.stat").read_text().splitlines())
                found.append((limit, used - int(statistics.get("inactive_file", 0))))
    return found
