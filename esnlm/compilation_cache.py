"""Keeps compiled programs between processes, in a folder of the user's, which JAX reads in a fraction of a second.

The commands own their process and switch this on; the library by itself does not. JAX finds a program by what it computes
and by the versions of JAX and XLA, but not by the processor that it was compiled for. A home folder may be shared by
different machines, and code for another processor may end the process or round otherwise, so each has its own folder.
"""

import contextlib
import hashlib
import importlib.metadata
import os
import platform
import sys
import warnings
from pathlib import Path

SWITCH = "ESNLM_COMPILATION_CACHE"  # a folder, or "off" in small letters or capitals
MOST_BYTES = 1 << 30  # of a folder; JAX removes what was not used for longest. The programs of a run take about 1 MB.
SHORTEST_SECONDS = "0.3"  # What compiles in less is not kept.


def use() -> None:
    """Lets JAX keep compiled programs. JAX reads these settings when it is imported, so this comes before."""
    # A program that cannot be read is compiled, and one that cannot be written is not kept. Neither matters to a run.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache|Cache value for key")
    folder = choose_folder()
    if folder is None or "jax" in sys.modules:
        return
    with contextlib.suppress(OSError):  # Nothing is kept if the folder cannot be made.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
        os.environ.setdefault("JAX_COMPILATION_CACHE_MAX_SIZE", str(MOST_BYTES))
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", SHORTEST_SECONDS)


def choose_folder() -> Path | None:
    """Returns the folder for this machine, which need not exist; None if the user chose another, or none."""
    chosen = os.environ.get(SWITCH, "")
    if chosen.lower() == "off" or os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return None
    xdg = os.environ.get("XDG_CACHE_HOME", "")  # ignored if relative, by the XDG specification
    try:
        caches = Path(xdg) if os.path.isabs(xdg) else Path.home() / ".cache"
        return Path(chosen or caches / "esnlm" / "compiled").absolute() / machine()
    except RuntimeError:  # There is no home folder.
        return None


def machine() -> str:
    """Returns a name for all that decides which code XLA makes here, beside the program: processor, cores, jaxlib."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    threads = [os.environ.get(name) for name in ("NPROC", "PJRT_NPROC")]  # XLA divides loops among so many.
    facts = (_processor(), platform.machine(), platform.system(), cores, threads, importlib.metadata.version("jaxlib"))
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _processor() -> str:
    """Returns the system's lines on the first processor, with its instruction sets; elsewhere the machine's name."""
    try:
        first = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return f"{platform.processor()} {platform.node()}"
    # The clock and the like change from one reading to the next.
    lasting = ("vendor_id", "cpu family", "model", "stepping", "flags", "Features", "CPU ", "isa", "cpu\t")
    return "\n".join(line for line in first if line.startswith(lasting)) or platform.node()
