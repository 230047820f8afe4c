"""What is left to the device, decided once and written into the run's configuration."""

import dataclasses
from collections.abc import Sequence

import jax

from esnlm import config as configuration
from esnlm.compute import ComputeConfig, choose_compute
from esnlm.config import Experiment
from esnlm.errors import InputError
from esnlm.runs.directory import RunDirectory

DEVICE_CHOICES = ("compute.kernel", "compute.batch_slots", "compute.window_tokens")
# What may change within a run, where it is asked for: how it is computed and logged, and where the same text lies.
MAY_CHANGE = (
    *(f"compute.{field.name}" for field in dataclasses.fields(ComputeConfig)),
    *("data.train", "data.validation"),
    *(f"training.{name}" for name in ("log_every", "checkpoint_every", "checkpoint_words", "keep_checkpoints")),
)


def resolve(
    experiment: Experiment, directory: RunDirectory, allowed: Sequence[str] = ()
) -> tuple[Experiment, list[str]]:
    """The experiment with what it leaves open filled in: for this device, or as the run was begun.

    Args:
        allowed: settings that may differ from what the run was begun with, of MAY_CHANGE.

    Returns:
        (experiment, changes): the latter one text a setting that differs, `key old -> new`.

    Raises:
        InputError: the run was begun with another configuration.
    """
    if directory.config.exists():
        return require_same(experiment, directory, allowed)
    resolved = dataclasses.replace(
        experiment, compute=choose_compute(experiment.compute, experiment.model, jax.default_backend())
    )
    configuration.write(resolved, directory.config)
    return resolved, []


def require_same(
    experiment: Experiment, directory: RunDirectory, allowed: Sequence[str] = ()
) -> tuple[Experiment, list[str]]:
    """As `resolve`, for a run that has begun.

    Raises:
        InputError: the configuration differs in more than is allowed; the line shows each difference.
    """
    if fixed := [key for key in allowed if key not in MAY_CHANGE]:
        raise InputError(
            f"--allow-change {fixed[0]}: no setting that may change within a run; those are {', '.join(MAY_CHANGE)}"
        )
    begun = configuration.read(directory.config)
    old, new = (configuration.flatten(configuration.as_dict(one)) for one in (begun, experiment))
    left_open = [key for key in DEVICE_CHOICES if new[key] in (None, "auto") and key not in allowed]
    compute = dataclasses.replace(experiment.compute, **{key.removeprefix("compute."): old[key] for key in left_open})
    experiment = dataclasses.replace(experiment, compute=compute)
    experiment = dataclasses.replace(
        experiment, compute=choose_compute(experiment.compute, experiment.model, jax.default_backend())
    )
    new = configuration.flatten(configuration.as_dict(experiment))
    changed = {
        key: f"{key} {old.get(key)} -> {new.get(key)}"
        for key in sorted(old | new)
        if old.get(key) != new.get(key) and key != "run"
    }
    refused = [key for key in changed if key not in allowed]
    if refused:
        ask = (
            f", or ask for the change with --allow-change {' '.join(refused)}"
            if all(key in MAY_CHANGE for key in refused)
            else ""
        )
        raise InputError(
            f"{directory.config}: the run was begun with another configuration ({'; '.join(changed[key] for key in refused)});"
            f" give the same one, or another run directory with --run{ask}"
        )
    return experiment, list(changed.values())
