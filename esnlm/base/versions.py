"""Versions and provenance: what a result may depend on."""

import os
import platform
from importlib import metadata
from pathlib import Path

from esnlm.base.errors import InputError

ESNLM = "1.0.0"  # hatchling reads it here


def version(package: str) -> str:
    """Returns the version of a package. esnlm itself need not be installed."""
    return ESNLM if package == "esnlm" else metadata.version(package)


def versions() -> dict[str, str]:
    """Returns the versions of Python and of packages that may affect results."""
    packages = (
        "esnlm",
        "jax",
        "jaxlib",
        "flax",
        "optax",
        "orbax-checkpoint",
        "numpy",
        "scipy",
        "tiktoken",
    )
    return {"python": platform.python_version()} | {name: version(name) for name in packages}


def check_format(
    path: Path, number: object, readable: int, advice: str, writer: str | None = None
) -> None:
    """Raises InputError if a file has another format than this version reads. The message names the
    version that does: the writer's, if the file says which."""
    if number != readable:
        reader = writer or ("0.1.0" if number == 1 else f"later than {ESNLM}")
        raise InputError(
            f"{path}: has format {number} and needs esnlm {reader}; this version reads format"
            f" {readable}; {advice}"
        )


def provenance(command: str | None, *packages: str) -> dict:
    """Returns the command (None in Python), the machine, and versions, also of `packages`."""
    import jax

    names = ("esnlm", "jax", "numpy", *packages)
    return {
        "command": command,
        "versions": {"python": platform.python_version()} | {name: version(name) for name in names},
        "machine": (
            f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores,"
            f" {jax.devices()[0].device_kind}"
        ),
    }
