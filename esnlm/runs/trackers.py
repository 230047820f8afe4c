"""Logs the progress of a run: to metrics.jsonl, and with trackers to other files and services.

`tracking` names trackers of TRACKERS, or trackers that other packages register by an entry point.
"""

import contextlib
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol

from flax import traverse_util

from esnlm.base.console import notice, warn
from esnlm.base.errors import import_extra
from esnlm.base.files import spell_nonfinite, write_file, write_json, writing
from esnlm.base.settings import find_class
from esnlm.runs.directory import RunDirectory

GROUP = "esnlm.trackers"  # the group of entry points in which packages register trackers
EVENTS_SUFFIX = ".esnlm"  # TensorBoard reads any file whose name contains "tfevents"
# Time for W&B to finish uploading at the end of the run; `wandb sync` uploads the rest.
UPLOAD_SECONDS = 60


class Metrics:
    """Appends lines to metrics.jsonl, one JSON object each, for other programs.

    A resumed run first drops the lines that it will write again: those after the step that it
    resumes from, and the validation at that step. Without a file, nothing is written, since another
    process of the run does it.
    """

    def __init__(self, file: Path | None, resume_step: int) -> None:
        # called with the values of each line
        self.listeners: list[Callable[[dict[str, Any]], None]] = []
        self._file = file
        if file is None:
            return
        lines = file.read_text("utf-8", errors="replace").splitlines() if file.exists() else []
        kept_lines = [line for line in lines if _order(line) <= (resume_step, False)]
        write_file(file, "".join(f"{line}\n" for line in kept_lines))

    def write(self, **values: Any) -> None:
        """Appends a line. Raises InputError if it cannot be written."""
        if self._file is None:
            return
        values = spell_nonfinite(values)
        with writing(self._file), open(self._file, "a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")
        for listener in self.listeners:
            listener(values)


def _order(line: str) -> tuple[float, bool]:
    """Returns the step of a line, and whether it is a validation, which follows the updates."""
    try:
        values = json.loads(line)
        return values["step"], "val_nll" in values
    except (ValueError, KeyError, TypeError):
        return float("inf"), True  # a crash cut this line short


class Tracker(Protocol):
    """The interface of a tracker. If it raises an error, the run warns and continues without it."""

    def log(self, step: int, values: dict[str, Any]) -> None:
        """Logs a line of metrics: values by name after update `step`, losses in nats per token."""

    def summary(self, values: dict[str, Any]) -> None:
        """Logs the content of summary.json, once, at the end of a run that was not interrupted."""

    def finish(self) -> None:
        """Closes files and connections. Another process may resume an interrupted run."""


# Starts a tracker from the run directory, the settings of the run, and the step to resume from (0:
# a new run).
StartTracker = Callable[[RunDirectory, dict[str, Any], int], Tracker]
# The module and class of each tracker, or the class. Modules are imported when a tracker starts.
TRACKERS: dict[str, str | StartTracker] = {
    "tensorboard": "esnlm.runs.trackers:TensorBoardTracker",
    "wandb": "esnlm.runs.trackers:WandbTracker",
}


def find_tracker(name: str) -> StartTracker:
    """Returns the class of a listed tracker, or of "module:Class".

    Listed trackers are imported when they start, so that a missing package does not stop the run.
    """
    registered = {each.name: each.value for each in entry_points(group=GROUP)}
    classes = TRACKERS | registered | TRACKERS
    if name in classes:
        return lambda *run: find_class(name, classes, "tracking")(*run)
    return find_class(name, classes, "tracking")


class Trackers:
    """All trackers of a run. If one fails, a warning names it, and it is no longer called."""

    def __init__(
        self,
        start: Mapping[str, StartTracker],
        directory: RunDirectory,
        settings: dict[str, Any],
        step: int,
    ) -> None:
        self._trackers: dict[str, Tracker] = {}
        for name, start_tracker in start.items():
            with self._guard(name):
                self._trackers[name] = start_tracker(directory, settings, step)

    def __enter__(self) -> "Trackers":
        return self

    def __exit__(self, *exception: object) -> None:
        self._call("finish")

    def log(self, values: dict[str, Any]) -> None:
        """Passes a line of metrics to all trackers; its `step` is the update."""
        self._call("log", values["step"], {key: values[key] for key in values if key != "step"})

    def summary(self, values: dict[str, Any]) -> None:
        """Passes the summary to all trackers."""
        self._call("summary", values)

    def _call(self, method: str, *arguments: Any) -> None:
        for name, tracker in list(self._trackers.items()):
            with self._guard(name):
                getattr(tracker, method)(*arguments)

    @contextlib.contextmanager
    def _guard(self, name: str) -> Iterator[None]:
        """Drops a tracker that raises any exception, with a warning."""
        try:
            yield
        except (Exception, SystemExit) as error:
            self._trackers.pop(name, None)
            reason = " ".join(str(error).split())[:500]
            warn(
                f"tracking {name} failed: {type(error).__name__}: {reason}; the run continues"
                " without it"
            )


def numbers(values: dict[str, Any]) -> dict[str, float]:
    """Returns the values that are numbers, including those spelled "nan", "inf" and "-inf"."""
    return {
        name: float(value)
        for name, value in values.items()
        if (isinstance(value, int | float) and not isinstance(value, bool))
        or value in ("nan", "inf", "-inf")
    }


class TensorBoardTracker:
    """Writes all metrics by update, losses also by words read, and the summary as text."""

    def __init__(self, directory: RunDirectory, settings: dict[str, Any], step: int) -> None:
        package, work = "tensorboard", "tracking with tensorboard"
        self._proto = import_extra("tensorboard.compat.proto.event_pb2", work, package)
        self._summary_proto = import_extra("tensorboard.compat.proto.summary_pb2", work, package)
        records = import_extra("tensorboard.summary.writer.record_writer", work, package)
        self._last = (0, 0)  # the step of the last line that had words, and its words
        directory.tensorboard.mkdir(exist_ok=True)
        before = list(directory.tensorboard.glob(f"*tfevents*{EVENTS_SUFFIX}"))
        # A number of fixed length, so that files sort by the time they were begun.
        name = f"events.out.tfevents.{time.time_ns():020}{EVENTS_SUFFIX}"
        self._writer = records.RecordWriter((directory.tensorboard / name).open("xb"))
        self._add(file_version="brain.Event:2")
        # Tells viewers to discard the data of earlier files.
        start = self._proto.SessionLog.START
        self._add(step=0, session_log=self._proto.SessionLog(status=start))
        # The new file begins with the lines kept in metrics.jsonl and replaces earlier files: no
        # point appears twice, and a resumed run can add this tracker.
        for line in directory.metrics.read_text("utf-8").splitlines():
            values = json.loads(line)
            self.log(values.pop("step"), values)
        for old in before:
            os.truncate(old, 0)  # not deleted: an open viewer cannot continue past a missing file

    def log(self, step: int, values: dict[str, Any]) -> None:
        self._add_scalars(step, values)
        if "words" in values:
            self._last = step, values["words"]
        # a validation follows the line of its update, which has its words
        last_step, words = self._last
        losses = {
            f"by_words/{name}": value
            for name, value in values.items()
            if name.startswith(("train_", "val_"))
        }
        if losses and last_step == step:
            self._add_scalars(words, losses)
        self._writer.flush()

    def summary(self, values: dict[str, Any]) -> None:
        rows = [
            f"| {name} | {value} |"
            for name, value in traverse_util.flatten_dict(values, sep=".").items()
        ]
        text = "\n".join(["| | |", "| --- | --- |", *rows])
        metadata = {"plugin_data": {"plugin_name": "text"}}
        tensor = {"dtype": 7, "tensor_shape": {}, "string_val": [text.encode()]}  # 7: a string
        self._add_values(
            values["step"], [{"tag": "summary", "metadata": metadata, "tensor": tensor}]
        )
        self._writer.flush()

    def finish(self) -> None:
        self._writer.close()

    def _add_scalars(self, step: int, values: dict[str, Any]) -> None:
        """Adds the values that are numbers, as one event."""
        scalars = numbers(values).items()
        self._add_values(step, [{"tag": name, "simple_value": number} for name, number in scalars])

    def _add_values(self, step: int, values: list[dict[str, Any]]) -> None:
        self._add(step=step, summary=self._summary_proto.Summary(value=values))

    def _add(self, **fields: Any) -> None:
        self._writer.write(self._proto.Event(wall_time=time.time(), **fields).SerializeToString())


class WandbTracker:
    """Logs only the settings, all metrics by update, and the summary.

    W&B's variables (WANDB_PROJECT, WANDB_ENTITY, WANDB_MODE, WANDB_DIR, WANDB_NAME, WANDB_RUN_ID)
    take precedence. By default, the W&B run has the name of the run directory and an id stored
    there: a resumed run continues the same W&B run, which ignores steps that it already has.
    """

    def __init__(self, directory: RunDirectory, settings: dict[str, Any], step: int) -> None:
        wandb = import_extra("wandb", "tracking with W&B", "wandb")
        # W&B would ask for a key at the terminal and block training.
        mode = wandb.setup(wandb.Settings(silent=True)).settings.mode
        if mode not in ("offline", "disabled", "dryrun") and not wandb.login(
            prompt=False, verify=False
        ):
            raise PermissionError("no API key; run `wandb login` first, or set WANDB_MODE=offline")
        self._is_complete = False
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "esnlm"),
            name=os.environ.get("WANDB_NAME", directory.path.resolve().name),
            id=_wandb_id(directory),
            dir=os.environ.get("WANDB_DIR", directory.path),
            resume="allow",
            # an earlier failed run in this process, as in a study, stays separate
            reinit="create_new",
            config=settings,
            allow_val_change=True,  # the run directory may have moved
            settings=wandb.Settings(
                silent=True,
                console="off",
                # Sends no code, repository patch, package list, machine name, machine description
                # or system load.
                disable_code=True,
                disable_git=True,
                disable_job_creation=True,
                host=os.environ.get("WANDB_HOST", ""),
                x_save_requirements=False,
                x_disable_meta=True,
                x_disable_machine_info=True,
                x_disable_stats=True,
                finish_timeout=float(os.environ.get("WANDB_FINISH_TIMEOUT", UPLOAD_SECONDS)),
                finish_timeout_raises=True,
            ),
        )
        if mode in ("offline", "dryrun"):
            folder = self._run.settings.sync_dir
            notice(f"W&B is offline; this uploads the run: wandb sync {folder}")

    def log(self, step: int, values: dict[str, Any]) -> None:
        self._run.log(numbers(values), step=step)

    def summary(self, values: dict[str, Any]) -> None:
        self._run.summary.update(values)
        self._is_complete = True

    def finish(self) -> None:
        self._run.finish(exit_code=0 if self._is_complete else 1)


def _wandb_id(directory: RunDirectory) -> str:
    """Returns the run's id in W&B, and stores it in the run directory."""
    if directory.wandb_id.exists():
        return json.loads(directory.wandb_id.read_text("utf-8"))["id"]
    run_id = os.environ.get("WANDB_RUN_ID") or secrets.token_hex(4)
    write_json(directory.wandb_id, {"id": run_id})
    return run_id


class MlflowTracker:
    """Logs the settings as parameters, all metrics by update, and the figures of the summary.

    MLFLOW_TRACKING_URI names the server, MLFLOW_EXPERIMENT_NAME the experiment. A resumed run
    continues the same MLflow run, which then has the metrics after the last checkpoint twice.
    pyproject.toml registers this class.
    """

    def __init__(self, directory: RunDirectory, settings: dict[str, Any], step: int) -> None:
        work = "tracking with MLflow"
        self._entities = import_extra("mlflow.entities", work, "mlflow")
        self._client = import_extra("mlflow.tracking", work, "mlflow").MlflowClient()
        # MLflow's default of 7 tries would block training for minutes if no server answers.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "3")
        self._requests: list[Any] = []  # pending, since training does not wait for them
        self._status = "KILLED"  # until the run finishes
        if directory.mlflow_id.exists():
            self._run_id = json.loads(directory.mlflow_id.read_text("utf-8"))["id"]
            self._client.update_run(self._run_id, status="RUNNING")
            return
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "esnlm")
        experiment = self._client.get_experiment_by_name(name)
        number = experiment.experiment_id if experiment else self._client.create_experiment(name)
        run = self._client.create_run(number, run_name=directory.path.resolve().name)
        self._run_id = run.info.run_id
        write_json(directory.mlflow_id, {"id": self._run_id})
        flat = traverse_util.flatten_dict(settings, sep=".")
        params = [self._entities.Param(key, str(value)) for key, value in flat.items()]
        self._client.log_batch(self._run_id, params=params)

    def log(self, step: int, values: dict[str, Any]) -> None:
        now = int(time.time() * 1000)
        metrics = [
            self._entities.Metric(name, number, now, step)
            for name, number in numbers(values).items()
        ]
        request = self._client.log_batch(self._run_id, metrics=metrics, synchronous=False)
        self._requests.append(request)

    def summary(self, values: dict[str, Any]) -> None:
        self.log(values["step"], {f"summary/{name}": value for name, value in values.items()})
        self._status = "FINISHED" if values["status"] == "finished" else "FAILED"

    def finish(self) -> None:
        for request in self._requests:
            request.wait()  # raises the error of a failed request
        self._client.set_terminated(self._run_id, self._status)
