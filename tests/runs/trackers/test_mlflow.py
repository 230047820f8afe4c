"""MLflow's own client writes and reads a folder. `tracking` finds the tracker by the entry point of
pyproject.toml."""

import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from esnlm.runs.directory import RunDirectory
from esnlm.runs.trackers import GROUP, MlflowTracker, Trackers

ROOT = Path(__file__).parents[3]
SETTINGS = {"run": "runs/small", "model": {"rank": None}, "tracking": ["mlflow"]}


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "small").mkdir()
    return RunDirectory(tmp_path / "small")


@pytest.fixture
def client(tmp_path, monkeypatch):
    """MLflow's client of a folder below tmp_path."""
    pytest.importorskip("mlflow", reason="needs the extra mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path / 'mlflow'}")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    from mlflow.tracking import MlflowClient

    return MlflowClient()


def start(directory, step=0):
    return Trackers({"mlflow": MlflowTracker}, directory, SETTINGS, step)


def points(client, run, name):
    # In order of their steps: those that are on their way at once arrive in any order.
    return sorted(
        (metric.step, metric.value) for metric in client.get_metric_history(run.info.run_id, name)
    )


def find_run(client):
    (run,) = client.search_runs([client.get_experiment_by_name("esnlm").experiment_id])
    return run


def test_the_entry_point_names_the_tracker():
    registered = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"][
        GROUP
    ]
    assert EntryPoint("mlflow", registered["mlflow"], GROUP).load() is MlflowTracker


def test_what_is_sent(directory, client, capsys):
    with start(directory) as trackers:
        trackers.log({"step": 2, "train_nll": 4.5})
        trackers.log({"step": 4, "train_nll": "inf", "note": "no number"})
        trackers.summary({"step": 4, "status": "finished", "val_nll": 4.25, "device": {"cores": 2}})
    run = find_run(client)
    assert points(client, run, "train_nll") == [(2, 4.5), (4, float("inf"))]
    assert points(client, run, "summary/val_nll") == [(4, 4.25)]
    assert run.data.params == {"run": "runs/small", "model.rank": "None", "tracking": "['mlflow']"}
    assert (run.info.run_name, run.info.status) == ("small", "FINISHED")
    assert capsys.readouterr() == ("", "")


def test_a_resumed_run_goes_on_in_the_same_run_and_logs_again_what_it_repeats(directory, client):
    with start(directory) as killed:
        for step in (2, 4, 6):
            killed.log({"step": step, "train_nll": 8 / step})
    assert find_run(client).info.status == "KILLED"
    with start(directory, step=4) as trackers:  # The last checkpoint was that of update 4.
        assert find_run(client).info.status == "RUNNING"
        trackers.log({"step": 4, "val_nll": 3.5})
        trackers.log({"step": 6, "train_nll": 8 / 6})
        trackers.log({"step": 8, "train_nll": 1.0})
        trackers.summary({"step": 8, "status": "diverged"})
    run = find_run(client)
    assert points(client, run, "train_nll") == [
        (2, 4.0),
        (4, 2.0),
        (6, 8 / 6),
        (6, 8 / 6),
        (8, 1.0),
    ]
    assert points(client, run, "val_nll") == [(4, 3.5)]
    assert run.info.status == "FAILED"
