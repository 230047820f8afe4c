"""Refuses, before anything is computed, a run that cannot fit into the memory of its device."""

import os

import jax

from esnlm.compute import backend
from esnlm.config import Experiment
from esnlm.errors import InputError
from esnlm.memory import device_memory
from esnlm.training import plan

SWITCH = "ESNLM_MEMORY_CHECK"  # "off": a run that seems not to fit is tried


def require_memory(experiment: Experiment, vocab_size: int) -> None:
    """Raises InputError where a training by gradients needs more memory than the device has.

    Only what exists at once in any case is counted: what is trained with its gradient and the optimizer's state, what is
    frozen, and the buffer of precomputed features. Logits and other temporary arrays are not. All memory of the device
    counts as free, or on a CPU all that this process may use. So a run that is refused cannot fit, and one that is not
    refused may still run out of memory.
    """
    if os.environ.get(SWITCH) == "off":
        return
    model, platform = experiment.model, backend()
    planned = plan.memory(experiment, platform, vocab_size)
    mesh = model.mesh(experiment.compute)
    # Devices of a mesh share what is trained and the features. Those of a CPU, which are for tests, have one memory.
    sharing = 1 if mesh is None or platform == "cpu" else mesh.size
    parts = {"what is trained": planned.trained // sharing, "what is frozen": planned.frozen}
    if model.features_are_frozen:
        parts["features"] = planned.features // sharing
    needed, there = sum(parts.values()), device_memory()
    if needed <= there:
        return
    where = "this machine" if platform == "cpu" else f"JAX on this {jax.local_devices()[0].device_kind}"
    of_it = ", ".join(f"{name} {size / 1e9:,.1f}" for name, size in parts.items())
    largest = max(parts, key=lambda name: parts[name])
    advice = "a smaller compute.window_tokens" if largest == "features" else "a smaller model"
    raise InputError(
        f"this run needs at least {needed / 1e9:,.1f} GB of memory{' on each device' * (sharing > 1)} ({of_it}) and {where} has {there / 1e9:,.1f} GB; choose"
        f" {advice}, or try it all the same with {SWITCH}=off"
    )
