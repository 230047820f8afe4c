"""Continuing from a finished run, the parent: checks it and copies its arrays, so that it may be
deleted afterwards.

The frozen arrays are copied bit for bit. The trained arrays come from one checkpoint of the parent,
not from its average. The schedule, the average and all counters begin anew. The optimizer's moments
begin at 0 or as the parent's.
"""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import optax
from flax import serialization

from esnlm.base.console import say, warn
from esnlm.base.errors import InputError
from esnlm.base.remote import is_url
from esnlm.data.corpus import Corpus
from esnlm.data.tokenizer import load_tokenizer
from esnlm.runs import checkpoint
from esnlm.runs.directory import RunDirectory
from esnlm.training import config_io
from esnlm.training.config import Experiment, differences

# states of our optimizers with moments of gradients
MOMENTS = (
    optax.ScaleByAdamState,
    optax.TraceState,
)


def open_run(run: str) -> RunDirectory:
    """Returns the directory of a parent. Raises InputError if it does not exist or is not on this
    machine."""
    if is_url(run):
        raise InputError(
            f"{run}: a run can continue from a local directory only; copy it here first"
        )
    parent = RunDirectory(Path(run))
    if not parent.config.exists():
        raise InputError(
            f"{run}: not a run directory: it has no {parent.config.name}; name a finished run with"
            " --from; to resume a run that began from it, give --config RUN/config.yaml"
        )
    return parent


def resolve(experiment: Experiment) -> Experiment:
    """Returns the experiment with the parent's step and `config_sha256` filled in; unchanged
    without a parent.

    Raises InputError if the parent is not a finished run, has another model or no such checkpoint,
    or is damaged.
    """
    parent = experiment.parent
    if parent.run is None:
        return experiment
    theirs = open_run(parent.run)
    theirs.verify(theirs.config, theirs.tokenizer, warn=warn)
    summary = theirs.read_summary(warn)
    if summary is None:
        raise InputError(
            f"{parent.run}: not a finished run; train it to its end with train.py, or name"
            " another run"
        )
    changes = differences(config_io.read_begun(theirs.config), experiment)
    if other := [change for key, change in changes.items() if key.startswith("model.")]:
        raise InputError(
            f"{parent.run}: its model differs ({'; '.join(other)}); a run must continue with the"
            " same model"
        )
    if parent.step is None and summary["status"] == "diverged":
        raise InputError(
            f"{parent.run}: it diverged; name an update before that with --parent.step"
        )
    step = int(summary["step"]) if parent.step is None else parent.step
    if step not in checkpoint.all_steps(theirs.checkpoints):
        there = ", ".join(map(str, checkpoint.all_steps(theirs.checkpoints))) or "none"
        raise InputError(f"{theirs.checkpoints}: no checkpoint of step {step}; there are: {there}")
    found, wanted = str(summary["config_sha256"]), parent.config_sha256
    if wanted not in (None, found):
        raise InputError(
            f"{parent.run}: its config_sha256 is {found[:12]} and parent.config_sha256 is"
            f" {wanted[:12]}: it is another run; name the intended run, or give null to use"
            " this one"
        )
    return dataclasses.replace(
        experiment, parent=dataclasses.replace(parent, step=step, config_sha256=found)
    )


def copy_arrays(experiment: Experiment, corpus: Corpus, directory: RunDirectory) -> None:
    """Copies the arrays of a parent, if any, to frozen/ and initial/ of a run directory without a
    manifest.

    Raises InputError if the corpus has another tokenizer, or the parent is damaged.
    """
    if experiment.parent.run is None or directory.manifest_file.exists():
        return
    theirs, step = open_run(experiment.parent.run), experiment.parent.step
    corpus.train.check_tokenizer(load_tokenizer(theirs.tokenizer))
    if (
        experiment.model.frozen_bytes(corpus.tokenizer.vocab_size)
        and checkpoint.verify(directory.frozen) is not None
    ):
        checkpoint.save(directory.frozen, *checkpoint.restore(theirs.frozen))
    if checkpoint.verify(directory.initial) is not None:
        arrays, metadata = checkpoint.restore(theirs.checkpoints / str(step))
        kept = ("params", "optimizer") if experiment.parent.keep_optimizer else ("params",)
        initial = {name: arrays[name] for name in kept if name in arrays}
        checkpoint.save(directory.initial, initial, {"step": metadata["step"]})
    say(f"continuing from {theirs.path}, update {step}")


def with_moments(fresh: optax.OptState, saved: dict[str, Any], where: str) -> optax.OptState:
    """Returns the state of an optimizer with the moments of a saved state.

    The rest of the saved state is ignored: the schedule counts updates from 0, and clipping and
    averaging may differ. Raises InputError if it is the state of another optimizer.
    """

    def of(state: Any) -> Any:
        if not isinstance(state, MOMENTS):
            return state
        found = _find(saved, set(state._fields))
        if found is None:
            raise InputError(
                f"{where}: no moments of this training.optimizer are saved; leave"
                " parent.keep_optimizer out"
            )
        return serialization.from_state_dict(state, found)

    return jax.tree.map(of, fresh, is_leaf=lambda state: isinstance(state, MOMENTS))


def _find(tree: Any, fields: set[str]) -> dict[str, Any] | None:
    """Returns the first nested dict with exactly these keys; None if there is none."""
    if not isinstance(tree, dict):
        return None
    if tree.keys() == fields:
        return tree
    return next(
        (found for inner in tree.values() if (found := _find(inner, fields)) is not None), None
    )
