"""The settings of a run: decided where they are left open, written down once, and compared when it is resumed."""

import dataclasses
import hashlib
import json
from collections.abc import Sequence

from esnlm import config_io
from esnlm.compute import ComputeConfig, backend, choose_compute
from esnlm.config import Experiment, TrainingConfig, as_dict, flatten
from esnlm.data.corpus import Corpus
from esnlm.errors import InputError
from esnlm.runs.directory import RunDirectory
from esnlm.training import parent

# What a configuration may leave to the device. A resumed run keeps what was chosen when it was begun.
DEVICE_CHOICES = ("compute.kernel", "compute.batch_slots", "compute.window_tokens")
# What is found out of a parent, likewise.
FOUND_OUT = ("step", "config_sha256")
# What may change within a run where it is asked for: how it is computed and logged, and where the same text lies.
MAY_CHANGE = (
    *(f"compute.{field.name}" for field in dataclasses.fields(ComputeConfig)),
    *("data.train", "data.validation"),
    *(f"training.{name}" for name in ("log_every", "checkpoint_every", "checkpoint_words", "keep_checkpoints")),
)
# What may change without being asked for: the directory has moved, what only watches decides nothing, and a run goes on with
# the devices that are there.
NOT_COMPARED = ("run", "tracking", "compute.mesh")
# Of what may change, what rounds a result otherwise than float32 does.
ROUNDING = ("compute.precision", "compute.state_precision")


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
        InputError: the run was begun with another configuration, or it cannot go on from the parent that is named.
    """
    if directory.config.exists():
        return require_same(experiment, directory, allowed)
    experiment = parent.resolve(_with_device_choices(experiment))
    config_io.write(experiment, directory.config)
    return experiment, []


def require_same(
    experiment: Experiment, directory: RunDirectory, allowed: Sequence[str] = (), advice: str | None = None
) -> tuple[Experiment, list[str]]:
    """Does what `resolve` does for a run that has begun.

    Args:
        advice: what the user can do where the configuration differs; None: what train.py can.

    Raises:
        InputError: the configuration differs in more than is allowed; the line shows each difference.
    """
    allowed = list(dict.fromkeys(allowed))
    for key in allowed:
        if key not in MAY_CHANGE:
            settings = ", ".join(MAY_CHANGE)
            raise InputError(f"--allow-change {key}: no setting that may change within a run; those are {settings}")
    begun = flatten(as_dict(config_io.read_begun(directory.config)))
    asked = flatten(as_dict(experiment))
    left_open = [key for key in DEVICE_CHOICES if asked[key] in (None, "auto") and key not in allowed]
    # The fused kernel is for GPUs. Nobody asked for it, so the run goes on with what is there.
    if "compute.kernel" in left_open and begun["compute.kernel"] == "fused" and backend() != "gpu":
        left_open.remove("compute.kernel")
        allowed = [*allowed, "compute.kernel"]
    compute = dataclasses.replace(experiment.compute, **{key.removeprefix("compute."): begun[key] for key in left_open})
    experiment = _with_device_choices(dataclasses.replace(experiment, compute=compute))
    if experiment.parent.run is not None:
        found = {key: begun[f"parent.{key}"] for key in FOUND_OUT if asked[f"parent.{key}"] is None}
        experiment = dataclasses.replace(experiment, parent=dataclasses.replace(experiment.parent, **found))
    now = flatten(as_dict(experiment))
    changes = {
        key: f"{key} {begun.get(key)} -> {now.get(key)}"
        for key in sorted(begun | now)
        if begun.get(key) != now.get(key) and not f"{key}.".startswith(tuple(f"{each}." for each in NOT_COMPARED))
    }
    if refused := [key for key in changes if key not in allowed]:
        if advice is None:
            again = f" (--config {directory.config} --run {experiment.run})"
            advice = f"give the same one{again}, or another run directory with --run"
            if all(key in MAY_CHANGE for key in refused):
                advice += f", or ask for the change with --allow-change {' '.join(refused)}"
        differences = "; ".join(changes[key] for key in refused)
        message = f"the run was begun with another configuration ({differences}); {advice}"
        raise InputError(f"{directory.config}: {message}")
    return experiment, list(changes.values())


def hash_settings(experiment: Experiment) -> str:
    """Returns the sha256 of the settings that a result depends on, which is the same on every machine.

    What a device chooses, and where run and text lie, are not among them, and neither is the seed: runs that differ in
    nothing but their seed have one hash. The text has hashes of its own (`fingerprints` in data/corpus.py). A setting that has
    its default is left out, so that the hash stays when esnlm gets another setting. A parent is known by its path.
    """
    sections = ("data", "model", "training", "compute", "parent")
    usual = dataclasses.replace(experiment, **{name: type(getattr(experiment, name))() for name in sections})
    defaults = flatten(as_dict(usual))
    left_out = {"run", "seed", "tracking", *MAY_CHANGE, *(f"parent.{name}" for name in FOUND_OUT)} - {*ROUNDING}
    told = {
        key: value
        for key, value in flatten(as_dict(experiment)).items()
        if key not in left_out
        and not key.startswith("compute.mesh.")
        and (key not in defaults or value != defaults[key] or key.endswith(("kind", "family")))
    }
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def require_validation(experiment: Experiment, corpus: Corpus) -> None:
    """Raises InputError for settings that need validation text, where there is none."""
    training = experiment.training
    if not isinstance(training, TrainingConfig) or corpus.validation is not None:
        return
    for name in ("stop_after", "validate_every"):
        if (value := getattr(training, name)) is not None:
            raise InputError(f"training.{name} is {value}: there is no validation text; name some with data.validation")


def _with_device_choices(experiment: Experiment) -> Experiment:
    """Returns the experiment with what it leaves open chosen for this device."""
    compute = choose_compute(experiment.compute, experiment.model, backend(), _devices(experiment))
    return dataclasses.replace(experiment, compute=compute)


def _devices(experiment: Experiment) -> int:
    """Returns how many devices the model is computed on."""
    mesh = experiment.model.mesh(experiment.compute)
    return 1 if mesh is None else mesh.size
