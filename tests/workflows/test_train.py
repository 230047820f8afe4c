"""What training asks of its process before it begins."""

import pytest

from esnlm import config_io
from esnlm.errors import InputError
from esnlm.workflows import train

MODELS = {
    "lstm": "{family: lstm, width: 4}",
    "ESN+i": "{family: esn, train_input: true, readout: {rank: null}, reservoir: {state_size: 8, mean_degree: 2}}",
    "esn": "{family: esn, reservoir: {state_size: 8, mean_degree: 2}}",
    "deep_readout": "{family: deep_readout, reservoir: {state_size: 8, mean_degree: 2}}",
}


@pytest.mark.parametrize("model, shared", [("lstm", True), ("ESN+i", True), ("esn", False), ("deep_readout", False)])
def test_one_heap_is_for_a_process_that_trains_all_of_a_model(tmp_path, monkeypatch, model, shared):
    asked = []

    def refuse(experiment):
        raise InputError("no further")

    monkeypatch.setattr(train, "share_one_heap", lambda: asked.append(model))
    monkeypatch.setattr(train.parent, "require_another_directory", refuse)
    file = tmp_path / "small.yaml"
    file.write_text(f"run: {tmp_path / 'run'}\ndata: {{kind: grammar}}\nmodel: {MODELS[model]}\n")
    experiment = config_io.read(file)
    with pytest.raises(InputError, match="no further"):
        train.train_run(experiment, ends_process=False)  # the library has no process of its own
    assert asked == []
    with pytest.raises(InputError, match="no further"):
        train.train_run(experiment)
    assert asked == [model] * shared
