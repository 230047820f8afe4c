"""The processes of one run: their numbers, their agreement on decisions, and their common end.

A single process is process 0 of 1, and everything here then costs nothing. Several processes must
make the same calls of JAX in the same order; `broadcast` gives all of them process 0's decisions.
Only process 0 writes and prints.
"""

import contextlib
import ctypes
import itertools
import json
import os
import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from esnlm.base.errors import InputError
from esnlm.base.versions import version

Value = TypeVar("Value")

STOPPED = 75  # the exit status of a run that was stopped and can be resumed
LOST = 76  # the exit status after another process was lost; EX_PROTOCOL in C
LOSS = (
    "another process was lost: its own lines may say why; the same command resumes from the newest"
    " checkpoint"
)
# Launchers' counts of started processes. (In an interactive allocation JAX would wait for processes
# never started.)
STARTED_TOGETHER = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE")
# seconds until a silent process counts as lost; a failing process waits for the others this long,
# too
PATIENCE = 10
# bytes of every message; one size, so that a failing process can answer any request
MESSAGE = 1 << 16

_index, _count = 0, 1
_failed = False  # whether all processes know of a failure
_stops = False
_checks = itertools.count(1)
_at_abort: Any = None  # The system calls it, so it must not be collected.


def join(
    coordinator: str | None,
    processes: int | None,
    process: int | None,
    wait: int,
    stops_together: bool,
) -> None:
    """Makes this process one of a run's, by a command's options (docs/machines.md).

    Call it before JAX is used. If `stops_together`, SIGTERM to one process stops all
    (`any_asked_to_stop`) instead of ending it.
    """
    global _index, _count
    if processes == 1:
        return
    if coordinator is None and processes is None and process is None:
        processes = max(int(os.environ.get(name) or 1) for name in STARTED_TOGETHER)
        if processes == 1:
            return
    elif coordinator == "auto":
        coordinator = None
    elif coordinator is None or processes is None or process is None:
        raise InputError(
            "--coordinator, --processes and --process belong together: give all, or --coordinator"
            " auto"
        )
    elif not re.fullmatch(r".+:\d+", coordinator):
        raise InputError(f"--coordinator is {coordinator!r}: give HOST:PORT of process 0, or auto")

    import jax

    where = f"--coordinator {coordinator or 'auto'}"
    alone = "to run alone, give --processes 1"
    _end_at_abort(
        2,
        f"{where}: not all processes joined within {wait} s, or two have the same number; {alone}",
    )
    jax.config.update("jax_enable_preemption_service", stops_together)
    try:
        jax.distributed.initialize(
            coordinator,
            processes,
            process,
            cluster_detection_method=None if coordinator is None else "deactivate",
            initialization_timeout=wait,
            heartbeat_timeout_seconds=PATIENCE,
            shutdown_timeout_seconds=3 * PATIENCE,
        )
        _count = 2  # or more; if its device is missing, this process ends without the others
        _index, _count = jax.process_index(), jax.process_count()
    except (RuntimeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"{where}: {reason}; {alone}") from None
    _end_at_abort(LOST, LOSS)
    if not is_rank0():
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # hides Gloo's own lines
    check_same({name: version(name) for name in ("esnlm", "jax")})


def index() -> int:
    """Returns the number of this process, 0 if it is alone."""
    return _index


def count() -> int:
    """Returns the number of processes."""
    return _count


def is_rank0() -> bool:
    """Returns whether this process writes files and prints lines: process 0."""
    return _index == 0


# ---- agreement: every process must make these calls, and each waits for the others ----


def broadcast(value: Value) -> Value:
    """Returns process 0's value, which must be valid JSON, in every process."""
    return value if _count == 1 else _exchange(value)[0]


def check_same(settings: dict[str, str]) -> None:
    """Raises InputError in all processes unless all have the same settings."""
    if _count == 1:
        return
    first, *others = _exchange(settings)
    for process, other in enumerate(others, 1):
        names = [name for name in first | other if other.get(name) != first.get(name)]
        differ = "; ".join(f"{name} {other.get(name)}, there {first.get(name)}" for name in names)
        if differ:
            raise InputError(
                f"process {process} differs from process 0 ({differ}): give all processes the same"
            )


def barrier() -> None:
    """Waits until all processes are here."""
    broadcast(None)


@contextlib.contextmanager
def rank0_first() -> Iterator[None]:
    """Runs process 0 first, then the others, which read its files.

    If one was asked to stop, all are interrupted.
    """
    if not is_rank0():
        barrier()
    yield
    if is_rank0():
        barrier()
    barrier()
    if any_asked_to_stop(False):
        raise KeyboardInterrupt


@contextlib.contextmanager
def written_by_first() -> Iterator[bool]:
    """Yields whether this process writes. The others wait until process 0 has written."""
    yield is_rank0()
    barrier()


# ---- the end ----


def any_asked_to_stop(is_asked: bool) -> bool:
    """Returns in all processes, at the same call, whether one was asked to stop.

    A process that is alone returns `is_asked`.
    """
    global _stops
    if _count == 1:
        return is_asked
    from jax.experimental import multihost_utils

    _stops = _stops or multihost_utils.reached_preemption_sync_point(next(_checks))
    return _stops


def finish() -> None:
    """Waits for the end of all processes."""
    if _count > 1:
        barrier()
        _leave()


def fail(line: str) -> None:
    """Ends all processes. The others raise InputError(line) at their next broadcast.

    If they do not answer, they lose this process after PATIENCE.
    """
    if _count > 1:
        with contextlib.suppress(Exception):
            if not _failed:
                ThreadPoolExecutor(1).submit(_gather, {"failure": line[:2000]}).result(PATIENCE)
            _leave()


def is_loss(error: Exception) -> bool:
    """Returns whether an error of JAX comes from a collective operation with a lost process."""
    return _count > 1 and any(library in str(error) for library in ("Gloo", "NCCL"))


def _leave() -> None:
    """Leaves JAX's service together with all processes; JAX would abort the others."""
    global _count
    import jax

    jax.distributed.shutdown()
    _count = 1


def _end_at_abort(status: int, line: str) -> None:
    """Ends this process with a line and a status if JAX aborts it."""
    global _at_abort

    def leave(_: int) -> None:
        os.write(2, f"error: {line}\n".encode())
        os._exit(status)

    _at_abort = ctypes.CFUNCTYPE(None, ctypes.c_int)(leave)
    ctypes.CDLL(None).signal(signal.SIGABRT, _at_abort)


def _exchange(value: Any) -> list[Any]:
    """Returns the values of all processes. Raises InputError if one of them failed."""
    global _failed
    messages = _gather({"value": value})
    for process, message in enumerate(messages):
        if "failure" in message:
            _failed = True
            raise InputError(f"process {process} of {_count}: {message['failure']}")
    return [message["value"] for message in messages]


def _gather(message: dict[str, Any]) -> list[dict[str, Any]]:
    import numpy as np
    from jax.experimental import multihost_utils

    padded = np.frombuffer(json.dumps(message).encode().ljust(MESSAGE), np.uint8)
    return [json.loads(row.tobytes()) for row in multihost_utils.process_allgather(padded)]
