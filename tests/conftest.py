"""Where tests find the text that is not ours to ship, and what a module of tests leaves behind."""

import csv
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import jax
import pytest


@pytest.fixture(scope="module", autouse=True)
def forget_compiled():
    """Thousands of small compiled programs, kept to the end, take gigabytes and make every later test slower."""
    yield
    jax.clear_caches()


@pytest.fixture(scope="session")
def data() -> Path:
    """The data folder: environment variable ESNLM_DATA, or ../shared/data beside the repository."""
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
    """Rows of a CSV file of the papers' tables, which lie beside the data, by the name of the file."""
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
