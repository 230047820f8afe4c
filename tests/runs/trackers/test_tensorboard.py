"""Event files are read back with TensorBoard's own reader, which checks the sum of each record."""

import json

import pytest

from esnlm.runs.directory import RunDirectory
from esnlm.runs.trackers import TensorBoardTracker, Trackers

SETTINGS = {
    "seed": 3,
    "model": {"leak_min": 0.5, "activation": "tanh", "rank": None},
    "tracking": ["tensorboard"],
}


@pytest.fixture
def directory(tmp_path):
    """A run directory with an empty metrics.jsonl."""
    found = RunDirectory(tmp_path)
    found.metrics.touch()
    return found


@pytest.fixture
def read():
    """A function from a folder to TensorBoard's reader of its event files."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return lambda path: EventAccumulator(str(path)).Reload()


def points(reader, tag):
    return [(each.step, each.value) for each in reader.Scalars(tag)]


def update(step, **values):
    return {"step": step, "epoch": 1, "words": 100 * step, "train_nll": 8 / step} | values


def write(directory, *lines):
    directory.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_figures_by_update_and_losses_by_words(directory, read):
    with Trackers({"tensorboard": TensorBoardTracker}, directory, SETTINGS, 0) as trackers:
        trackers.log(update(2))
        trackers.log(update(4, train_nll="inf"))
        trackers.log({"step": 4, "epoch": 1, "val_nll": 3.5, "note": "no number"})
        trackers.summary(
            {
                "step": 4,
                "status": "finished",
                "val_nll": 3.5,
                "device": {"cores": 2},
                "perplexity": None,
            }
        )
    reader = read(directory.tensorboard)
    assert points(reader, "train_nll") == [(2, 4.0), (4, float("inf"))]
    assert points(reader, "words") == [(2, 200.0), (4, 400.0)]
    assert points(reader, "by_words/train_nll") == [(200, 4.0), (400, float("inf"))]
    assert points(reader, "by_words/val_nll") == [(400, 3.5)]
    assert not [tag for tag in reader.Tags()["scalars"] if "summary" in tag or tag == "note"]
    assert reader.PluginTagToContent("text").keys() == {"summary"}
    [text] = reader.Tensors("summary")
    assert "| val_nll | 3.5 |\n| device.cores | 2 |" in text.tensor_proto.string_val[0].decode()


def test_a_resumed_run_has_each_point_once(directory, read):
    killed = TensorBoardTracker(directory, SETTINGS, 0)
    for step in (2, 4, 6):
        killed.log(step, {key: value for key, value in update(step).items() if key != "step"})
    # The last checkpoint was that of update 4, up to which metrics.jsonl is kept.
    write(directory, update(2), update(4))
    other = directory.tensorboard / "events.out.tfevents.1.other"
    other.write_bytes(b"")  # of somebody else
    TensorBoardTracker(directory, SETTINGS, 4).finish()  # killed once more, at once
    with Trackers({"tensorboard": TensorBoardTracker}, directory, SETTINGS, 4) as trackers:
        trackers.log({"step": 4, "val_nll": 3.5})
        trackers.log(update(6))
    reader = read(directory.tensorboard)
    assert points(reader, "train_nll") == [(2, 4.0), (4, 2.0), (6, pytest.approx(8 / 6))]
    assert points(reader, "by_words/val_nll") == [(400, 3.5)]
    sizes = [file.stat().st_size for file in sorted(directory.tensorboard.glob("*.esnlm"))]
    assert sizes[:-1] == [0, 0] and other.exists()
    killed.finish()
