"""Clouds, and one that is a dict."""

import pytest

from esnlm.workflows.train import train_run
from tests.cloud import gs, s3, s3_server, small  # noqa: F401  (fixtures)


@pytest.fixture(params=["s3", "gs"])
def cloud(request):
    """A bucket of each protocol."""
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A run of this machine, with the checkpoints 10 and 12."""
    folder = tmp_path_factory.mktemp("trained")
    assert train_run(small(folder, folder / "first")) == 0
    return folder / "first"


@pytest.fixture
def run_there(s3, trained):  # noqa: F811
    """The same in the cloud, copied there by hand."""
    s3.files.put(str(trained), f"{s3.name}/runs/", recursive=True)
    s3.files.rm(f"{s3.name}/runs/first/.lock")
    return s3
