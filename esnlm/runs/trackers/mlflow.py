"""Logs to MLflow, to the server or file named by MLflow's environment variables."""

import json
import os
import time
from typing import Any

from flax import traverse_util

from esnlm.io.json_file import write_json
from esnlm.runs.directory import RunDirectory
from esnlm.runs.trackers import numbers


class MlflowTracker:
    """Logs the settings as parameters, all metrics by update, and the figures of the summary.

    MLFLOW_TRACKING_URI names the server, MLFLOW_EXPERIMENT_NAME the experiment. A resumed run
    continues the same MLflow run, which then has the metrics after the last checkpoint twice.
    pyproject.toml registers this class.
    """

    def __init__(self, directory: RunDirectory, settings: dict[str, Any], step: int) -> None:
        try:
            from mlflow.entities import Metric, Param
            from mlflow.tracking import MlflowClient
        except ImportError as error:
            raise ImportError(f"{error}: pip install 'esnlm[mlflow]'") from None
        # MLflow's default of 7 tries would block training for minutes if no server answers.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "3")
        self._metric, self._client = Metric, MlflowClient()
        self._under_way: list[Any] = []  # pending requests, for which training does not wait
        self._status = "KILLED"  # until the run finishes
        if directory.mlflow_id.exists():
            self._run_id = json.loads(directory.mlflow_id.read_text("utf-8"))["id"]
            self._client.update_run(self._run_id, status="RUNNING")
        else:
            experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME", "esnlm")
            found = self._client.get_experiment_by_name(experiment)
            number = found.experiment_id if found else self._client.create_experiment(experiment)
            run = self._client.create_run(number, run_name=directory.path.resolve().name)
            self._run_id = run.info.run_id
            write_json(directory.mlflow_id, {"id": self._run_id})
            flat = traverse_util.flatten_dict(settings, sep=".")
            self._client.log_batch(
                self._run_id, params=[Param(key, str(value)) for key, value in flat.items()]
            )

    def log(self, step: int, values: dict[str, Any]) -> None:
        now = int(time.time() * 1000)
        metrics = [
            self._metric(name, number, now, step) for name, number in numbers(values).items()
        ]
        self._under_way.append(
            self._client.log_batch(self._run_id, metrics=metrics, synchronous=False)
        )

    def summary(self, values: dict[str, Any]) -> None:
        self.log(values["step"], {f"summary/{name}": value for name, value in values.items()})
        self._status = "FINISHED" if values["status"] == "finished" else "FAILED"

    def finish(self) -> None:
        for batch in self._under_way:
            batch.wait()  # raises the error of a failed request
        self._client.set_terminated(self._run_id, self._status)
