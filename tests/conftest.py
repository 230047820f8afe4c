"""Fixtures of all tests: data that is not ours to ship, other libraries to compare with, and cleaning up."""

import csv
import os
import signal
import tarfile
from collections.abc import Callable
from pathlib import Path

import jax
import pytest

from tests import peers

# A shell without job control lets what it starts in the background ignore SIGINT, and so would all that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def own_compilation_cache(tmp_path_factory):
    """Keeps the compiled programs of the processes that tests start away from the user's, and shares them in a session."""
    with pytest.MonkeyPatch.context() as here:
        here.setenv("ESNLM_COMPILATION_CACHE", str(tmp_path_factory.mktemp("compiled")))
        here.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def own_modules_of_transformers(tmp_path_factory):
    """Keeps the code of exported models, which transformers copies before it runs it, away from the user's cache."""
    with pytest.MonkeyPatch.context() as here:
        here.setenv("HF_MODULES_CACHE", str(tmp_path_factory.mktemp("transformers_modules")))
        yield


@pytest.fixture(scope="module", autouse=True)
def forget_compiled():
    """Frees the compiled programs of a module: all of them together take gigabytes and slow every later test down."""
    yield
    jax.clear_caches()


@pytest.fixture(params=["recorded", "live"])
def peer(request) -> peers.Peer:
    """What PyTorch and transformers compute, by a recording and by themselves (tests/peers)."""
    if request.param == "live" and not peers.installed():
        pytest.skip("needs PyTorch and transformers: pip install -e '.[test,peers]'")
    return peers.Peer(live=request.param == "live")


@pytest.fixture(scope="session")
def data() -> Path:
    """Returns the data folder: environment variable ESNLM_DATA, or ../shared/data beside the repository."""
    folder = Path(os.environ.get("ESNLM_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"needs the text and BLiMP data, which is not at {folder}: set ESNLM_DATA")
    return folder


def _unpack(archive: Path, folder: Path) -> Path:
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="session")
def papers_table(data) -> Callable[[str], list[dict[str, str]]]:
    """Returns a function from the name of a CSV file of the papers' tables, which lie beside the data, to its rows."""
    folder = data.parent / "reference"
    if not folder.is_dir():
        pytest.skip(f"needs the papers' tables, which are not at {folder}, beside the data: set ESNLM_DATA")

    def rows(name):
        return list(
            csv.DictReader(line for line in (folder / name).read_text().splitlines() if not line.startswith("#"))
        )

    return rows


@pytest.fixture(scope="session")
def blimp_dir(data, tmp_path_factory) -> Path:
    """The 67 official files of BLiMP."""
    return next(_unpack(data / "blimp" / "blimp.tar.xz", tmp_path_factory.mktemp("blimp")).rglob("*.jsonl")).parent


@pytest.fixture(scope="session")
def dev_corpus(data, tmp_path_factory) -> Path:
    """The development text, one *.dev file a domain."""
    return next(_unpack(data / "corpus_dev.tar.xz", tmp_path_factory.mktemp("corpus")).rglob("*.dev")).parent
