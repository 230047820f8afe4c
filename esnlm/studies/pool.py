"""Runs of a study side by side: `esnlm train` and `esnlm blimp` in processes of their own, each run with a log."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from esnlm.errors import InputError
from esnlm.io.console import clock, end_status, say, status, tell

INTERRUPTED = 75
SECONDS = 0.2  # between two looks at a process

Slot = dict[str, str]  # environment variables of a process
Task = Callable[[Slot], None]


class Pool:
    """Workers side by side. SIGINT and SIGTERM ask all processes to save and stop, and then `asked` is true."""

    def __init__(self, logs: Path, done: int, total: int, work: float) -> None:
        """
        Args:
            logs: folder of the logs.
            done, total: runs of the study.
            work: weight of the runs that are left.
        """
        self.asked, self.failed, self.lock = False, dict[str, int](), threading.Lock()
        self._logs, self._done, self._total, self._work = logs, done, total, work
        self._began, self._finished = time.monotonic(), 0.0
        self._running: dict[str, subprocess.Popen] = {}
        logs.mkdir(parents=True, exist_ok=True)

    def work(self, slots: Sequence[Slot], take: Callable[[], Task | None]) -> int:
        """Does tasks, one after the other in each slot, and returns the exit status of the study.

        Args:
            take: returns the next task, which calls `run`; None if there is none.
        """

        def work_in(slot: Slot) -> None:
            try:
                while not self.asked and (task := self._take(take)) is not None:
                    task(slot)
            except BaseException:  # such as a table that cannot be written: the others save and stop
                self.asked = True
                raise

        before = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            with ThreadPoolExecutor(len(slots)) as threads:
                workers = [threads.submit(work_in, slot) for slot in slots]
                while wait(workers, timeout=1).not_done:
                    seconds, rest = time.monotonic() - self._began, self._work - self._finished
                    left = f", about {clock(seconds / self._finished * rest)} left" if self._finished else ""
                    status(f"{self._done} of {self._total} runs done{left}; under way: {', '.join(self._running)}")
        finally:
            end_status()
            for number, handler in before.items():
                signal.signal(number, handler)
        for worker in workers:
            worker.result()
        if self.failed:
            tell(f"failed: {', '.join(self.failed)}; the same command tries again")
        if self.asked:
            tell("stopped; the same command goes on")
            return INTERRUPTED
        return max((max(code, 1) for code in self.failed.values()), default=0)  # a negative one is a signal's

    def run(
        self,
        name: str,
        commands: list[list[str]],
        slot: Slot,
        weight: float = 1.0,
        is_hopeless: Callable[[], bool] = lambda: False,
    ) -> str:
        """Runs commands of `esnlm`, one after the other, and says how that ended: done, stopped, given up or failed.

        Args:
            is_hopeless: asked again and again; if it says so, the run is given up.
        """
        say(f"{name}: begins, {self._done} of {self._total} done")
        for words in commands:
            with open(self._logs / f"{name}.log", "ab") as log:
                line, env = [sys.executable, "-m", "esnlm", *words], os.environ | slot
                process = subprocess.Popen(line, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=env)
            self._running[name] = process
            given_up = False
            while process.poll() is None and not (self.asked or given_up):
                time.sleep(SECONDS)
                given_up = is_hopeless()
            if self.asked or given_up:
                process.terminate()
            process.wait()
            del self._running[name]
            if self.asked or given_up:
                return "stopped" if self.asked else "given up"
            if process.returncode != 0:
                self.failed[name] = process.returncode
                tell(f"{name}: {self.reason(name)}")
                return "failed"
        self._done, self._finished = self._done + 1, self._finished + weight
        return "done"

    def reason(self, name: str) -> str:
        """Returns why a run failed: the last error of its log, or its status."""
        log = self._logs / f"{name}.log"
        errors = [line for line in log.read_text(errors="replace").split("\n") if line.startswith("error: ")]
        return errors[-1] if self.failed[name] == 2 and errors else f"ended with status {self.failed[name]} ({log})"

    def _take(self, take: Callable[[], Task | None]) -> Task | None:
        with self.lock:
            return take()

    def _stop(self, number: int, frame: Any) -> None:
        self.asked = True


def find_slots(jobs: str | None) -> list[Slot]:
    """Returns a slot for each of the processes that may work at once. GPUs are not shared.

    Args:
        jobs: how many, "auto" (one a GPU, or one for every two cores), or None for one.
    """
    if jobs not in (None, "auto") and not (jobs.isdigit() and int(jobs) > 0):
        raise InputError(f"--jobs is {jobs}: give a number from 1 up, or auto")
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    gpus = visible or sorted(path.name.removeprefix("nvidia") for path in Path("/dev").glob("nvidia[0-9]*"))
    if jobs in (None, "1"):
        return [{}]
    if gpus:
        return [{"CUDA_VISIBLE_DEVICES": name} for name in (gpus if jobs == "auto" else gpus[: int(jobs)])]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return [{}] * (max(1, cores // 2) if jobs == "auto" else int(jobs))
