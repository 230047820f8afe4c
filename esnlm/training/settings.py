"""The settings of a run: decided where they are left open, written down once, and compared when it is resumed."""

import dataclasses
from collections.abc import Sequence

from esnlm import config_io
from esnlm.compute import ComputeConfig, backend, choose_compute
from esnlm.config import Experiment, as_dict, flatten
from esnlm.errors import InputError
from esnlm.runs.directory import RunDirectory

# What a configuration may leave to the device. A resumed run keeps what was chosen when it was begun.
DEVICE_CHOICES = ("compute.kernel", "compute.cross_entropy", "compute.batch_slots", "compute.window_tokens")
# What may change within a run where it is asked for: how it is computed and logged, and where the same text lies.
MAY_CHANGE = (
    *(f"compute.{field.name}" for field in dataclasses.fields(ComputeConfig)),
    *("data.train", "data.validation"),
    *(f"training.{name}" for name in ("log_every", "checkpoint_every", "checkpoint_words", "keep_checkpoints")),
)
# What may change without being asked for: the directory has moved, what only watches decides nothing, and a run goes on with
# the devices that are there.
NOT_COMPARED = ("run", "tracking", "compute.mesh")


def resolve(
    experiment: Experiment, directory: RunDirectory, allowed: Sequence[str] = ()
) -> tuple[Experiment, list[str]]:
    """Returns the experiment with every setting decided: for this device, or as the run was begun.

    The settings of a run that begins now are written to its config.yaml.

    Args:
        experiment: what is asked for.
        directory: the run directory.
        allowed: settings that may differ from those that the run was begun with, from MAY_CHANGE.

    Returns:
        (experiment, changes): the changes are a text for each setting that differs, `key old -> new`.

    Raises:
        InputError: the run was begun with another configuration.
    """
    if directory.config.exists():
        return require_same(experiment, directory, allowed)
    experiment = _with_device_choices(experiment)
    config_io.write(experiment, directory.config)
    return experiment, []


def require_same(
    experiment: Experiment, directory: RunDirectory, allowed: Sequence[str] = ()
) -> tuple[Experiment, list[str]]:
    """Does what `resolve` does for a run that has begun.

    Raises:
        InputError: the configuration differs in more than is allowed; the line shows each difference.
    """
    allowed = list(dict.fromkeys(config_io.RENAMED.get(key, key) for key in allowed))
    for key in allowed:
        if key not in MAY_CHANGE:
            settings = ", ".join(MAY_CHANGE)
            raise InputError(f"--allow-change {key}: no setting that may change within a run; those are {settings}")
    begun = flatten(as_dict(config_io.read_begun(directory.config)))
    asked = flatten(as_dict(experiment))
    left_open = [key for key in DEVICE_CHOICES if asked[key] in (None, "auto") and key not in allowed]
    compute = dataclasses.replace(experiment.compute, **{key.removeprefix("compute."): begun[key] for key in left_open})
    experiment = _with_device_choices(dataclasses.replace(experiment, compute=compute))
    now = flatten(as_dict(experiment))
    if begun["compute.cross_entropy"] == "auto":  # a run that was begun before there was a choice
        begun["compute.cross_entropy"] = now["compute.cross_entropy"]
    changes = {
        key: f"{key} {begun.get(key)} -> {now.get(key)}"
        for key in sorted(begun | now)
        if begun.get(key) != now.get(key) and not f"{key}.".startswith(tuple(f"{each}." for each in NOT_COMPARED))
    }
    if refused := [key for key in changes if key not in allowed]:
        could_be_allowed = all(key in MAY_CHANGE for key in refused)
        advice = f", or ask for the change with --allow-change {' '.join(refused)}" if could_be_allowed else ""
        raise InputError(
            f"{directory.config}: the run was begun with another configuration"
            f" ({'; '.join(changes[key] for key in refused)});"
            f" give the same one, or another run directory with --run{advice}"
        )
    return experiment, list(changes.values())


def _with_device_choices(experiment: Experiment) -> Experiment:
    """Returns the experiment with what it leaves open chosen for this device."""
    device, mesh = backend(), experiment.model.mesh(experiment.compute)
    devices = 1 if mesh is None else mesh.size
    compute = choose_compute(experiment.compute, experiment.model, device, devices)
    return dataclasses.replace(experiment, compute=compute)
