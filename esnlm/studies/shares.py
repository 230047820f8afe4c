"""How a machine is divided among runs that are trained side by side: cores, devices and memory.

A run that computes on a CPU may round otherwise with another number of cores, because XLA divides sums among them. So all
shares of a study are of the same size, and the size follows from the machine, the study and `--jobs`, not from what is left
to do. The number of cores stands in the summary of each run.
"""

import contextlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple

import jax

from esnlm.compute import backend
from esnlm.config import Experiment
from esnlm.errors import InputError
from esnlm.memory import total_memory
from esnlm.training import plan

# What a process of training takes beside what `plan.memory` counts: Python, JAX, compiled programs (0.41 GB were measured).
PROCESS_BYTES = 600_000_000
AUTO = "auto"


class Share(NamedTuple):
    """What a process may use of the machine. None leaves it as it is."""

    cores: frozenset[int] | None = None
    device: str | None = None  # as CUDA_VISIBLE_DEVICES names it

    @contextlib.contextmanager
    def given(self) -> Iterator[None]:
        """Lets a process that is started within it have this share, from its first instruction on."""
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        cores = os.sched_getaffinity(0) if self.cores else None  # of this thread only, which starts the process
        try:
            if self.cores:
                os.sched_setaffinity(0, self.cores)
            if self.device is not None:
                os.environ["CUDA_VISIBLE_DEVICES"] = self.device
            yield
        finally:
            if cores:
                os.sched_setaffinity(0, cores)
            if self.device is not None:
                del os.environ["CUDA_VISIBLE_DEVICES"]
                os.environ |= {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}


class Devices(NamedTuple):
    """What JAX computes on here."""

    platform: str  # cpu, gpu or tpu
    number: int


def parse_jobs(text: str | None) -> int | str | None:
    """Returns the number of jobs that `--jobs` asks for, AUTO, or None where it is not given.

    Raises:
        InputError: it is something else.
    """
    if text in (None, AUTO):
        return text
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise InputError(f"--jobs is {text}: give a number from 1 up, or {AUTO}")
    return int(text)


def divide(jobs: int | str, runs: int, need: int, devices: Devices) -> list[Share]:
    """Returns a share for each of the processes that may work at once.

    Args:
        jobs: how many there should be, or AUTO: on a CPU one a core, but no more than there are runs, or than have room in
            the memory of the machine; elsewhere one a device.
        runs: of the whole study.
        need: the memory that the largest run needs, in bytes.
        devices: what JAX computes on. Several jobs on GPUs get one device each, and never share one.
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if devices.platform == "cpu":
        most = min(len(cores) or os.cpu_count() or 1, max(1, runs), max(1, total_memory() // max(1, need)))
        count = most if jobs == AUTO else int(jobs)
    elif devices.platform == "gpu":
        count = devices.number if jobs == AUTO else min(int(jobs), devices.number)
    else:
        count = 1  # A process holds all TPUs of a machine.
    if count == 1:
        return [Share()]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    names = visible if len(visible) >= devices.number and visible[0] else [str(i) for i in range(devices.number)]
    return [Share(_cores(cores, i, count), names[i] if devices.platform == "gpu" else None) for i in range(count)]


def find_devices() -> Devices:
    """Asks JAX in a process of its own, because a process that has asked holds the devices.

    Raises:
        InputError: JAX_PLATFORMS asks for a kind of device that is not here.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(_ask_jax).result()


def memory_needs(experiments: Sequence[Experiment], devices: Devices) -> list[int]:
    """Returns the bytes of the machine's memory that each run needs; on other devices than a CPU those of a process only."""
    if devices.platform != "cpu":
        return [PROCESS_BYTES] * len(experiments)
    return [PROCESS_BYTES + plan.memory(experiment, devices.platform).total for experiment in experiments]


def _cores(cores: Sequence[int], number: int, count: int) -> frozenset[int] | None:
    """Returns the cores of one of `count` equal shares. What cannot be divided is left idle; too few are shared."""
    if not cores:
        return None
    size = len(cores) // count
    return frozenset(cores[number * size : (number + 1) * size] if size else [cores[number % len(cores)]])


def _ask_jax() -> Devices:
    return Devices(backend(), jax.local_device_count())
