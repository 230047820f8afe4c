"""Runs commands one after another, each in a process that has the imports behind it.

`ForkServer` starts `python -m tests.reliability.fork_server`, which imports the package and forks a child for each order
that it reads. The child runs the command and comes to its end as Python does: its exit handlers run and its garbage is
collected, so what these write on stderr is seen, too.
"""

import ctypes
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.reliability.compare import REPOSITORY

LONGEST = 300  # seconds of a command, which is then killed
IMPORTED = ("esnlm.workflows.train", "esnlm.evaluate_run", "esnlm.data.prepare", "matplotlib.backends.backend_agg")
PARENT_DEATH_SIGNAL = 1  # an option of prctl: no child outlives the program


class ForkServer:
    """A process with the imports behind it, started with a library in LD_PRELOAD (faults.c)."""

    def __init__(self, library: Path) -> None:
        environment = os.environ | {"LD_PRELOAD": str(library), "PYTHONPATH": str(REPOSITORY)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.reliability.fork_server"],
            cwd=REPOSITORY,
            env=environment | {"PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> "ForkServer":
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, folder: Path, arguments: list[str], fault: list[Any]) -> tuple[int, str]:
        """Runs a command in `folder`, with `fault` as the arguments of faults_arm.

        Returns:
            Its exit status, or minus the number of the signal that ended it, and what it wrote on stderr.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        order = {"folder": str(folder), "arguments": arguments, "fault": fault}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline()), (folder / "stderr").read_text(errors="replace")


def serve() -> None:
    """Reads orders from stdin until it ends, and answers each with an exit status on stdout."""
    import jax

    for name in IMPORTED:
        importlib.import_module(name)
    for line in sys.stdin:
        order = json.loads(line)
        if not (child := os.fork()):
            library = ctypes.CDLL(None)
            library.prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)
            signal.alarm(LONGEST)
            os.chdir(order["folder"])
            for name, descriptor in ((os.devnull, 0), ("stdout", 1), ("stderr", 2)):
                os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC), descriptor)
            jax.config.update("jax_compilation_cache_dir", f"{order['folder']}/cache")
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
            path, *numbers, log = order["fault"]
            library.faults_arm(path.encode(), *map(ctypes.c_long, numbers[:2]), numbers[2], log.encode())
            return _become(order["arguments"])
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _become(arguments: list[str]) -> None:
    """Runs a command as Python's own command line would: `-m MODULE ...` or `SCRIPT ...`."""
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        runpy.run_path(str(REPOSITORY / arguments[0]), run_name="__main__")


if __name__ == "__main__":
    serve()
