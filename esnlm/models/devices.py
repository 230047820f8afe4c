"""The machine of a model: its devices, its arrays on them, and its compute settings."""

import math
from dataclasses import dataclass
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
from esnlm.machine.mesh import VOCABULARY, Placement, rows_on
from esnlm.models.base import READOUT_ARRAYS, ModelConfig
from esnlm.reservoir import sparse

# Memory for precomputed features: enough to fill the slots, and little beside a readout with its
# optimizer.
WINDOW_BYTES = {"cpu": 1 << 30, "gpu": 8 << 30, "tpu": 2 << 30}
SHORTEST_WINDOW, LONGEST_WINDOW = 1 << 8, 1 << 16
# minimum time steps of a window: with fewer, most slots would wait for the slot with the longest
# sentence
STEPS = 128


@dataclass(frozen=True)
class Machine:
    """The devices that compute a model."""

    backend: str  # cpu, gpu or tpu
    mesh: Mesh | None = None  # None: one device

    @property
    def devices(self) -> int:
        return 1 if self.mesh is None else self.mesh.size


def find_machine(model: ModelConfig, compute: ComputeConfig) -> Machine:
    """Returns the devices for a model, by default all devices that it can use.

    Raises:
        InputError: there are fewer devices than requested, or several are requested for a model
            that needs one device.
    """
    kind = backend()  # First, since it reports in one line if JAX finds no device.
    if model.token_arrays:
        return Machine(kind, meshes.make_mesh(compute.mesh))
    if math.prod((compute.mesh or {}).values()) > 1:
        raise InputError(
            f"compute.mesh asks for several devices: {model.title} runs on one device only; give"
            " null"
        )
    meshes.check_one_process(f"{model.title} runs on one device only")
    return Machine(kind)


def placement_of(model: ModelConfig, machine: Machine, vocab_size: int) -> Placement:
    """Returns the placement of a model's arrays on a machine."""
    mesh = machine.mesh
    if mesh is None:
        is_padded = model.readout_can_be_padded
        rows = rows_on(machine.backend, vocab_size) if is_padded else vocab_size
        return Placement(None, vocab_size, rows, READOUT_ARRAYS)
    rows = rows_on(machine.backend, vocab_size, mesh.shape[VOCABULARY])
    is_sharded_by_unit = model.feature_size % mesh.size == 0 and (
        model.features_are_frozen or not model.precomputed_width
    )
    by_unit = ("readout.b",) if is_sharded_by_unit else ()
    return Placement(mesh, vocab_size, rows, model.token_arrays, by_unit)


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
    settings: dict[str, Any] = dict(vars(compute))
    if compute.kernel == "auto":
        settings["kernel"] = choose_kernel(model.recurrence, backend, compute.state_precision)
    bytes_per_token = 4 * (model.precomputed_width or model.feature_size)
    tokens = WINDOW_BYTES.get(backend, 1 << 30) // bytes_per_token
    window = min(LONGEST_WINDOW, max(SHORTEST_WINDOW, tokens))
    slots = 256 if backend == "cpu" else MOST_SLOTS
    if model.recurrence is not None:
        slots = default_batch_slots(model.recurrence.units, backend)
    settings["batch_slots"] = compute.batch_slots or min(slots, max(8, window // STEPS))
    settings["window_tokens"] = compute.window_tokens or window * devices
    return ResolvedCompute(**settings)


def choose_kernel(recurrence: Recurrence | None, backend: str, precision: str = "float32") -> str:
    """Returns the kernel of a recurrence's sparse products; "auto" if it has none.

    All matrices use one kernel. If the best kernels differ, this is dense as long as the sparse
    matrices, stored dense, have no more entries than the dense ones have already.
    """
    if recurrence is None or not recurrence.matrices:
        return "auto"
    sparse_kernels, dense_entries, entries_if_dense = [], 0, 0
    for size, nonzeros, _ in recurrence.matrices:
        kernel = sparse.choose_kernel(size, nonzeros, backend, precision)
        if kernel == "dense":
            dense_entries += nonzeros
        else:
            sparse_kernels.append(kernel)
            entries_if_dense += size * size
    return sparse_kernels[0] if entries_if_dense > dense_entries else "dense"
