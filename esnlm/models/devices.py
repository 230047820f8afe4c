"""The devices of a model: their mesh, the placement of its arrays, and compute settings chosen for
them."""

import math
from dataclasses import fields
from typing import Any

from jax.sharding import Mesh

from esnlm.base.errors import InputError
from esnlm.machine import mesh as meshes
from esnlm.machine.compute import (
    MOST_SLOTS,
    ComputeConfig,
    Recurrence,
    ResolvedCompute,
    backend,
    default_batch_slots,
)
from esnlm.machine.mesh import VOCABULARY
from esnlm.machine.placement import Placement, rows_on
from esnlm.models.base import READOUT_ARRAYS, ModelConfig
from esnlm.reservoir import sparse

# Memory for precomputed features: enough to fill the slots, and little beside a readout with its
# optimizer.
WINDOW_BYTES = {"cpu": 1 << 30, "gpu": 8 << 30, "tpu": 2 << 30}
SHORTEST_WINDOW, LONGEST_WINDOW = 1 << 8, 1 << 16
# minimum time steps of a window: with fewer, most slots would wait for the slot with the longest
# sentence
STEPS = 128


def mesh_of(model: ModelConfig, compute: ComputeConfig) -> Mesh | None:
    """Returns the mesh of devices for a model; None for one device.

    Raises:
        InputError: there are fewer devices than requested, or several are requested for a model
            that needs one device.
    """
    if model.token_arrays is not None:
        return meshes.make_mesh(compute.mesh)
    if math.prod((compute.mesh or {}).values()) > 1:
        raise InputError(
            f"compute.mesh asks for several devices: {model.title} runs on one device only; give"
            " null"
        )
    meshes.require_one_process(f"{model.title} runs on one device only")
    return None


def placement_of(model: ModelConfig, compute: ComputeConfig, vocab_size: int) -> Placement:
    """Returns the placement of a model's arrays on the devices, and their number of token rows
    there."""
    mesh = mesh_of(model, compute)
    if mesh is None:
        rows = rows_on(backend(), vocab_size) if model.readout_can_be_padded else vocab_size
        return Placement(None, vocab_size, rows, READOUT_ARRAYS)
    rows = rows_on(backend(), vocab_size, mesh.shape[VOCABULARY])
    is_cut = model.feature_size % mesh.size == 0 and (
        model.features_are_frozen or not model.ahead_size
    )
    return Placement(
        mesh, vocab_size, rows, model.token_arrays or (), ("readout.b",) if is_cut else ()
    )


def resolve_compute(compute: ComputeConfig, model: ModelConfig) -> ResolvedCompute:
    """Returns the settings with every open choice made for the devices of this process."""
    kind = backend()  # First, since it reports in one line if JAX finds no device.
    mesh = mesh_of(model, compute)
    return choose_compute(compute, model, kind, 1 if mesh is None else mesh.size)


def choose_compute(
    compute: ComputeConfig, model: ModelConfig, backend: str, devices: int = 1
) -> ResolvedCompute:
    """Returns the compute settings with every null and `auto` decided for a backend.

    Args:
        compute: the requested settings.
        model: the configuration of the model.
        backend: cpu, gpu or tpu.
        devices: number of devices that share the features of a window.

    Raises:
        InputError: the backend does not support a requested setting.
    """
    for name in ("precision", "state_precision"):
        if getattr(compute, name) == "tf32" and backend != "gpu":
            raise InputError(
                f"compute.{name} is tf32: a {backend.upper()} does not support it; choose float32"
                " or bf16"
            )
    if compute.kernel == "fused" and backend != "gpu":
        raise InputError(
            f"compute.kernel is fused: it is for GPUs, and JAX computes on a {backend} here; choose"
            " auto"
        )
    numbers = 4 * (model.ahead_size or model.feature_size)
    window = min(
        LONGEST_WINDOW, max(SHORTEST_WINDOW, WINDOW_BYTES.get(backend, 1 << 30) // numbers)
    )
    slots = 256 if backend == "cpu" else MOST_SLOTS
    if model.recurrence is not None:
        slots = default_batch_slots(model.recurrence.units, backend)
    kernel: str = compute.kernel
    if kernel == "auto":
        kernel = choose_kernel(model.recurrence, backend, compute.state_precision)
    chosen: dict[str, Any] = {
        "kernel": kernel,
        "batch_slots": compute.batch_slots or min(slots, max(8, window // STEPS)),
        "window_tokens": compute.window_tokens or window * devices,
    }
    return ResolvedCompute(
        **{each.name: getattr(compute, each.name) for each in fields(compute)} | chosen
    )


def choose_kernel(recurrence: Recurrence | None, backend: str, precision: str = "float32") -> str:
    """Returns the kernel of a recurrence's sparse products in a `state_precision`; "auto" if it has
    none.

    All matrices use one kernel. If the best kernels differ, this is dense as long as the sparse
    matrices, stored dense, have no more entries than the dense ones have already.
    """
    if recurrence is None or not recurrence.matrices:
        return "auto"
    wanted, in_full, if_dense = "dense", 0, 0
    for size, nonzeros, _ in recurrence.matrices:
        kernel = sparse.choose_kernel(size, nonzeros, backend, precision)
        if kernel == "dense":
            in_full += nonzeros
        else:
            wanted = kernel if wanted == "dense" else wanted
            if_dense += size * size
    return wanted if if_dense > in_full else "dense"
