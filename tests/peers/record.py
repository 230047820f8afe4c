"""Makes the recordings anew: python -m tests.peers.record (needs the extra `peers`)."""

import sys

import pytest

from tests import peers

if __name__ == "__main__":
    assert peers.installed(), "install PyTorch and transformers: pip install -e '.[test,peers]'"
    for file in peers.RECORDED.glob("*.npz"):
        file.unlink()
    peers.recording = True
    sys.exit(pytest.main(["-m", "nightly or not nightly", "-k", "live"]))
