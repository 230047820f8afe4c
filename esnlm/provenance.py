"""The provenance of a report: command, versions and machine."""

import os
import platform

import jax

from esnlm.versions import version


def provenance(command: str | None, *packages: str) -> dict:
    """Returns the command as typed (None in Python), the machine, and versions of esnlm, JAX, NumPy
    and `packages`."""
    names = ("esnlm", "jax", "numpy", *packages)
    return {
        "command": command,
        "versions": {"python": platform.python_version()} | {name: version(name) for name in names},
        "machine": (
            f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores,"
            f" {jax.devices()[0].device_kind}"
        ),
    }
