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

    def __str__(self) -> str:
        return f"memory {self.peak / 1e9:.2f} GB"


def memory_use() -> MemoryUse:
    """Returns the memory in use of the fullest device of this process, or of the process if it computes on a CPU."""
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
    return min([os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), *_cgroup_limits()])


def _device_statistics() -> list[dict[str, Any]]:
    """Returns the devices' statistics of their memory; those of a CPU are empty."""
    return [each.memory_stats() or {} for each in jax.local_devices()]


def _cgroup_limits() -> list[int]:
    """Returns the memory limits, in bytes, of the control groups (version 2) around this process, such as a SLURM job's."""
    found = []
    with contextlib.suppress(OSError):
        path = Path("/proc/self/cgroup").read_text().strip().rpartition("0::/")[2]
        folder = Path("/sys/fs/cgroup", path)
        for each in (folder, *folder.parents):
            with contextlib.suppress(OSError, ValueError):  # "max": no limit
                found.append(int((each / "memory.max").read_text()))
    return found
