"""The notebooks run from their first cell to their last."""

import os
import sys
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="needs nbclient: pip install -e '.[docs]'")
nbclient = pytest.importorskip("nbclient", reason="needs nbclient: pip install -e '.[docs]'")
pytest.importorskip("ipykernel", reason="needs ipykernel: pip install -e '.[docs]'")

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
ORDER = ("first_run", "states", "words", "topology")  # the next two go on with the run of the first
ONE, TWO = '{"kind": "erdos_renyi"}', '{"kind": "chains", "lanes": 16}'
SMALLER = {"20000": "2000", "5000": "500", f"({ONE}, {TWO})": f"({TWO},)"}


def read(name: str) -> nbformat.NotebookNode:
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


@pytest.mark.nightly
def test_they_run(tmp_path, monkeypatch):
    """All three in one kernel, which forgets its names between two, so that Python and JAX start
    once."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(FOLDER.parents[1]))
    together = read(ORDER[0])
    for name in ORDER[1:]:
        together.cells += [nbformat.v4.new_code_cell("%reset -f"), *read(name).cells]
    for number, cell in enumerate(together.cells):
        cell.id = f"cell-{number}"
        for text, smaller in SMALLER.items():
            cell.source = cell.source.replace(text, smaller)
    options = {
        "timeout": 300,
        "kernel_name": "python3",
        "resources": {"metadata": {"path": str(tmp_path)}},
    }
    done = nbclient.NotebookClient(together, **options).execute()  # raises where a cell fails
    printed = "".join(
        output.get("text", "") for cell in done.cells for output in cell.get("outputs", [])
    )
    assert (
        "ESN 256, rank 64" in printed
        and "new sentences with known nouns" in printed
        and "nats per token  chains" in printed
    )
