"""Decides the settings of a run: for this machine, as its parent has them, or as it was begun."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from esnlm.base.console import warn
from esnlm.base.errors import InputError
from esnlm.base.remote import is_url
from esnlm.machine.compute import ComputeConfig
from esnlm.models.devices import Machine
from esnlm.runs import checkpoint
from esnlm.runs.directory import RunDirectory
from esnlm.training import config_io
from esnlm.training.config import (
    DECIDES_NOTHING,
    Experiment,
    ResolvedExperiment,
    differences,
    resolved,
)

# Settings that may be chosen for the machine. A resumed run keeps the choice of its first start.
MACHINE_CHOICES = ("kernel", "batch_slots", "window_tokens")
# Settings that may change within a run on request: how it is computed and logged, and where the
# same text is.
MAY_CHANGE = (
    *(f"compute.{field.name}" for field in dataclasses.fields(ComputeConfig)),
    *DECIDES_NOTHING,
)
# Settings that may change without a request: the run directory may move, trackers do not affect the
# result, and a run continues on the available devices.
NOT_COMPARED = ("run", "tracking", "compute.mesh")


def decide(
    experiment: Experiment,
    machine: Machine,
    directory: RunDirectory,
    allow_change: Sequence[str] = (),
) -> tuple[ResolvedExperiment, list[str]]:
    """Returns the experiment with every setting decided: for this machine, or as the run was begun.

    A new run saves its settings to config.yaml. A resumed run may differ in the settings
    `allow_change`, a subset of MAY_CHANGE. The changes are strings `key old -> new`.

    Raises InputError if the run was begun with another configuration, or cannot continue from its
    parent.
    """
    if directory.config.exists():
        return check_same(experiment, machine, directory, allow_change)
    decided = resolved(_with_parent(experiment), machine)
    config_io.write(decided, directory.config)
    return decided, []


def check_same(
    experiment: Experiment,
    machine: Machine,
    directory: RunDirectory,
    allow_change: Sequence[str] = (),
    advice: str | None = None,
) -> tuple[ResolvedExperiment, list[str]]:
    """Returns the settings and changes of a run that has begun, as `decide` does.

    The message of its InputError lists every difference, and ends with the `advice`.
    """
    for key in allow_change:
        if key not in MAY_CHANGE:
            raise InputError(
                f"--allow-change {key}: it may not change within a run; choose from"
                f" {', '.join(MAY_CHANGE)}"
            )
    begun = config_io.read_begun(directory.config)
    may_change = list(allow_change)
    # The fused kernel is for GPUs, and `auto` stands for a kernel of an earlier version. If either
    # was chosen automatically, the run may continue with another one.
    kernel = begun.compute.kernel
    is_lost = kernel == "auto" or (kernel == "fused" and machine.backend != "gpu")
    if is_lost and experiment.compute.kernel == "auto":
        may_change.append("compute.kernel")
    experiment = _as_begun(experiment, begun, may_change)
    decided = resolved(experiment, machine)
    changes = {
        key: change
        for key, change in differences(begun, decided).items()
        if not any(f"{key}.".startswith(f"{name}.") for name in NOT_COMPARED)
    }
    rejected = [key for key in changes if key not in may_change]
    if rejected:
        if advice is None:
            advice = (
                f"give the same one (--config {directory.config} --run {experiment.run}), or"
                " another run directory with --run"
            )
            if all(key in MAY_CHANGE for key in rejected):
                advice += f", or ask for the change with --allow-change {' '.join(rejected)}"
        raise InputError(
            f"{directory.config}: the run was begun with another configuration"
            f" ({'; '.join(changes[key] for key in rejected)}); {advice}"
        )
    return decided, list(changes.values())


def _as_begun(experiment: Experiment, begun: Experiment, may_change: Sequence[str]) -> Experiment:
    """Returns the experiment with its open settings as they were decided when the run began."""
    chosen = {
        name: getattr(begun.compute, name)
        for name in MACHINE_CHOICES
        if getattr(experiment.compute, name) in (None, "auto")
        and f"compute.{name}" not in may_change
    }
    origin = experiment.parent
    if origin.run is not None:
        step = begun.parent.step if origin.step is None else origin.step
        sha256 = origin.config_sha256 or begun.parent.config_sha256
        origin = dataclasses.replace(origin, step=step, config_sha256=sha256)
    compute = dataclasses.replace(experiment.compute, **chosen)
    return dataclasses.replace(experiment, compute=compute, parent=origin)


def open_parent(run: str) -> RunDirectory:
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


def _with_parent(experiment: Experiment) -> Experiment:
    """Returns the experiment with its parent's step and `config_sha256` filled in, if it has one.

    Raises InputError if the parent is not a finished run, has another model or no such checkpoint,
    or is damaged.
    """
    settings = experiment.parent
    if settings.run is None:
        return experiment
    parent = open_parent(settings.run)
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
    checkpoint.check_step(parent.checkpoints, step)
    sha256 = str(summary["config_sha256"])
    if settings.config_sha256 not in (None, sha256):
        raise InputError(
            f"{settings.run}: its config_sha256 is {sha256[:12]} and parent.config_sha256 is"
            f" {settings.config_sha256[:12]}: it is another run; name the intended run, or give"
            " null to use this one"
        )
    parent_settings = dataclasses.replace(settings, step=step, config_sha256=sha256)
    return dataclasses.replace(experiment, parent=parent_settings)
