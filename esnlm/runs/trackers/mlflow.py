"""MLflow, on the server or in the file that its own environment variables name."""

import json
import os
import time
from typing import Any

from flax import traverse_util

from esnlm.io.json_file import write_json
from esnlm.runs.directory import RunDirectory
from esnlm.runs.trackers import numbers


class MlflowTracker:
    """Sends the settings as parameters, every figure by update, and the summary's figures.

    MLFLOW_TRACKING_URI names the server, MLFLOW_EXPERIMENT_NAME the experiment. A resumed run goes on in the same run of
    MLflow, and what was logged after the last checkpoint is there twice. pyproject.toml registers this class.
    """

    def __init__(self, directory: RunDirectory, settings: dict[str, Any], step: int) -> None:
        try:
            from mlflow.entities import Metric, Param
            from mlflow.tracking import MlflowClient
        except ImportError as error:
            raise ImportError(f"{error}: pip install 'esnlm[mlflow]'") from None
        # MLflow's own 7 tries would hold the training for minutes where no server answers.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "3")
        self._metric, self._client = Metric, MlflowClient()
        self._under_way: list[Any] = []  # what waits for the service, so that the training does not
        self._status = "KILLED"  # until the run comes to its end
        if directory.mlflow_id.exists():
            self._run_id = json.loads(directory.mlflow_id.read_text())["id"]
            self._client.update_run(self._run_id, status="RUNNING")
        else:
            experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME", "esnlm")
            found = self._client.get_experiment_by_name(experiment)
            number = found.experiment_id if found else self._client.create_experiment(experiment)
            run = self._client.create_run(number, run_name=directory.path.resolve().name)
            self._run_id = run.info.run_id
            write_json(directory.mlflow_id, {"id": self._run_id})
            flat = traverse_util.flatten_dict(settings, sep=".")
            self._client.log_batch(self._run_id, params=[Param(key, str(value)) for key, value in flat.items()])

    def log(self, step: int, values: dict[str, Any]) -> None:
        now = int(time.time() * 1000)
        metrics = [self._metric(name, number, now, step) for name, number in numbers(values).items()]
        self._under_way.append(self._client.log_batch(self._run_id, metrics=metrics, synchronous=False))

    def summary(self, values: dict[str, Any]) -> None:
        self.log(values["step"], {f"summary/{name}": value for name, value in values.items()})
        self._status = "FINISHED" if values["status"] == "finished" else "FAILED"

    def finish(self) -> None:
        for batch in self._under_way:
            batch.wait()  # It raises what went wrong.
        self._client.set_terminated(self._run_id, self._status)
