"""Fixtures of all tests: data that is not ours to ship, other libraries to compare with, and
cleaning up."""

import os

# Processes of pytest-xdist share the cores; threads of BLAS and PyTorch that wait for each other
# would take most of them.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import csv
import functools
import gc
import importlib
import signal
import tarfile
from collections.abc import Callable
from pathlib import Path

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache as cache_of_jax

from esnlm.features import batching
from esnlm.machine import compilation_cache
from esnlm.machine.host import return_freed_memory
from esnlm.reports import plots
from esnlm.training import batches, inputs
from tests import peers
from tests.golden import small

# A shell without job control lets what it starts in the background ignore SIGINT, and so would all
# that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Compiled programs carry no line numbers of Python: collecting them took a tenth of the time.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")
jax.config.update(
    "jax_traceback_in_locations_limit", int(os.environ["JAX_TRACEBACK_IN_LOCATIONS_LIMIT"])
)
# Nor are they optimized: compiling took more than half of the time. As shipped, they are tested
# each night, with JAX_DISABLE_MOST_OPTIMIZATIONS=0.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
AS_SHIPPED = os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] == "0"
jax.config.update("jax_disable_most_optimizations", not AS_SHIPPED)
if not AS_SHIPPED and jax.__version_info__ < (0, 11):  # later ones lack XLA's faster code generator
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false"
    os.environ["XLA_FLAGS"] = flags.strip()


# The job of CI with all packages skips nothing for want of one: importing it fails the test.
if os.environ.get("ESNLM_ALL_PACKAGES"):
    pytest.importorskip = lambda name, **_: importlib.import_module(name)


def pytest_collection_finish():
    """Keeps the garbage collector from visiting all imported objects again and again, which took a
    fifth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@pytest.fixture(scope="session", autouse=True)
def own_compilation_cache(request, tmp_path_factory):
    """Keeps compiled programs away from the user's, in pytest's own cache, so that the next tests
    need not compile them again."""
    kept = getattr(request.config, "cache", None)  # None with -p no:cacheprovider
    compiled = tmp_path_factory.mktemp("compiled") if kept is None else kept.mkdir("compiled")
    with pytest.MonkeyPatch.context() as here:
        here.setenv("ESNLM_COMPILATION_CACHE", str(compiled))
        here.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
        jax.config.update("jax_compilation_cache_dir", str(compilation_cache.choose_folder()))
        # With a largest size, JAX would look at every file of the folder whenever it adds one.
        jax.config.update("jax_compilation_cache_max_size", -1)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        # JAX looks at the settings again where it has already compiled something.
        cache_of_jax.reset_cache()
        yield


@pytest.fixture(scope="session", autouse=True)
def one_size_of_updates():
    """Pads the updates of a run to one size or two: a small run takes less time than another
    compilation."""
    with pytest.MonkeyPatch.context() as here:
        here.setitem(batches.COMPILATION, "cpu", batches.COMPILATION["gpu"])
        here.setitem(inputs.ROW_SIZES_A_DOUBLING, "cpu", 1)
        here.setattr(batching, "MIN_BATCH_STEPS", 24)
        yield


render = plots.picture


@pytest.fixture(scope="session", autouse=True)
def unrendered():
    """Makes pictures and does not render them: that takes a second, and every training and every
    run of a study draws some.

    A test that looks at a picture asks for `rendered`.
    """
    with pytest.MonkeyPatch.context() as here:
        here.setattr(plots, "picture", lambda figure, suffix=".png": b"not rendered")
        yield


@pytest.fixture
def rendered(monkeypatch):
    """Renders pictures, for a test that draws one as users see it."""
    monkeypatch.setattr(plots, "picture", render)


@pytest.fixture(scope="session", autouse=True)
def own_modules_of_transformers(tmp_path_factory):
    """Keeps the code of exported models, which transformers copies before it runs it, away from the
    user's cache."""
    with pytest.MonkeyPatch.context() as here:
        here.setenv("HF_MODULES_CACHE", str(tmp_path_factory.mktemp("transformers_modules")))
        yield


@pytest.fixture(scope="session")
def stores(tmp_path_factory) -> Path:
    """A folder with train.txt, dev.txt and their token stores train/ and dev/."""
    return small.make_stores(tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="session")
def trained(stores, tmp_path_factory) -> Callable[[str], Path]:
    """A function from the name of a model (tests/golden/small.py) to its finished run, which is
    made once."""

    @functools.cache
    def run(name: str) -> Path:
        folder = tmp_path_factory.mktemp("trained") / name
        assert small.train(folder, stores, small.MODELS[name], **small.training_of(name)) == 0
        return folder

    return run


@pytest.fixture(scope="module", autouse=True)
def forget_compiled():
    """Frees the compiled programs where there are many: all of them together take gigabytes and
    slow every later test down."""
    yield
    if len(jax.local_devices()[0].client.live_executables()) > 1000:
        jax.clear_caches()
        return_freed_memory()


@pytest.fixture(scope="session")
def pytorch():
    """Skips a test without PyTorch and transformers."""
    for name in ("torch", "transformers"):
        pytest.importorskip(name, reason=f"needs {name}: pip install -e '.[test,peers]'")


@pytest.fixture(params=["recorded", pytest.param("live", marks=pytest.mark.nightly)])
def peer(request) -> peers.Peer:
    """What PyTorch and transformers compute, by a recording and, nightly, by themselves
    (tests/peers)."""
    if request.param == "live":
        request.getfixturevalue("pytorch")
    return peers.Peer(live=request.param == "live")


@pytest.fixture(scope="session")
def data() -> Path:
    """Returns the data folder: environment variable ESNLM_DATA, or ../shared/data beside the
    repository."""
    folder = Path(
        os.environ.get("ESNLM_DATA", Path(__file__).resolve().parents[2] / "shared" / "data")
    )
    if not folder.is_dir():
        pytest.skip(f"needs the text and BLiMP data, which is not at {folder}: set ESNLM_DATA")
    return folder


def _unpack(archive: Path, folder: Path) -> Path:
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="session")
def papers_table(data) -> Callable[[str], list[dict[str, str]]]:
    """Returns a function from the name of a CSV file of the papers' tables, which lie beside the
    data, to its rows."""
    folder = data.parent / "reference"
    if not folder.is_dir():
        pytest.skip(
            f"needs the papers' tables, which are not at {folder}, beside the data: set ESNLM_DATA"
        )

    def rows(name):
        return list(
            csv.DictReader(
                line
                for line in (folder / name).read_text().splitlines()
                if not line.startswith("#")
            )
        )

    return rows


@pytest.fixture(scope="session")
def blimp_dir(data, tmp_path_factory) -> Path:
    """The 67 official files of BLiMP."""
    return next(
        _unpack(data / "blimp" / "blimp.tar.xz", tmp_path_factory.mktemp("blimp")).rglob("*.jsonl")
    ).parent


@pytest.fixture(scope="session")
def dev_corpus(data, tmp_path_factory) -> Path:
    """The development text, one *.dev file a domain."""
    return next(
        _unpack(data / "corpus_dev.tar.xz", tmp_path_factory.mktemp("corpus")).rglob("*.dev")
    ).parent
