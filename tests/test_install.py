"""An installed wheel has the command and the configurations, in an environment without the
repository."""

import os
import shutil
import site
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import yaml

from esnlm.base import versions

ROOT = Path(__file__).parents[1]
SOURCES = ("esnlm", "configs", "pyproject.toml", "README.md", "LICENSE")
SMALL = """--data.sentences 200 --data.validation_sentences 50 --data.pairs 2
    --model.reservoir.state_size 32 --model.reservoir.mean_degree 4 --model.readout.rank 4"""


def call(*words, folder: Path) -> str:
    """Runs a program in `folder`, with nothing of this environment's variables that would let it
    find the repository."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(word) for word in words], cwd=folder, env=variables, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def programs(tmp_path_factory) -> Path:
    """The folder of programs of a fresh environment, with the wheel of this repository in it.

    What esnlm depends on is taken from the environment that runs the tests, so that nothing is
    downloaded. The sources are copied first, as a build leaves files beside them.
    """
    folder = tmp_path_factory.mktemp("install")
    (folder / "sources").mkdir()
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        copy(ROOT / name, folder / "sources" / name)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    build = [
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        folder,
        folder / "sources",
    ]
    call(*pip, *build, folder=folder)
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "environment", with_pip=False)
    python = folder / "environment" / "bin" / "python"
    call(
        *pip,
        "--python",
        python,
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        wheel,
        folder=folder,
    )
    where = call(
        python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=folder
    ).strip()
    (Path(where) / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    shutil.rmtree(folder / "sources")
    return python.parent


def test_files_for_readers_name_the_version_of_the_package():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == versions.ESNLM
    assert f"## {versions.ESNLM}\n" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.nightly
def test_the_quickstart_runs_from_any_folder(programs, tmp_path):
    found = call(programs / "python", "-c", "import esnlm; print(esnlm.__file__)", folder=tmp_path)
    assert Path(found.strip()).is_relative_to(programs.parent)
    call(programs / "esnlm", "train", *SMALL.split(), folder=tmp_path)
    assert (tmp_path / "runs" / "quickstart" / "summary.json").exists()
    report = call(programs / "esnlm", "blimp", "--run", "runs/quickstart", folder=tmp_path)
    assert "accuracy" in report
    page = call(
        programs / "esnlm", "report", "runs/quickstart", "--html", "page.html", folder=tmp_path
    )
    assert page.startswith("written: page.html (")


@pytest.mark.nightly
def test_every_configuration_is_shipped(programs, tmp_path):
    program = "from esnlm.commands.arguments import shipped_configs; print(shipped_configs())"
    shipped = Path(call(programs / "python", "-c", program, folder=tmp_path).strip())
    assert shipped.is_relative_to(programs.parent)
    for file in (ROOT / "configs").rglob("*.yaml"):
        assert (shipped / file.relative_to(ROOT / "configs")).read_text() == file.read_text()
    assert "trained parameters" in call(
        programs / "esnlm",
        "train",
        "--config",
        "configs/laptop.yaml",
        "--plan",
        folder=tmp_path,
    )
