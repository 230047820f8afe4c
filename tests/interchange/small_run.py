"""A small run, trained once for all tests of this folder."""

import functools
import tempfile
from pathlib import Path

from esnlm import config_io
from esnlm.workflows.train import train_run

SMALL = """run: run
data: {kind: grammar, sentences: 200, validation_sentences: 20, pairs: 4}
model: {reservoir: {state_size: 24, mean_degree: 4}, readout: {rank: 8}}
"""


@functools.cache
def small_run() -> Path:
    """Returns the directory of the run. Tests that write into it copy it first."""
    folder = Path(tempfile.mkdtemp())
    (folder / "small.yaml").write_text(SMALL)
    assert train_run(config_io.read(folder / "small.yaml", ["--run", str(folder / "run")])) == 0
    return folder / "run"
