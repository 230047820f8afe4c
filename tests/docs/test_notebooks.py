"""The notebooks run from their first cell to their last, and what is stored in them is small and says nothing of a machine."""

import os
import sys
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="needs nbclient: pip install -e '.[docs]'")
nbclient = pytest.importorskip("nbclient", reason="needs nbclient: pip install -e '.[docs]'")
pytest.importorskip("ipykernel", reason="needs ipykernel: pip install -e '.[docs]'")

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
ORDER = ("first_run", "states", "topology")  # the second goes on with the run of the first
LARGEST = 100_000  # bytes of a file
ONE, TWO = '{"kind": "erdos_renyi"}', '{"kind": "chains", "lanes": 16}'
SMALLER = {"20000": "2000", "5000": "500", f"({ONE}, {TWO})": f"({TWO},)"}


def read(name: str) -> nbformat.NotebookNode:
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def test_all_notebooks_are_here():
    assert {file.stem for file in FOLDER.glob("*.ipynb")} == set(ORDER)


@pytest.mark.parametrize("name", ORDER)
def test_what_is_stored_is_small_and_clean(name):
    notebook = read(name)
    text = (FOLDER / f"{name}.ipynb").read_text()
    assert len(text) < LARGEST
    assert not any(word in text for word in ("/tmp", "/home", "/root", "Traceback", 'image/png":', "\\u001b"))
    assert set(notebook.metadata) == {"kernelspec"}
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))  # it was run once, in order
    assert all(cell.metadata == {} for cell in notebook.cells)
    assert all(output.get("name") != "stderr" for cell in code for output in cell.outputs)


@pytest.mark.nightly
def test_they_run(tmp_path, monkeypatch):
    """All three in one kernel, which forgets its names between two, so that Python and JAX start once."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(FOLDER.parents[1]))
    together = read(ORDER[0])
    for name in ORDER[1:]:
        together.cells += [nbformat.v4.new_code_cell("%reset -f"), *read(name).cells]
    for number, cell in enumerate(together.cells):
        cell.id = f"cell-{number}"
        for text, smaller in SMALLER.items():
            cell.source = cell.source.replace(text, smaller)
    options = {"timeout": 300, "kernel_name": "python3", "resources": {"metadata": {"path": str(tmp_path)}}}
    done = nbclient.NotebookClient(together, **options).execute()  # raises where a cell fails
    printed = "".join(output.get("text", "") for cell in done.cells for output in cell.get("outputs", []))
    assert (
        "ESN 256, rank 64" in printed
        and "new sentences with known nouns" in printed
        and "nats per token  chains" in printed
    )
