"""Keeps compiled programs between processes, in a folder of the user, from which JAX loads them
quickly.

The commands switch this on; the library does not. JAX's key for a program holds its computation and
the versions of JAX and XLA, but not the processor it was compiled for. Different machines may share
a home folder, and code for another processor may crash or round differently, so each machine has
its own folder.
"""

import contextlib
import hashlib
import importlib.metadata
import os
import platform
import sys
import warnings
from pathlib import Path

from esnlm.machine.host import available_cores

SWITCH = "ESNLM_COMPILATION_CACHE"  # a folder, or "off" in small letters or capitals
# per folder; JAX removes the least recently used. The programs of a run take about 1 MB.
MOST_BYTES = 1 << 30
SHORTEST_SECONDS = "0.05"  # Programs that compile faster are not kept.


def use() -> None:
    """Lets JAX keep compiled programs. Call it before importing JAX, which then reads these
    settings."""
    # If a program cannot be read, JAX compiles it; if it cannot be written, it is not kept. Neither
    # matters to a run.
    warnings.filterwarnings(
        "ignore", "Error (reading|writing) persistent compilation cache|Cache value for key"
    )
    folder = choose_folder()
    if folder is None or "jax" in sys.modules:
        return
    with contextlib.suppress(OSError):  # Nothing is kept if the folder cannot be made.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
        os.environ.setdefault("JAX_COMPILATION_CACHE_MAX_SIZE", str(MOST_BYTES))
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", SHORTEST_SECONDS)


def choose_folder() -> Path | None:
    """Returns the folder for this machine, which may not exist yet; None if the user set another
    one or "off"."""
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
    """Returns a hash of all machine properties that affect XLA's code: processor, cores, jaxlib."""
    # XLA splits loops among this many.
    threads = [os.environ.get(name) for name in ("NPROC", "PJRT_NPROC")]
    facts = (
        _processor(),
        platform.machine(),
        platform.system(),
        available_cores(),
        threads,
        importlib.metadata.version("jaxlib"),
    )
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _processor() -> str:
    """Returns the first processor's lines of /proc/cpuinfo, with its instruction sets; elsewhere
    the machine's name."""
    try:
        first = Path("/proc/cpuinfo").read_text("utf-8").split("\n\n")[0].splitlines()
    except OSError:
        return f"{platform.processor()} {platform.node()}"
    # The clock speed and others change between readings.
    lasting = (
        "vendor_id",
        "cpu family",
        "model",
        "stepping",
        "flags",
        "Features",
        "CPU ",
        "isa",
        "cpu\t",
    )
    return "\n".join(line for line in first if line.startswith(lasting)) or platform.node()
