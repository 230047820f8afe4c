"""Processes for the runs of a study: one at a time, or a pool of several side by side."""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from esnlm.io.console import Level, level, speaking
from esnlm.process import exit_with
from esnlm.studies.shares import Share
from esnlm.workflows.train import INTERRUPTED


class Job(NamedTuple):
    """A call that gets a process of its own."""

    name: str
    function: Callable[..., int | None]
    arguments: tuple[Any, ...]
    memory: int = 0  # bytes that it needs
    log: Path | None = None  # what it says on standard error is added to this file; None: it is shown


class Ended(NamedTuple):
    """A job whose process has ended."""

    job: Job
    status: int  # its exit status, where a negative one is the signal that ended it

    @property
    def reason(self) -> str:
        """Why it failed: the last line of its log where it said what was wrong, or its status, and where the log is."""
        lines = self.job.log.read_text(errors="replace").split("\n") if self.job.log and self.job.log.exists() else []
        said = (
            next((line for line in reversed(lines) if line.startswith("error: ")), None) if self.status == 2 else None
        )
        where = f" ({self.job.log})" if self.job.log else ""
        return said.removeprefix("error: ") if said else f"ended with status {self.status}{where}"


class Pool:
    """Processes side by side, each with a share of the machine.

    SIGINT and SIGTERM are passed on as SIGTERM to all of them, which asks a run to save and stop; then `asked` is true. (A
    second signal does not insist, because a Ctrl-C at a terminal has reached the processes already.) Leaving the `with`
    block stops what is still running and waits for it.

    Example:
        with Pool(shares, memory) as pool:
            while pool.running or (waiting and not pool.asked):
                while waiting and pool.has_room(waiting[0].memory):
                    pool.start(waiting.pop(0))
                for ended in pool.wait(1.0):
                    ...
    """

    def __init__(self, shares: Sequence[Share], memory: int) -> None:
        """
        Args:
            shares: one for each process that may run at once.
            memory: bytes that the processes may need together. One that needs more runs alone.
        """
        self.asked = False
        self.running: dict[str, Job] = {}  # by name, in the order of their start
        self._free, self._memory = list(shares), memory
        self._processes: dict[str, tuple[BaseProcess, Share]] = {}
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Pool":
        self._before = {number: signal.signal(number, self._pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *exception: object) -> None:
        for name in self.running:
            self.stop(name)
        while self.running:
            self.wait(None)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def has_room(self, memory: int) -> bool:
        """Returns whether a job that needs so many bytes can start now. The first one always can."""
        if self.asked or not self._free:
            return False
        return not self.running or sum(job.memory for job in self.running.values()) + memory <= self._memory

    def start(self, job: Job) -> None:
        """Starts a process for a job; `has_room` has said that it can."""
        share = self._free.pop(0)
        process = _make_process(job.function, job.arguments, job.log)
        with share.given():
            process.start()
        self.running[job.name], self._processes[job.name] = job, (process, share)
        if self.asked:  # meanwhile
            self.stop(job.name)

    def stop(self, name: str) -> None:
        """Asks a job to save and stop."""
        self._processes[name][0].terminate()

    def wait(self, seconds: float | None) -> list[Ended]:
        """Waits until a process ends, so many seconds at the most, and returns the jobs that have ended."""
        ready = wait([process.sentinel for process, _ in self._processes.values()], seconds)
        ended = []
        for name, (process, share) in list(self._processes.items()):
            if process.sentinel in ready:
                process.join()
                ended.append(Ended(self.running.pop(name), process.exitcode or 0))
                del self._processes[name]
                self._free.append(share)
        return ended

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        for name in list(self._processes):
            self.stop(name)


def run_in_process(function: Callable[..., int | None], *arguments: Any) -> int:
    """Calls a function in a fresh process, so that all of its memory is given back, and returns the exit status.

    What it says on standard error is shown. Signals are passed on as in `Pool`, and the status is then 75. What the
    function prints as its result is not shown: the study's table is.
    """
    with Pool([Share()], memory=0) as pool:
        pool.start(Job("", function, arguments))
        [ended] = pool.wait(None)
    return INTERRUPTED if pool.asked else ended.status


def _make_process(function: Callable[..., int | None], arguments: tuple[Any, ...], log: Path | None) -> BaseProcess:
    return multiprocessing.get_context("spawn").Process(
        target=_exit_with_status, args=(level(), log, function, *arguments)
    )


def _exit_with_status(told: Level, log: Path | None, function: Callable[..., int | None], *arguments: Any) -> None:
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    if log is not None:
        told = max(told, Level.USUAL)  # --quiet is for who watches, not for the log
        with open(log, "ab") as file:
            os.dup2(file.fileno(), 2)  # what libraries in C say goes there, too
    with open("/dev/null", "w") as nowhere, speaking(told):
        sys.stdout = nowhere
        sys.exit(exit_with(lambda: function(*arguments)))


def _stop_with_parent() -> None:
    """Asks this process to save and stop when the study's process is gone, however it ended: the same command could not go on beside it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
