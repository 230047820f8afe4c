"""What a training remembers of itself beside its arrays."""

import json

from esnlm.training.state import State, note_device
from esnlm.workflows import train
from tests.training.stopped import train_with_stops

SMALL = """
data: {kind: grammar, sentences: 96, validation_sentences: 20, pairs: 2}
model: {reservoir: {state_size: 16, mean_degree: 4}, readout: {rank: 4}}
training: {epochs: 1, batch_size: 8}
"""
CPU, GPU = ({"platform": name, "kind": name, "count": 1, "cores": 2} for name in ("cpu", "gpu"))


def test_each_device_is_remembered_in_its_turn():
    state = State(params={})
    for device in (CPU, CPU, GPU, GPU | {"cores": 8}, CPU):
        note_device(state, device)
    assert state.devices == [CPU, GPU, CPU]
    note_device(state, CPU | {"cores": 8})
    assert len(state.devices) == 4, "which a CPU's time depends on"


def test_a_run_that_went_on_elsewhere_says_where_it_was_before(tmp_path, monkeypatch):
    file, devices = tmp_path / "small.yaml", iter([GPU, CPU])
    file.write_text(f"run: {tmp_path / 'run'}{SMALL}")
    monkeypatch.setattr(train, "describe_device", lambda: next(devices))
    assert train_with_stops(file, monkeypatch, every=8) == 1
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["earlier_devices"] == [GPU]
