"""Runs the notebooks of docs/notebooks, one after another in one empty folder, and writes their
outputs into them.

python docs/run_notebooks.py

What is written is small and says nothing of the machine: no times, no versions, no warnings.
"""

import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent / "notebooks"
ORDER = ("first_run", "states", "words", "topology")  # the next two go on with the run of the first


def run(name: str, folder: Path) -> nbformat.NotebookNode:
    """Returns a notebook with the outputs of running it in a folder.

    Raises:
        CellExecutionError: a cell failed.
    """
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    # for !esnlm
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # The same picture has the same ids, day by day.
    (folder / "matplotlibrc").write_text("svg.hashsalt: esnlm\n", "utf-8")
    NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": folder}}
    ).execute()
    return notebook


def cleaned(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Returns the notebook without what differs from machine to machine or from day to day."""
    notebook.metadata = {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}
    }
    for number, cell in enumerate(notebook.cells):
        cell.id, cell.metadata = f"cell-{number}", {}
        if cell.cell_type == "code":
            kept = [output for output in cell.outputs if output.get("name") != "stderr"]
            for output in kept:
                output.pop("metadata", None)
                if "data" in output:
                    output.metadata = {}
                    if "image/svg+xml" in output.data:
                        output.data.pop("text/plain", None)
                        svg = output.data["image/svg+xml"]
                        output.data["image/svg+xml"] = re.sub(
                            r" *<metadata>.*?</metadata>\n", "", svg, flags=re.DOTALL
                        )
            cell.outputs = joined(kept)
    return notebook


def joined(outputs: list) -> list:
    """Returns outputs with what was printed in pieces, by chance of the time, as one."""
    found: list = []
    for output in outputs:
        if found and output.output_type == found[-1].output_type == "stream":
            found[-1].text += output.text
        else:
            found.append(output)
    return found


def main() -> None:
    """Runs them all, and writes them back."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ORDER:
            nbformat.write(cleaned(run(name, Path(folder))), FOLDER / f"{name}.ipynb")
            print(f"written: {FOLDER / name}.ipynb")


if __name__ == "__main__":
    main()
