"""Makes the recordings anew: python -m tests.peers.record (needs the extra `peers`)."""

import sys

import pytest
import torch  # noqa: F401  (before anything is deleted)
import transformers  # noqa: F401

from tests import peers

if __name__ == "__main__":
    for file in peers.RECORDED.glob("*.npz"):
        file.unlink()
    peers.recording = True
    sys.exit(pytest.main(["-m", "nightly or not nightly", "-k", "live"]))
