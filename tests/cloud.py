"""Servers of S3's and of Google's protocol on this machine, as clouds for tests.

moto answers as S3 does, with conditional writes among it. gcp-storage-emulator answers as Google Cloud Storage does, but ignores
the condition of a write.
"""

import logging
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from esnlm import config_io, loaded_run
from esnlm.runs.remote.address import WORK, parse
from esnlm.runs.remote.bucket import Bucket

SMALL = """data: {kind: grammar, sentences: 96, validation_sentences: 10, pairs: 2}
model: {reservoir: {state_size: 16, mean_degree: 4}, readout: {rank: 4}}
training: {epochs: 4, checkpoint_every: 2}
"""  # 12 updates


@dataclass
class Cloud:
    """A server with one bucket, and a folder that is all that this machine keeps."""

    scheme: str
    server: Any
    files: Any  # fsspec's
    kept: Any  # ESNLM_WORK
    name: str = field(default_factory=lambda: f"bucket-{uuid.uuid4().hex[:8]}")

    def url(self, path: str = "runs/first") -> str:
        return f"{self.scheme}://{self.name}/{path}"

    def bucket(self, path: str = "runs/first") -> Bucket:
        return Bucket(parse(self.url(path)))

    def listing(self, path: str = "runs/first") -> list[str]:
        return sorted(self.bucket(path).entries())

    def put(self, path: str, content: bytes) -> None:
        self.files.pipe_file(f"{self.name}/{path}", content)

    def cut(self, path: str) -> None:
        """Leaves half of an object."""
        content = self.files.cat_file(f"{self.name}/{path}")
        self.put(path, content[: len(content) // 2])


@pytest.fixture(scope="session")
def s3_server() -> Iterator[Any]:
    moto = pytest.importorskip("moto.server", reason="needs a server of S3's protocol: pip install 'moto[server]'")
    pytest.importorskip("s3fs", reason="needs s3fs: pip install -e '.[s3]'")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = moto.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def s3(s3_server: Any, tmp_path_factory: Any, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    """A bucket of S3's protocol, and the environment in which s3fs finds it."""
    import fsspec

    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    kept = tmp_path_factory.mktemp("kept")
    environment = {
        WORK: str(kept),
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{s3_server.get_host_and_port()[1]}",
        "AWS_ACCESS_KEY_ID": "someone",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    files = fsspec.filesystem("s3", use_listings_cache=False, skip_instance_cache=True)
    cloud = Cloud("s3", s3_server, files, kept)
    files.mkdir(cloud.name)
    return cloud


@pytest.fixture
def gs(tmp_path_factory: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    """A bucket of Google's protocol."""
    emulator = pytest.importorskip("gcp_storage_emulator.server", reason="needs it: pip install gcp-storage-emulator")
    pytest.importorskip("gcsfs", reason="needs gcsfs: pip install -e '.[gcs]'")
    import fsspec

    server = emulator.create_server("127.0.0.1", 0, in_memory=True)
    server.start()
    port = server._api._httpd.server_address[1]
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{port}")
    kept = tmp_path_factory.mktemp("kept")
    monkeypatch.setenv(WORK, str(kept))
    files = fsspec.filesystem("gs", use_listings_cache=False, skip_instance_cache=True)
    cloud = Cloud("gs", server, files, kept)
    files.mkdir(cloud.name)
    yield cloud
    server.stop()


def small(tmp_path: Any, run: object, *settings: str, text: str = SMALL) -> Any:
    """The experiment of a run that takes a second."""
    file = tmp_path / "small.yaml"
    file.write_text(text)
    return config_io.read(file, ["--run", str(run), *settings])


def assert_same_bits(place: object, other: object) -> None:
    """Asserts that two runs ended with the same arrays at the same step."""
    one, two = loaded_run.load(str(place)), loaded_run.load(str(other))
    assert one.step == two.step
    ours, theirs = one.arrays(), two.arrays()
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
