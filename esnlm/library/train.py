"""Training from Python: the run that `esnlm train` trains, with functions that watch it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from esnlm import config_io, loaded_run
from esnlm.config import Experiment, as_dict
from esnlm.data.sources.given import put_sentences
from esnlm.data.tokenizer import Tokenizer
from esnlm.errors import InputError, require
from esnlm.io.remote import is_url
from esnlm.library import text
from esnlm.loaded_run import Run
from esnlm.regression.base import Fitter
from esnlm.runs import checkpoint
from esnlm.runs.directory import RunDirectory
from esnlm.workflows.train import INTERRUPTED, train_run

Callback = Callable[[int, dict[str, Any]], Any]


def train(
    experiment: Experiment | dict[str, Any] | str | Path,
    callbacks: Sequence[Callback] = (),
    *,
    sentences: Sequence[str] | None = None,
    validation: Sequence[str] | None = None,
    tokenizer: str | Path | Tokenizer | None = None,
    allow_change: Sequence[str] = (),
) -> Run:
    """Trains a run, or what is left of it, in its run directory, and returns it. It is what `esnlm train` does.

    A second call with a finished run returns it at once. A call that was interrupted is resumed by the same call.

    Args:
        experiment: an Experiment, the same as nested dicts, or a YAML file.
        callbacks: functions of the step and of the metrics logged there, a dict such as {"step": 20, "train_nll": 6.1, ...}
            or {"step": 100, "epoch": 1, "val_nll": 5.2, ...}. Where one returns True, the run stops after the updates under
            way and is saved. A regression has no readout before its end, so that to stop it raises InputError; it is saved, too.
            What one raises ends the call, and the run can be resumed from its last checkpoint.
        sentences: texts to train on, instead of the experiment's data. The run directory keeps them as token ids.
        validation: texts to validate on, where there are `sentences`.
        tokenizer: of the `sentences`: "words", "train:8192", "gpt2", a folder or a tokenizer; see `esnlm.tokenizer`. None:
            "words".
        allow_change: settings that may differ from those that the run was begun with, as `--allow-change` names them.

    Returns:
        The run, restored from its newest checkpoint.

    Raises:
        InputError: the data, the configuration or the run directory cannot be used, or a callback stopped a regression.
        KeyboardInterrupt: it was interrupted (in a notebook: the stop button). The run is saved by then.

    Example:
        def patience(step, metrics):
            return metrics.get("train_nll", 9.0) < 3.0        # True stops the run

        run = esnlm.train({"run": "runs/small", "training": {"epochs": 2}}, [patience], sentences=texts)
        run.log_probs(["The cats sleep."])
    """
    tree = as_dict(experiment) if isinstance(experiment, Experiment) else experiment
    require(validation is None or sentences is not None, "validation is given without sentences: give both")
    alone = "tokenizer is given without sentences: the data of an experiment have their own; leave it out, or give both"
    require(tokenizer is None or sentences is not None, alone)
    if sentences is not None:
        tree = as_dict(config_io.read(tree)) if isinstance(tree, str | Path) else dict(tree)
        tree["data"] = {"kind": "given"}
    read = config_io.read(tree) if isinstance(tree, str | Path) else config_io.from_dict(tree)
    callbacks = require_callbacks(callbacks)
    require(not isinstance(allow_change, str), f"allow_change is {allow_change!r}: give a list of names of settings")
    if sentences is not None:
        text.require_folder(read.run)
        lines = text.require_sentences(sentences)
        held = None if validation is None else text.require_sentences(validation)
        chosen = text.tokenizer("words" if tokenizer is None else tokenizer, lines)
        put_sentences(RunDirectory(Path(read.run)), lines, held, chosen)
    stopped = False

    def tell(values: dict[str, Any]) -> bool:
        nonlocal stopped
        answers = [callback(values["step"], dict(values)) for callback in callbacks]
        stopped = stopped or any(isinstance(answer, bool | np.bool_) and bool(answer) for answer in answers)
        return stopped

    status = train_run(read, allow_change, listeners=[tell] if callbacks else (), ends_process=False)
    if status == INTERRUPTED and not stopped:
        raise KeyboardInterrupt(f"{read.run}: stopped; the same call resumes it")
    has_readout = is_url(read.run) or bool(checkpoint.all_steps(RunDirectory(Path(read.run)).checkpoints))
    if status == INTERRUPTED and isinstance(read.training, Fitter) and not has_readout:
        message = f"a callback stopped it before {read.training.kind} made the readout; the same call without it resumes the run"
        raise InputError(f"{read.run}: {message}")
    return loaded_run.load(read.run)


def require_callbacks(callbacks: Sequence[Callback]) -> list[Callback]:
    """Returns a list of functions. Raises InputError for one function, or for what cannot be called."""
    wrong = callable(callbacks) or isinstance(callbacks, str) or not all(callable(each) for each in callbacks)
    require(not wrong, f"callbacks is {callbacks!r}: give a list of functions of the step and the metrics")
    return list(callbacks)
