"""How a run is computed: settings that change no result beyond rounding, and what a device chooses for them."""

import dataclasses
from typing import Any, Literal, Protocol

import jax
import jax.extend.backend

from esnlm.errors import InputError
from esnlm.settings import Count, settings

# Memory for precomputed features: enough to fill the slots, and little beside a readout with its optimizer.
WINDOW_BYTES = {"cpu": 1 << 30, "gpu": 8 << 30, "tpu": 2 << 30}
SHORTEST_WINDOW, LONGEST_WINDOW = 1 << 8, 1 << 16
STEPS = 128  # time steps of a window, at least: as many as long sentences have, or most slots would wait for the longest one


@settings
class ComputeConfig:
    """How a run is computed. None of these changes a result beyond rounding. A null is chosen for the device and recorded."""

    # Of the matrix products of what is trained: float32, tf32 or bf16. A reservoir is computed in float32.
    precision: Literal["float32", "tf32", "bf16"] = "float32"
    # How the reservoir's sparse product is computed; fused, for GPUs only, is a whole time step; auto: chosen for the device.
    kernel: Literal["auto", "bcoo", "csr", "ell", "dense", "fused"] = "auto"
    # Of the states that W_rec reads; bf16 halves what a GPU moves.
    state_precision: Literal["float32", "bf16"] = "float32"
    batch_slots: Count | None = None  # B, sentences that run side by side where no gradient is taken; null: chosen
    window_tokens: Count | None = None  # tokens whose features exist at once, for updates or to evaluate; null: chosen
    chunk_tokens: Count = 1024  # C, tokens whose logits exist at once
    # The devices as {data: D, vocabulary: M} (docs/many_devices.md); null: all, along vocabulary.
    mesh: dict[Literal["data", "vocabulary"], Count] | None = None


# For functions whose caller may have set jax_enable_x64 for computations of its own. A run computes in float32, whose
# arrays would meet others of float64 then; with this, it computes the same bits as without jax_enable_x64.
in_float32 = jax.enable_x64(False)


def backend() -> str:
    """Returns the kind of device that JAX computes on: cpu, gpu or tpu.

    Raises:
        InputError: JAX_PLATFORMS asks for a kind that is not here.
    """
    asked = jax.config.jax_platforms  # type: ignore[attr-defined]
    try:
        return jax.default_backend()
    except (RuntimeError, AssertionError) as error:  # JAX asserts that a CUDA device is there
        reason = str(error).partition(": ")[2].partition(" (set JAX_PLATFORMS")[0]  # without JAX's own advice
    jax.config.update("jax_platforms", None)
    try:
        there = ", ".join(sorted({device.platform for device in jax.devices()} | {"cpu"}))
    finally:
        jax.extend.backend.clear_backends()  # or JAX would go on with what it found without being asked for it
        jax.config.update("jax_platforms", asked)
    raise InputError(
        f"JAX_PLATFORMS is {asked}: no such device can be used{f' ({reason})' if reason else ''}; there are: {there}"
    )


class DeviceChoices(Protocol):
    """What a model's configuration (models/base.py) says of the devices that it runs on."""

    @property
    def ahead_size(self) -> int: ...

    def kernel(self, backend: str) -> str: ...

    def batch_slots(self, backend: str) -> int: ...


def choose_compute(compute: ComputeConfig, model: DeviceChoices, backend: str, devices: int = 1) -> ComputeConfig:
    """Returns the compute settings with every null and `auto` decided for a backend. The mesh stays as it is asked for.

    Args:
        compute: what is asked for.
        model: what it says of the devices that it runs on.
        backend: cpu, gpu or tpu.
        devices: that share the features of a window.

    Raises:
        InputError: the backend cannot do what is asked for.
    """
    if compute.precision == "tf32" and backend != "gpu":
        raise InputError(f"compute.precision is tf32: a {backend.upper()} has no such products; choose float32 or bf16")
    if compute.kernel == "fused" and backend != "gpu":
        raise InputError(f"compute.kernel is fused: it is for GPUs, and JAX computes on a {backend} here; choose auto")
    window = min(LONGEST_WINDOW, max(SHORTEST_WINDOW, WINDOW_BYTES.get(backend, 1 << 30) // (4 * model.ahead_size)))
    chosen: dict[str, Any] = {
        "kernel": model.kernel(backend) if compute.kernel == "auto" else compute.kernel,
        "batch_slots": compute.batch_slots or min(model.batch_slots(backend), max(8, window // STEPS)),
        "window_tokens": compute.window_tokens or window * devices,
    }
    return dataclasses.replace(compute, **chosen)
