"""Writes event files for TensorBoard to tensorboard/, with the `tensorboard` package, flushed at
each line."""

import json
import os
import time
from typing import Any

from flax import traverse_util

from esnlm.runs.directory import RunDirectory
from esnlm.runs.trackers import numbers

SUFFIX = ".esnlm"  # of our event files: TensorBoard reads any name that contains "tfevents"


class TensorBoardTracker:
    """Writes all metrics by update, losses also by words read, and the summary, which has single
    values, as text."""

    def __init__(self, directory: RunDirectory, settings: dict[str, Any], step: int) -> None:
        try:
            from tensorboard.compat.proto import event_pb2, summary_pb2
            from tensorboard.summary.writer.record_writer import RecordWriter
        except ImportError as error:
            raise ImportError(f"{error}: pip install 'esnlm[tensorboard]'") from None
        self._proto, self._summary_proto = event_pb2, summary_pb2
        self._last = (0, 0)  # the step of the last line that had words, and its words
        directory.tensorboard.mkdir(exist_ok=True)
        before = list(directory.tensorboard.glob(f"*tfevents*{SUFFIX}"))
        # A number of fixed length, so that files sort by the time they were begun.
        file = directory.tensorboard / f"events.out.tfevents.{time.time_ns():020}{SUFFIX}"
        self._writer = RecordWriter(file.open("xb"))
        self._add(file_version="brain.Event:2")
        # Tells viewers to discard the data of earlier files.
        self._add(step=0, session_log=event_pb2.SessionLog(status=event_pb2.SessionLog.START))
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
        losses = {
            name: value for name, value in values.items() if name.startswith(("train_", "val_"))
        }
        if (
            losses and self._last[0] == step
        ):  # a validation follows the line of its update, which has its words
            self._add_scalars(
                self._last[1], {f"by_words/{name}": value for name, value in losses.items()}
            )
        self._writer.flush()

    def summary(self, values: dict[str, Any]) -> None:
        rows = [
            f"| {name} | {value} |"
            for name, value in traverse_util.flatten_dict(values, sep=".").items()
        ]
        text = "\n".join(["| | |", "| --- | --- |", *rows])
        metadata = {"plugin_data": {"plugin_name": "text"}}
        tensor = {"dtype": 7, "tensor_shape": {}, "string_val": [text.encode()]}  # 7: a string
        found = self._summary_proto.Summary.Value(tag="summary", metadata=metadata, tensor=tensor)
        self._add(step=values["step"], summary=self._summary_proto.Summary(value=[found]))
        self._writer.flush()

    def finish(self) -> None:
        self._writer.close()

    def _add_scalars(self, step: int, values: dict[str, Any]) -> None:
        """Adds the values that are numbers, as one event."""
        scalar = self._summary_proto.Summary.Value
        found = [scalar(tag=name, simple_value=number) for name, number in numbers(values).items()]
        self._add(step=step, summary=self._summary_proto.Summary(value=found))

    def _add(self, **fields: Any) -> None:
        self._writer.write(self._proto.Event(wall_time=time.time(), **fields).SerializeToString())
