"""A training asks its process for memory first, and counts as finished last."""

import subprocess
import sys

import pytest

from esnlm.base.errors import InputError
from esnlm.training import config_io
from esnlm.training import run as train
from tests.training import small

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
        train.train_run(experiment, owns_process=False)  # the library has no process of its own
    assert asked == []
    with pytest.raises(InputError, match="no further"):
        train.train_run(experiment)
    assert asked == [model] * shared


def test_results_are_shown_before_the_run_counts_as_finished(tmp_path):
    """So a run that is killed while it shows them is resumed there, and shows them again."""
    shown = []

    def show(directory, corpus, summary):
        assert not directory.summary.exists() and len(corpus.train) == 96
        shown.append(summary)
        if len(shown) == 1:
            raise KeyboardInterrupt

    statuses = [train.train_run(small.read(tmp_path, "run"), show_results=show) for _ in range(3)]
    assert statuses == [75, 0, 0] and len(shown) == 2, "a finished run is left as it is"
    assert (
        shown[0]["val_nll"] == shown[1]["val_nll"] == small.summary_of(tmp_path / "run")["val_nll"]
    )


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
