"""The settings of a run: open ones are decided, saved once, and compared when the run is
resumed."""

import dataclasses
from collections.abc import Sequence

from esnlm.base.errors import InputError
from esnlm.data.corpus import Corpus
from esnlm.machine.compute import ComputeConfig, backend
from esnlm.models.devices import resolve_compute
from esnlm.runs.directory import RunDirectory
from esnlm.training import config_io, parent
from esnlm.training.config import (
    DECIDES_NOTHING,
    Experiment,
    ResolvedExperiment,
    TrainingConfig,
    differences,
    resolved,
)

# Settings that may be chosen for the device. A resumed run keeps the choice of its first start.
DEVICE_CHOICES = ("kernel", "batch_slots", "window_tokens")
# Settings that may change within a run on request: how it is computed and logged, and where the
# same text is.
MAY_CHANGE = (
    *(f"compute.{each.name}" for each in dataclasses.fields(ComputeConfig)),
    *DECIDES_NOTHING,
)
# Settings that may change without a request: the run directory may move, trackers do not affect the
# result, and a run continues on the available devices.
NOT_COMPARED = ("run", "tracking", "compute.mesh")


def resolve(
    experiment: Experiment, directory: RunDirectory, allowed: Sequence[str] = ()
) -> tuple[ResolvedExperiment, list[str]]:
    """Returns the experiment with every setting decided: for this device, or as the run was begun.

    A new run saves its settings to config.yaml. A resumed run may differ in the `allowed` settings,
    a subset of MAY_CHANGE. The changes are strings `key old -> new`.

    Raises InputError if the run was begun with another configuration, or cannot continue from its
    parent.
    """
    if directory.config.exists():
        return require_same(experiment, directory, allowed)
    experiment = parent.resolve(experiment)
    found = resolved(experiment, resolve_compute(experiment.compute, experiment.model))
    config_io.write(found, directory.config)
    return found, []


def require_same(
    experiment: Experiment,
    directory: RunDirectory,
    allowed: Sequence[str] = (),
    advice: str | None = None,
) -> tuple[ResolvedExperiment, list[str]]:
    """Does the same as `resolve` for a run that has begun. The message of its InputError shows each
    difference."""
    if unknown := [key for key in allowed if key not in MAY_CHANGE]:
        raise InputError(
            f"--allow-change {unknown[0]}: it may not change within a run; choose from"
            f" {', '.join(MAY_CHANGE)}"
        )
    begun, allowed = config_io.read_begun(directory.config), list(allowed)
    chosen = {name: getattr(begun.compute, name) for name in DEVICE_CHOICES}
    # The fused kernel is for GPUs, and `auto` stands for a kernel of an earlier version. Both were
    # automatic choices, so the run may continue with another kernel.
    is_lost = chosen["kernel"] == "auto" or (chosen["kernel"] == "fused" and backend() != "gpu")
    if experiment.compute.kernel == "auto" and is_lost:
        allowed.append("compute.kernel")
    left_open = {
        name: value
        for name, value in chosen.items()
        if getattr(experiment.compute, name) in (None, "auto") and f"compute.{name}" not in allowed
    }
    compute = dataclasses.replace(experiment.compute, **left_open)
    if experiment.parent.run is not None:
        asked = {
            name: value for name, value in vars(experiment.parent).items() if value is not None
        }
        found_out = {name: getattr(begun.parent, name) for name in ("step", "config_sha256")}
        experiment = dataclasses.replace(
            experiment, parent=dataclasses.replace(experiment.parent, **found_out | asked)
        )
    found = resolved(experiment, resolve_compute(compute, experiment.model))
    changes = {
        key: change
        for key, change in differences(begun, found).items()
        if not f"{key}.".startswith(tuple(f"{each}." for each in NOT_COMPARED))
    }
    if refused := [key for key in changes if key not in allowed]:
        if advice is None:
            again = f" (--config {directory.config} --run {experiment.run})"
            advice = f"give the same one{again}, or another run directory with --run"
            if all(key in MAY_CHANGE for key in refused):
                advice += f", or ask for the change with --allow-change {' '.join(refused)}"
        changed = "; ".join(changes[key] for key in refused)
        raise InputError(
            f"{directory.config}: the run was begun with another configuration ({changed});"
            f" {advice}"
        )
    return found, list(changes.values())


def require_validation(experiment: Experiment, corpus: Corpus) -> None:
    """Raises InputError for settings that need validation text, if there is none."""
    training = experiment.training
    if not isinstance(training, TrainingConfig) or corpus.validation is not None:
        return
    for name in ("stop_after", "validate_every"):
        if (value := getattr(training, name)) is not None:
            raise InputError(
                f"training.{name} is {value}: there is no validation text; give data.validation"
            )
