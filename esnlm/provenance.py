"""What made a report: command, versions and machine."""

import os
import platform

import jax

from esnlm.versions import version


def provenance(command: str | None, *packages: str) -> dict:
    """Returns what made a report.

    Args:
        command: as it was typed; None in Python.
        packages: whose versions matter, beside those of esnlm, JAX and NumPy.
    """
    names = ("esnlm", "jax", "numpy", *packages)
    return {
        "command": command,
        "versions": {"python": platform.python_version()} | {name: version(name) for name in names},
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, {jax.devices()[0].device_kind}",
    }
