"""What training asks of its process before it begins."""

import subprocess
import sys

import pytest

from esnlm.base.errors import InputError
from esnlm.training import config_io
from esnlm.training import run as train

MODELS = {
    "lstm": "{family: lstm, width: 4}",
    "esn": "{family: esn, reservoir: {state_size: 8, mean_degree: 2}}",
}


@pytest.mark.parametrize("model, shared", [("lstm", True), ("esn", False)])
def test_one_heap_is_for_a_process_that_trains_all_of_a_model(tmp_path, monkeypatch, model, shared):
    asked = []

    def refuse(run):
        raise InputError("no further")

    monkeypatch.setattr(train, "share_one_heap", lambda: asked.append(model))
    monkeypatch.setattr(train, "is_url", refuse)
    file = tmp_path / "small.yaml"
    file.write_text(f"run: {tmp_path / 'run'}\ndata: {{kind: grammar}}\nmodel: {MODELS[model]}\n")
    experiment = config_io.read(file)
    with pytest.raises(InputError, match="no further"):
        train.train_run(experiment, ends_process=False)  # the library has no process of its own
    assert asked == []
    with pytest.raises(InputError, match="no further"):
        train.train_run(experiment)
    assert asked == [model] * shared


COUNT = """
import ctypes
import sys
from pathlib import Path

from esnlm.training import config_io
from esnlm.machine.process import exit_with
from esnlm.training import run as train

file, report = sys.argv[1:]
assert exit_with(lambda: train.train_run(config_io.read(file))) == 0
library = ctypes.CDLL(None)
library.fopen.restype = ctypes.c_void_p
stream = ctypes.c_void_p(library.fopen(report.encode(), b"w"))
library.malloc_info(0, stream)
library.fclose(stream)
print(Path(report).read_text().count("<heap "), "heaps")
"""


@pytest.mark.nightly
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="malloc_info is glibc's")
def test_a_run_of_an_lstm_asks_before_any_other_thread_allocates(tmp_path):
    """Threads that have a heap of their own by then would keep it."""
    file = tmp_path / "small.yaml"
    training = "{batch_size: 8, epochs: 1}"
    data = "{kind: grammar, sentences: 64, validation_sentences: 8, pairs: 2}"
    file.write_text(
        f"run: {tmp_path / 'run'}\ndata: {data}\nmodel: {MODELS['lstm']}\ntraining: {training}\n"
    )
    command = [sys.executable, "-c", COUNT, str(file), str(tmp_path / "malloc.xml")]
    done = subprocess.run(command, capture_output=True, text=True)
    if "malloc_info" in done.stderr:
        pytest.skip("this C library has no malloc_info")
    assert done.stdout.splitlines()[-1] == "1 heaps", done.stderr
