"""Shared by all benchmarks: timing side by side, the machine and its measured limits, and result
files.

Contenders take turns, A B C, A B C, ..., so that a slow minute of the machine affects all of them
alike. Ratios are taken within each round, and medians over the rounds are reported.
"""

import argparse
import contextlib
import importlib.metadata
import json
import multiprocessing
import os
import platform
import shlex
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

# Peers share the accelerator's memory with JAX, which reads this when it first looks for devices.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
import numpy as np
from gpu_parts import gpu

from esnlm.base.errors import InputError
from esnlm.base.files import write_files
from esnlm.machine.host import keep_freed_memory, share_one_heap
from esnlm.machine.matmul import matmul
from esnlm.machine.process import exit_with
from esnlm.reports.report import markdown_table

try:
    import torch
except ImportError:
    torch = None
TORCH_DEVICE = "cuda" if torch is not None and torch.cuda.is_available() else "cpu"

SHORTEST = 0.01  # seconds: a shorter contender repeats within its turn
# seconds between turns: thread pools spin for a while after their last work, on the next one's
# cores
SETTLE = 0.03
# the pages of results/ are written from it
MEASURED = Path(__file__).parents[1] / "build" / "measured"
PACKAGES = (
    "esnlm",
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "numpy",
    "scipy",
    "torch",
    "triton",
    "reservoirpy",
)

Contender = Callable[[int], object]  # called with the round's number; returns when its work is done


def as_command(main: Callable[[], dict]) -> None:
    """Runs a benchmark and exits. Bad input gives a one-line error and status 2."""
    sys.exit(exit_with(lambda: None if main() else 1))


def arguments(description: str, rounds: int | None = None) -> argparse.ArgumentParser:
    """Returns the parser of a benchmark, with --out and, if it has a default number of rounds,
    --rounds."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", type=Path, default=MEASURED, help="folder of the results (default: build/measured)"
    )
    if rounds is not None:
        parser.add_argument("--rounds", type=int, default=rounds, help="default: %(default)s")
    return parser


def begin() -> dict:
    """Sets the process up for measuring, and returns the record that the benchmark completes and
    passes to `write`."""
    set_up()
    # For use from the repository's root.
    command = shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])
    return {"command": command, "load_before": load(), "machine": machine()}


def interleave(
    contenders: dict[str, Contender],
    rounds: int,
    tell: Callable[[dict, dict], None] = lambda seconds, failures: None,
    last: dict | None = None,
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Measures the seconds of each contender, round by round, after one uncounted round.

    Args:
        tell: called after each round with the results so far.
        last: keeps what each contender returned last.

    Returns:
        (seconds, failures): a list of `rounds` per contender; the error of each contender that
        failed in its first, uncounted turn (for lack of memory, for example) and was dropped.
    """
    seconds, failures = {}, {}

    def run(name: str, i: int) -> None:
        result = contenders[name](i)
        if last is not None:
            last[name] = result

    for name in contenders:
        try:
            run(name, 0)
            seconds[name] = []
        # a peer may fail in any way; record it and continue with the others
        except Exception as error:
            failures[name] = one_line(error)
    for i in range(rounds):
        for name in seconds:
            time.sleep(SETTLE)
            seconds[name].append(time_of(partial(run, name, i)))
        tell(seconds, failures)
    return seconds, failures


class Apart:
    """An object in its own process, with its own memory and threads. Its methods are called from
    here.

    An exception in a method or the constructor is raised here by the next call: an InputError
    unchanged, any other in one line.
    """

    def __init__(self, make: Callable, *arguments):
        context = multiprocessing.get_context("spawn")
        self._pipe, far = context.Pipe()
        self._process = context.Process(target=_serve, args=(far,), daemon=True)
        self._process.start()
        far.close()
        # Large arguments are sent after the process has done its imports; meanwhile others can
        # start.
        self._sending = threading.Thread(target=self._send, args=((make, arguments),), daemon=True)
        self._sending.start()

    def close(self) -> None:
        """Ends the process and frees its memory."""
        self._process.kill()
        self._process.join()

    def _send(self, message) -> None:
        with contextlib.suppress(OSError):  # The next call says that the process has ended.
            self._pipe.send(message)

    def __getattr__(self, name):
        return partial(self.ask, name)

    def ask(self, name, *arguments, until: float | None = None):
        """Calls a method. Ends a process that has not answered by the time `until`
        (time.monotonic)."""

        def left() -> float | None:
            return None if until is None else max(0.0, until - time.monotonic())

        self._sending.join(left())
        try:
            if not self._sending.is_alive():
                self._pipe.send((name, arguments))
            if self._sending.is_alive() or not self._pipe.poll(left()):
                self.close()
                raise RuntimeError(f"{name}: no answer in time")
            error, answer = self._pipe.recv()
        except (EOFError, OSError):
            raise RuntimeError(
                f"the process ended during {name}: was there enough memory?"
            ) from None
        if error is not None:
            raise error
        return answer


def _serve(pipe):
    make, arguments = pipe.recv()
    try:
        served, broken = make(*arguments), None
    except Exception as error:
        served, broken = None, error
    while True:
        try:
            name, given = pipe.recv()
        except EOFError:  # nobody is left to ask
            return
        try:
            if broken is not None:
                raise broken
            pipe.send((None, getattr(served, name)(*given)))
        except InputError as error:
            pipe.send((error, None))
        except Exception as error:
            pipe.send((RuntimeError(one_line(error)), None))


def time_of(run: Callable[[], object]) -> float:
    """Returns the seconds of a call, averaged over enough calls to last SHORTEST."""
    calls, elapsed, began = 0, 0.0, time.perf_counter()
    while elapsed < SHORTEST:
        run()
        calls += 1
        elapsed = time.perf_counter() - began
    return elapsed / calls


def compare(seconds: dict[str, list[float]], baseline: str) -> dict[str, dict]:
    """Returns median, minimum and maximum seconds of each contender, and `slower`, its median ratio
    to the baseline."""
    return {
        name: {
            "median_s": statistics.median(own),
            "min_s": min(own),
            "max_s": max(own),
            "slower": statistics.median(a / b for a, b in zip(own, seconds[baseline], strict=True)),
            "rounds_s": own,
        }
        for name, own in seconds.items()
    }


# ---- limits of the machine


def gemm_peaks(
    shapes: dict[str, tuple[int, int, int]], rounds: int, precision: str = "float32"
) -> dict[str, dict]:
    """Measures the FLOP/s of matrix products (m, k) x (k, n), by name and library: the best round
    of each."""
    contenders, flops = {}, {}
    for name, (m, k, n) in shapes.items():
        x, y = random_array((m, k), seed=1), random_array((k, n), seed=2)
        multiply = jax.jit(partial(matmul, contract=(1, 0), precision=precision))
        contenders[name, "jax"] = lambda _, f=multiply, x=x, y=y: f(x, y).block_until_ready()
        flops[name] = 2 * m * k * n
        if torch is not None:
            contenders[name, "torch"] = _torch_gemm(m, k, n, precision)
    seconds, failures = interleave(contenders, rounds)
    peaks = {name: {} for name in shapes}
    for (name, library), own in seconds.items():
        peaks[name][library] = flops[name] / min(own)
    for (name, library), error in failures.items():
        peaks[name][library + " failed"] = error
    return peaks


def copy_peaks(megabytes: int, rounds: int) -> dict[str, float]:
    """Measures the bytes per second that a pass over an array reads and writes, by library: the
    best round of each."""
    size = megabytes * 250_000
    held = {"in place": random_array((size,), seed=1), "fresh": random_array((size,), seed=2)}
    in_place = jax.jit(lambda x: x * jnp.float32(0.999), donate_argnums=0)
    fresh = jax.jit(lambda x: x * jnp.float32(0.999))

    def run_in_place(_):
        held["in place"] = in_place(held["in place"]).block_until_ready()

    contenders = {
        "jax, in place": run_in_place,
        "jax": lambda _: fresh(held["fresh"]).block_until_ready(),
    }
    if torch is not None:
        source, target = (
            torch.rand(size, device=TORCH_DEVICE),
            torch.empty(size, device=TORCH_DEVICE),
        )
        contenders["torch"] = lambda _: (target.copy_(source), torch_wait())
    seconds, _ = interleave(contenders, rounds)
    return {name: 8 * size / min(own) for name, own in seconds.items()}


def best_peak(peaks: dict) -> float:
    """Returns the highest peak of all libraries."""
    return max(value for value in peaks.values() if isinstance(value, float))


def _torch_gemm(m, k, n, precision):
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    x, y = (torch.randn(shape, device=TORCH_DEVICE).to(dtype) for shape in ((m, k), (k, n)))

    def run(_):
        torch_precision(precision)
        torch.mm(x, y)
        torch_wait()

    return run


def torch_precision(precision: str) -> None:
    """Sets the precision of torch's float32 products: true float32, or TF32 (also inside cuDNN)."""
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = precision == "tf32"


def torch_wait() -> None:
    """Waits for torch's device."""
    if TORCH_DEVICE == "cuda":
        torch.cuda.synchronize()


def random_array(shape: tuple[int, ...], seed: int) -> jax.Array:
    """Draws standard normal float32. On some chips a product of zeros would be faster."""
    return jax.random.normal(jax.random.key(seed), shape, jnp.float32)


# ---- the machine


def cores() -> int:
    """Returns the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def set_up(one_heap: bool = False) -> None:
    """Gives torch as many threads as JAX, and all contenders the allocator of esnlm's commands.

    `one_heap` is that of `esnlm train` with large arrays, and serves PyTorch, whose gradients come
    from other threads.
    """
    keep_freed_memory()
    if one_heap:
        share_one_heap()
    if torch is not None:
        torch.set_num_threads(cores())


def load() -> list[float]:
    """Returns the load averages over 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]


def machine() -> dict:
    """Returns the processor, cores, device and versions."""
    device, versions = (
        jax.devices()[0],
        {each.name: each.version for each in importlib.metadata.distributions()},
    )
    return {
        "processor": _cpu_model(),
        "cores": cores(),
        "device": device.device_kind,
        "backend": jax.default_backend(),
        "gpu": gpu(),
        "threads": {
            name: os.environ[name]
            for name in ("OMP_NUM_THREADS", "XLA_FLAGS")
            if name in os.environ
        },
        "torch_threads": torch.get_num_threads() if torch is not None else None,
        "versions": (
            {"python": platform.python_version()} | {name: versions.get(name) for name in PACKAGES}
        ),
    }


def _cpu_model():
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text("utf-8").splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


# ---- results


def write(out: Path, name: str, title: str, text: Iterable[str], record: dict) -> None:
    """Writes out/NAME.json (the record) and out/NAME.md (title, text, and how it was measured)."""
    out.mkdir(parents=True, exist_ok=True)
    record["load_after"], here = load(), record["machine"]
    gpu = f", {here['gpu']}" if here["gpu"] else ""
    made = {
        "Command": f"`{record['command']}`",
        "Machine": f"{here['processor']}, {here['cores']} cores, JAX on {here['device']}{gpu}",
        "Load average": f"{record['load_before']} before, {record['load_after']} after",
        "Versions": ", ".join(f"{k} {v}" for k, v in here["versions"].items() if v),
    }
    lines = [
        f"# {title}",
        "",
        *text,
        *(line for what, said in made.items() for line in ("", f"{what}: {said}")),
    ]
    pages = {
        out / f"{name}.json": json.dumps(record, indent=1) + "\n",
        out / f"{name}.md": "\n".join(lines) + "\n",
    }
    write_files(pages)
    print(f"wrote {out / name}.json and .md")


def table(head: list[str], rows: Iterable[Iterable]) -> list[str]:
    """Returns the lines of a Markdown table, with numbers to three significant digits."""
    return markdown_table(head, [[show(cell) for cell in row] for row in rows])


def show(cell: object) -> str:
    """Returns a cell as text; - if empty."""
    if cell is None:
        return "-"
    if isinstance(cell, float):
        return f"{cell:,.0f}" if abs(cell) >= 1000 else f"{cell:.3g}"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def spread(items: Sequence, count: int) -> list:
    """Returns `count` evenly spaced items, the first and the last included; all items if there are
    fewer."""
    places = np.linspace(0, len(items) - 1, min(count, len(items))).astype(int)
    return [items[i] for i in places]


def one_line(error: BaseException) -> str:
    """Returns an error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
