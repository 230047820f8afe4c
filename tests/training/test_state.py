"""What a training remembers of itself beside its arrays."""

from esnlm.training import run as train
from esnlm.training.state import TrainState
from tests.training import small

CPU, GPU = ({"platform": name, "kind": name, "count": 1, "cores": 2} for name in ("cpu", "gpu"))


def test_each_device_is_remembered_in_its_turn():
    state = TrainState(params={})
    for device in (CPU, CPU, GPU, GPU | {"cores": 8}, CPU):
        state.note_device(device)
    assert state.devices == [CPU, GPU, CPU]
    state.note_device(CPU | {"cores": 8})
    assert len(state.devices) == 4, "which a CPU's time depends on"


def test_a_run_that_went_on_elsewhere_says_where_it_was_before(tmp_path, monkeypatch):
    devices = iter([GPU, CPU, CPU])  # of two starts, and of the summary
    monkeypatch.setattr(train, "describe_device", lambda: next(devices))
    assert small.train_with_stops(small.read(tmp_path, "run"), monkeypatch, every=16) == 1
    summary = small.summary_of(tmp_path / "run")
    assert summary["earlier_devices"] == [GPU]
