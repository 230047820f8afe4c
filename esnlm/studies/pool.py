"""Trains the runs of a study in parallel: `esnlm train` and `esnlm blimp` in separate processes,
one log per run."""

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

from esnlm.base.console import clock, end_status, say, status, tell
from esnlm.base.errors import InputError
from esnlm.machine.host import available_cores

INTERRUPTED = 75
SECONDS = 0.2  # between checks of a process

Slot = dict[str, str]  # environment variables of a process
Task = Callable[[Slot], None]


class Pool:
    """Parallel workers. SIGINT and SIGTERM ask all processes to save and stop, and set `asked`."""

    def __init__(self, logs: Path, done: int, total: int) -> None:
        self.asked, self.failed, self.lock = False, dict[str, int](), threading.Lock()
        self._logs, self._done, self._total = logs, done, total
        logs.mkdir(parents=True, exist_ok=True)

    def work(self, slots: Sequence[Slot], tasks: Sequence[Task]) -> int:
        """Runs tasks in order, one at a time per slot, and returns the exit status of the study."""
        left = iter(tasks)

        def work_in(slot: Slot) -> None:
            while not self.asked:
                with self.lock:
                    task = next(left, None)
                if task is None:
                    return
                task(slot)

        began = time.monotonic()
        before = {
            number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            with ThreadPoolExecutor(len(slots)) as threads:
                working = [threads.submit(work_in, slot) for slot in slots]
                while (now := wait(working, timeout=1)).not_done:
                    # After an error, such as an unwritable table, the others save and stop.
                    self.asked = self.asked or any(each.exception() for each in now.done)
                    status(
                        f"{self._done} of {self._total} runs done after"
                        f" {clock(time.monotonic() - began)}"
                    )
        finally:
            end_status()
            for number, handler in before.items():
                signal.signal(number, handler)
        for each in working:
            each.result()
        if self.failed:
            tell(f"failed: {', '.join(self.failed)}; the same command tries again")
        if self.asked:
            tell("stopped; the same command resumes")
            return INTERRUPTED
        # negative codes are signals
        return max((max(code, 1) for code in self.failed.values()), default=0)

    def run(
        self,
        name: str,
        commands: list[list[str]],
        slot: Slot,
        is_hopeless: Callable[[], bool] = lambda: False,
    ) -> str:
        """Runs `esnlm` commands in order. Returns the outcome: done, stopped, given up (if
        hopeless) or failed."""
        say(f"{name}: starting, {self._done} of {self._total} done")
        for words in commands:
            with open(self._logs / f"{name}.log", "ab") as log:
                line, env = [sys.executable, "-m", "esnlm", *words], os.environ | slot
                process = subprocess.Popen(
                    line, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=env
                )
            given_up = False
            while process.poll() is None and not (self.asked or given_up):
                time.sleep(SECONDS)
                given_up = is_hopeless()
            if self.asked or given_up:
                process.terminate()
                process.wait()
                return "stopped" if self.asked else "given up"
            if process.returncode != 0:
                self.failed[name] = process.returncode
                tell(f"{name}: {self.reason(name)}")
                return "failed"
        self._done += 1
        return "done"

    def reason(self, name: str) -> str:
        """Returns the reason why a run failed: the last error in its log, or its status."""
        log = self._logs / f"{name}.log"
        errors = [
            line
            for line in log.read_text("utf-8", errors="replace").split("\n")
            if line.startswith("error: ")
        ]
        return (
            errors[-1]
            if self.failed[name] == 2 and errors
            else f"ended with status {self.failed[name]} ({log})"
        )

    def _stop(self, number: int, frame: Any) -> None:
        self.asked = True


def find_slots(jobs: str | None) -> list[Slot]:
    """Returns a slot for each process of `--jobs`: a number, auto (one per GPU or per two cores),
    None for one."""
    if jobs not in (None, "auto") and not (jobs.isdigit() and int(jobs) > 0):
        raise InputError(f"--jobs is {jobs}: give a number of at least 1, or auto")
    if jobs in (None, "1"):
        return [{}]
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    gpus = visible or sorted(
        path.name.removeprefix("nvidia") for path in Path("/dev").glob("nvidia[0-9]*")
    )
    if gpus:
        return [
            {"CUDA_VISIBLE_DEVICES": name}
            for name in (gpus if jobs == "auto" else gpus[: int(jobs)])
        ]
    return [{}] * (max(1, available_cores() // 2) if jobs == "auto" else int(jobs))
