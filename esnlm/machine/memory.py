"""Available memory and memory in use, of the machine and of the device."""

import contextlib
import os
import resource
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax


class MemoryUse(NamedTuple):
    """Bytes in use now and at the peak. On a CPU they are the process's, for which only the peak is
    known."""

    now: int | None
    peak: int

    @property
    def values(self) -> dict[str, int]:
        """Returns the bytes under their names in metrics.jsonl."""
        return ({} if self.now is None else {"memory_bytes": self.now}) | {
            "peak_memory_bytes": self.peak
        }

    def __str__(self) -> str:
        return f"memory {self.peak / 1e9:.2f} GB"


def memory_use() -> MemoryUse:
    """Returns the memory in use on the fullest device of this process, or in the process if it
    computes on a CPU."""
    found = [statistics for statistics in _device_statistics() if "peak_bytes_in_use" in statistics]
    if found:
        return MemoryUse(
            *(max(each[name] for each in found) for name in ("bytes_in_use", "peak_bytes_in_use"))
        )
    unit = 1 if sys.platform == "darwin" else 1024
    return MemoryUse(None, unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def device_memory() -> int:
    """Returns the bytes that JAX may use on a device; on a CPU the bytes that this process may
    use."""
    return min(
        (each["bytes_limit"] for each in _device_statistics() if "bytes_limit" in each),
        default=total_memory(),
    )


def total_memory() -> int:
    """Returns the bytes that this process and its children may use: the machine's memory or the
    cgroup's limit."""
    return min([os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), *_cgroup_limits()])


def _device_statistics() -> list[dict[str, Any]]:
    """Returns the memory statistics of the devices; empty ones on a CPU."""
    return [each.memory_stats() or {} for each in jax.local_devices()]


def _cgroup_limits() -> list[int]:
    """Returns the memory limits, in bytes, of the control groups (version 2) around this process,
    such as a SLURM job's."""
    found = []
    with contextlib.suppress(OSError):
        path = Path("/proc/self/cgroup").read_text("utf-8").strip().rpartition("0::/")[2]
        folder = Path("/sys/fs/cgroup", path)
        for each in (folder, *folder.parents):
            with contextlib.suppress(OSError, ValueError):  # "max": no limit
                found.append(int((each / "memory.max").read_text("utf-8")))
    return found
