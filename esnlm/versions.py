"""Versions of packages, which results may depend on."""

from importlib import metadata

ESNLM = "0.2.0"  # setuptools reads it here


def version(package: str) -> str:
    """Returns the version of a package. For esnlm it also works in a checkout that is not
    installed."""
    return ESNLM if package == "esnlm" else metadata.version(package)
