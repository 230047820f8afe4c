"""What is left to the device, decided once and written into the run's configuration."""

import dataclasses

import jax

from esnlm import config as configuration
from esnlm.config import ComputeConfig, Experiment
from esnlm.errors import InputError
from esnlm.training.run_directory import RunDirectory

# Memory for features computed ahead: enough to fill the lanes, little beside a readout with its optimizer.
WINDOW_BYTES = {"cpu": 512 << 20, "gpu": 8 << 30, "tpu": 2 << 30}
LONGEST_WINDOW = 1 << 16

DEVICE_CHOICES = ("compute.kernel", "compute.lanes", "compute.window_tokens")


def resolve(experiment: Experiment, directory: RunDirectory) -> Experiment:
    """The experiment with what it leaves open filled in: for this device, or as the run was begun.

    Raises:
        InputError: the run was begun with another configuration.
    """
    if directory.config.exists():
        return require_same(experiment, directory)
    resolved = dataclasses.replace(experiment, compute=choose_compute(experiment, jax.default_backend()))
    configuration.write(resolved, directory.config)
    return resolved


def choose_compute(experiment: Experiment, backend: str) -> ComputeConfig:
    """The compute settings with every null and `auto` decided for a backend.

    Raises:
        InputError: the backend cannot do what is asked for.
    """
    compute, model = experiment.compute, experiment.model
    if compute.precision == "tf32" and backend == "cpu":
        raise InputError("compute.precision is tf32: a CPU has no such products; choose float32 or bf16")
    window = min(LONGEST_WINDOW, max(1024, WINDOW_BYTES.get(backend, 512 << 20) // (4 * model.feature_size)))
    return dataclasses.replace(
        compute,
        kernel=model.kernel(backend) if compute.kernel == "auto" else compute.kernel,
        lanes=compute.lanes or min(model.lanes(backend), max(8, window // 64)),
        window_tokens=compute.window_tokens or window,
    )


def require_same(experiment: Experiment, directory: RunDirectory) -> Experiment:
    """The configuration that the run was begun with, where it is the one asked for now.

    Raises:
        InputError: it differs; the line shows each difference.
    """
    begun = configuration.read(directory.config)
    old, new = (
        configuration.flatten(configuration.as_dict(one)) for one in (begun, experiment)
    )
    left_open = [key for key in DEVICE_CHOICES if new[key] in (None, "auto")]
    changed = [
        f"{key} {old.get(key)} -> {new.get(key)}"
        for key in sorted(old | new)
        if old.get(key) != new.get(key) and key not in ["run", *left_open]
    ]
    if changed:
        raise InputError(
            f"{directory.config}: the run was begun with another configuration ({'; '.join(changed)});"
            " give the same one, or another run directory with --run"
        )
    return dataclasses.replace(begun, run=experiment.run)
