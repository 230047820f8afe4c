"""Available memory and memory in use, of the machine and of the device."""

import contextlib
import os
import resource
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax


class MemoryUse(NamedTuple):
    """Bytes in use now and at the peak. On a CPU only the process's peak is known."""

    now: int | None
    peak: int

    @property
    def values(self) -> dict[str, int]:
        """Returns the bytes under their names in metrics.jsonl."""
        peak = {"peak_memory_bytes": self.peak}
        return peak if self.now is None else {"memory_bytes": self.now} | peak

    def __str__(self) -> str:
        return f"memory {self.peak / 1e9:.2f} GB"


def memory_use() -> MemoryUse:
    """Returns the memory in use on the fullest device; on a CPU in the process."""
    devices = [device for device in _device_statistics() if "peak_bytes_in_use" in device]
    if devices:
        now = max(device["bytes_in_use"] for device in devices)
        return MemoryUse(now, max(device["peak_bytes_in_use"] for device in devices))
    unit = 1 if sys.platform == "darwin" else 1024
    return MemoryUse(None, unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def device_memory() -> int:
    """Returns the bytes that JAX may use on a device; on a CPU those that the process may use."""
    devices = _device_statistics()
    limits = [device["bytes_limit"] for device in devices if "bytes_limit" in device]
    return min(limits, default=total_memory())


def total_memory() -> int:
    """Returns the bytes that this process may use: the machine's memory or a cgroup's limit."""
    return min([os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), *_cgroup_limits()])


def _device_statistics() -> list[dict[str, Any]]:
    """Returns the memory statistics of the devices; empty ones on a CPU."""
    return [each.memory_stats() or {} for each in jax.local_devices()]


def _cgroup_limits() -> list[int]:
    """Returns the memory limits, in bytes, of this process's control groups (version 2)."""
    limits = []
    with contextlib.suppress(OSError):
        path = Path("/proc/self/cgroup").read_text("utf-8").strip().rpartition("0::/")[2]
        folder = Path("/sys/fs/cgroup", path)
        for each in (folder, *folder.parents):
            with contextlib.suppress(OSError, ValueError):  # "max": no limit
                limits.append(int((each / "memory.max").read_text("utf-8")))
    return limits
