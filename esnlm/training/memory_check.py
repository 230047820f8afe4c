"""Refuses, before anything is computed, a run that cannot fit into the memory of its device."""

import os

import jax

from esnlm.compute import backend
from esnlm.config import Experiment
from esnlm.errors import InputError
from esnlm.memory import device_memory
from esnlm.parallel.mesh import Shape, describe
from esnlm.training import plan

SWITCH = "ESNLM_MEMORY_CHECK"  # "off": a run that seems not to fit is tried


def require_memory(experiment: Experiment, vocab_size: int) -> None:
    """Raises InputError where a training by gradients needs more memory than the device has.

    Only what exists at once in any case is counted: what is trained with its gradient and the optimizer's state, what is
    frozen, and the buffers of precomputed features. Logits and other temporary arrays are not. All memory of the device
    counts as free, or on a CPU all that this process may use. So a run that is refused cannot fit, and one that is not
    refused may still run out of memory.
    """
    if os.environ.get(SWITCH) == "off":
        return
    model, platform = experiment.model, backend()
    placement = model.placement(experiment.compute, vocab_size)
    shape = Shape(**describe(None if placement is None else placement.mesh))
    planned = plan.memory_of_each(experiment, platform, shape, vocab_size)
    # The devices of a CPU, which are for tests, have one memory.
    together = min(shape.devices, jax.local_device_count()) if platform == "cpu" else 1
    parts = {"what is trained": together * planned.trained, "what is frozen": together * planned.frozen}
    if model.trains_ahead:
        parts["features"] = together * planned.features
    needed, there = sum(parts.values()), device_memory()
    if needed <= there:
        return
    where = "this machine" if platform == "cpu" else f"JAX on this {jax.local_devices()[0].device_kind}"
    of_it = ", ".join(f"{name} {size / 1e9:,.1f}" for name, size in parts.items())
    largest = max(parts, key=lambda name: parts[name])
    advice = "a smaller compute.window_tokens" if largest == "features" else "a smaller model"
    raise InputError(
        f"this run needs at least {needed / 1e9:,.1f} GB of memory{' on each device' * (shape.devices > together)} ({of_it}) and {where} has {there / 1e9:,.1f} GB; choose"
        f" {advice}, or try it all the same with {SWITCH}=off"
    )
