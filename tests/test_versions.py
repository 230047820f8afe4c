"""A version is known without the package being installed, where it is esnlm's."""

from importlib import metadata

import pytest

import esnlm
from esnlm.versions import version


def test_esnlm_runs_from_a_checkout_that_is_not_installed(monkeypatch):
    def absent(package):
        raise metadata.PackageNotFoundError(package)

    assert version("jax") == metadata.version("jax")
    monkeypatch.setattr(metadata, "version", absent)
    assert version("esnlm") == esnlm.__version__
    with pytest.raises(metadata.PackageNotFoundError, match="jax"):
        version("jax")
