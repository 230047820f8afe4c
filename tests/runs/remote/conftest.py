"""Clouds, and one that is a dict."""

import pytest

from tests.cloud import gs, s3, s3_server  # noqa: F401  (fixtures)


@pytest.fixture(params=["s3", "gs"])
def cloud(request):
    """A bucket of each protocol."""
    return request.getfixturevalue(request.param)
