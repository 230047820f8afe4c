"""The threads that XLA needs to run several devices of one CPU.

XLA runs all devices of a CPU on one pool of threads: as many as there are cores, or devices if
these are more. Inside a collective operation each device holds a thread until the last one arrives.
A program whose launch has to wait, because 32 programs of a device are in flight, holds one thread
per device too. So with fewer than two threads per device the last device may find none, and XLA
aborts the process after 40 seconds. GPUs launch programs without this pool.
"""

import os
import re
from collections.abc import Sequence
from typing import Any

from esnlm.base.errors import InputError
from esnlm.machine.compilation_cache import available_cores

# environment variable with the number of threads, read by XLA when JAX starts
VARIABLE = "PJRT_NPROC"
PER_DEVICE = 2
SIMULATED = re.compile(r"--xla_force_host_platform_device_count=(\d+)")


def set_threads() -> None:
    """Asks XLA for enough threads if the environment asks for several devices of the CPU. Call it
    before JAX starts."""
    flags = SIMULATED.findall(os.environ.get("XLA_FLAGS", ""))
    devices = int(flags[-1]) if flags else _number_in("JAX_NUM_CPU_DEVICES") or 1
    if devices > 1 and _pool_size(devices) < PER_DEVICE * devices:
        os.environ.setdefault(VARIABLE, str(PER_DEVICE * devices))


def check_threads(devices: Sequence[Any]) -> None:
    """Raises InputError if the devices of a mesh are of this CPU, and XLA has too few threads for
    them."""
    local = sum(
        device.platform == "cpu" and device.process_index == devices[0].process_index
        for device in devices
    )
    if local > 1 and _pool_size(local) < PER_DEVICE * local:
        threads = f"{PER_DEVICE * local} threads of XLA, which has {_pool_size(local)}"
        raise InputError(
            f"{local} CPU devices need {threads}: set {VARIABLE}={PER_DEVICE * local} before Python"
            " starts"
        )


def _pool_size(devices: int) -> int:
    """Returns the threads that XLA has for this many devices."""
    return max(_number_in(VARIABLE) or _number_in("NPROC") or available_cores(), devices)


def _number_in(variable: str) -> int | None:
    """Returns the number that an environment variable holds; None for other text, which XLA and JAX
    ignore or name."""
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else None
