"""The runs of a study, and the processes that train and score them in parallel, one log per run."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

from esnlm.base.console import clock, end_status, info, notice, status
from esnlm.base.errors import InputError
from esnlm.machine.host import available_cores
from esnlm.training.config import Experiment

INTERRUPTED = 75
SECONDS = 0.2  # between checks of a process

Slot = dict[str, str]  # environment variables of a process
Task = Callable[[Slot], None]


class StudyRun(NamedTuple):
    """A run of a study."""

    cell: str
    experiment: Experiment
    base: Path  # its configuration file
    settings: list[str]  # `--key=value` in addition to the base, without run and seed

    @property
    def directory(self) -> Path:
        return self.experiment.folder

    @property
    def name(self) -> str:
        return self.directory.name

    def commands(self, blimp: Path | None) -> list[list[str]]:
        """Returns the arguments of `esnlm` to train the run and to score it."""
        places = [f"--run={self.directory}", f"--seed={self.experiment.seed}"]
        train = ["train", "--config", str(self.base), *self.settings, *places]
        score = ["blimp", "--run", str(self.directory), "--data", str(blimp), "--overwrite"]
        return [train] if blimp is None else [train, score]


class Pool:
    """Parallel workers. After SIGINT or SIGTERM, all processes save and stop (`stopping`)."""

    def __init__(self, logs: Path, done: int, total: int) -> None:
        self.stopping, self.failed, self.lock = False, dict[str, int](), threading.Lock()
        self._logs, self._done, self._total = logs, done, total
        logs.mkdir(parents=True, exist_ok=True)

    def work(self, slots: Sequence[Slot], tasks: Sequence[Task]) -> int:
        """Runs tasks in order, one at a time per slot, and returns the exit status of the study."""
        remaining = iter(tasks)

        def work_in(slot: Slot) -> None:
            while not self.stopping:
                with self.lock:
                    task = next(remaining, None)
                if task is None:
                    return
                task(slot)

        start = time.monotonic()
        handlers = {
            number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            with ThreadPoolExecutor(len(slots)) as threads:
                workers = [threads.submit(work_in, slot) for slot in slots]
                while (progress := wait(workers, timeout=1)).not_done:
                    # After an error, such as an unwritable table, the others save and stop.
                    self.stopping = self.stopping or any(each.exception() for each in progress.done)
                    elapsed = clock(time.monotonic() - start)
                    status(f"{self._done} of {self._total} runs done after {elapsed}")
        finally:
            end_status()
            for number, handler in handlers.items():
                signal.signal(number, handler)
        for worker in workers:
            worker.result()
        if self.failed:
            notice(f"failed: {', '.join(self.failed)}; the same command tries again")
        if self.stopping:
            notice("stopped; the same command resumes")
            return INTERRUPTED
        # Negative codes are signals.
        return max((max(code, 1) for code in self.failed.values()), default=0)

    def run(
        self,
        name: str,
        commands: list[list[str]],
        slot: Slot,
        is_hopeless: Callable[[], bool] = lambda: False,
    ) -> str:
        """Runs `esnlm` commands in order. Returns done, stopped, given up (hopeless) or failed."""
        info(f"{name}: starting, {self._done} of {self._total} done")
        for words in commands:
            with open(self._logs / f"{name}.log", "ab") as log:
                process = subprocess.Popen(
                    [sys.executable, "-m", "esnlm", *words],
                    stdout=log,
                    stderr=log,
                    stdin=subprocess.DEVNULL,
                    env=os.environ | slot,
                )
            given_up = False
            while process.poll() is None and not (self.stopping or given_up):
                time.sleep(SECONDS)
                given_up = is_hopeless()
            if self.stopping or given_up:
                process.terminate()
                process.wait()
                return "stopped" if self.stopping else "given up"
            if process.returncode != 0:
                self.failed[name] = process.returncode
                notice(f"{name}: {self.reason(name)}")
                return "failed"
        self._done += 1
        return "done"

    def reason(self, name: str) -> str:
        """Returns the reason why a run failed: the last error in its log, or its status."""
        log, code = self._logs / f"{name}.log", self.failed[name]
        lines = log.read_text("utf-8", errors="replace").split("\n")
        errors = [line for line in lines if line.startswith("error: ")]
        return errors[-1] if code == 2 and errors else f"ended with status {code} ({log})"

    def _stop(self, number: int, frame: Any) -> None:
        self.stopping = True


def find_slots(jobs: str | None) -> list[Slot]:
    """Returns a slot for each process of `--jobs`: a number, or auto (one per GPU or two cores)."""
    if jobs not in (None, "auto") and not (jobs.isdigit() and int(jobs) > 0):
        raise InputError(f"--jobs is {jobs}: give a number of at least 1, or auto")
    if jobs in (None, "1"):
        return [{}]
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    gpus = visible or sorted(
        path.name.removeprefix("nvidia") for path in Path("/dev").glob("nvidia[0-9]*")
    )
    most = max(len(gpus), available_cores() // 2, 1) if jobs == "auto" else int(jobs)
    return [{"CUDA_VISIBLE_DEVICES": name} for name in gpus[:most]] or [{}] * most
