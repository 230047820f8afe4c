"""Continuing a finished run, the parent: checks it and copies its arrays; it may then be deleted.

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

from esnlm.base.console import info, warn
from esnlm.base.errors import InputError
from esnlm.base.remote import is_url
from esnlm.data.corpus import Corpus
from esnlm.data.tokenizer import load_tokenizer
from esnlm.models.base import ModelConfig
from esnlm.runs import checkpoint
from esnlm.runs.directory import RunDirectory
from esnlm.training import config_io
from esnlm.training.config import Experiment, ParentConfig, differences

MOMENTS = (optax.ScaleByAdamState, optax.TraceState)  # states with moments of gradients


def open_run(run: str) -> RunDirectory:
    """Returns the directory of a parent. Raises InputError if this machine has no such run."""
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
    """Returns the experiment with its parent's step and `config_sha256` filled in, if it has one.

    Raises InputError if the parent is not a finished run, has another model or no such checkpoint,
    or is damaged.
    """
    settings = experiment.parent
    if settings.run is None:
        return experiment
    parent = open_run(settings.run)
    parent.verify(parent.config, parent.tokenizer, warn=warn)
    summary = parent.read_summary(warn)
    if summary is None:
        raise InputError(
            f"{settings.run}: not a finished run; train it to its end with train.py, or name"
            " another run"
        )
    changes = differences(config_io.read_begun(parent.config), experiment)
    of_model = [change for key, change in changes.items() if key.startswith("model.")]
    if of_model:
        raise InputError(
            f"{settings.run}: its model differs ({'; '.join(of_model)}); a run must continue with"
            " the same model"
        )
    if settings.step is None and summary["status"] == "diverged":
        raise InputError(
            f"{settings.run}: it diverged; name an update before that with --parent.step"
        )
    step = int(summary["step"]) if settings.step is None else settings.step
    steps = checkpoint.all_steps(parent.checkpoints)
    if step not in steps:
        available = ", ".join(map(str, steps)) or "none"
        raise InputError(
            f"{parent.checkpoints}: no checkpoint of step {step}; available: {available}"
        )
    sha256 = str(summary["config_sha256"])
    if settings.config_sha256 not in (None, sha256):
        raise InputError(
            f"{settings.run}: its config_sha256 is {sha256[:12]} and parent.config_sha256 is"
            f" {settings.config_sha256[:12]}: it is another run; name the intended run, or give"
            " null to use this one"
        )
    resolved = dataclasses.replace(settings, step=step, config_sha256=sha256)
    return dataclasses.replace(experiment, parent=resolved)


def copy_arrays(
    settings: ParentConfig, model: ModelConfig, corpus: Corpus, directory: RunDirectory
) -> None:
    """Copies a parent's arrays, if there is one, to frozen/ and initial/ of a new run directory.

    Raises InputError if the corpus has another tokenizer, or the parent is damaged.
    """
    if settings.run is None or directory.manifest_file.exists():
        return
    parent = open_run(settings.run)
    corpus.train.require_tokenizer(load_tokenizer(parent.tokenizer))
    has_frozen = model.frozen_bytes(corpus.tokenizer.vocab_size) > 0
    if has_frozen and checkpoint.verify(directory.frozen) is not None:
        checkpoint.save(directory.frozen, *checkpoint.restore(parent.frozen))
    if checkpoint.verify(directory.initial) is not None:
        arrays, metadata = checkpoint.restore(parent.checkpoints / str(settings.step))
        names = ("params", "optimizer") if settings.keep_optimizer else ("params",)
        initial = {name: arrays[name] for name in names if name in arrays}
        checkpoint.save(directory.initial, initial, {"step": metadata["step"]})
    info(f"continuing from {parent.path}, update {settings.step}")


def with_moments(fresh: optax.OptState, saved: dict[str, Any], where: str) -> optax.OptState:
    """Returns the state of an optimizer with the moments of a saved state.

    The rest of the saved state is ignored: the schedule counts updates from 0, and clipping and
    averaging may differ. Raises InputError if it is the state of another optimizer.
    """

    def restore(state: Any) -> Any:
        if not isinstance(state, MOMENTS):
            return state
        moments = _find_fields(saved, set(state._fields))
        if moments is None:
            raise InputError(
                f"{where}: no moments of this training.optimizer are saved; leave"
                " parent.keep_optimizer out"
            )
        return serialization.from_state_dict(state, moments)

    return jax.tree.map(restore, fresh, is_leaf=lambda state: isinstance(state, MOMENTS))


def _find_fields(tree: Any, fields: set[str]) -> dict[str, Any] | None:
    """Returns the first nested dict with exactly these keys; None if there is none."""
    if not isinstance(tree, dict):
        return None
    if tree.keys() == fields:
        return tree
    matches = (_find_fields(inner, fields) for inner in tree.values())
    return next((match for match in matches if match is not None), None)
