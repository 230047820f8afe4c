"""Versions of packages: what a number may depend on."""

from importlib import metadata

ESNLM = "0.2.0"  # setuptools reads it here


def version(package: str) -> str:
    """Returns the version of a package. That of esnlm is known where it runs from a checkout, without being installed."""
    return ESNLM if package == "esnlm" else metadata.version(package)
