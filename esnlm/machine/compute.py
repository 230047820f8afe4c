"""Settings of the computation, which change no result beyond rounding, and the kind of device."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from typing import Literal, NamedTuple, TypeVar

import jax

from esnlm.base import processes
from esnlm.base.errors import InputError
from esnlm.base.settings import Count, settings
from esnlm.machine.host import available_cores, usable_cores

T = TypeVar("T")

# On a CPU the states should stay in the cache while W_rec streams past them. Fastest per slot in
# measurements up to N = 65,536.
CPU_CACHE = 16 << 20  # bytes
# On a GPU states are gathered from its second-level cache, 40 MB on an A100 and 50 MB on an H100.
GPU_CACHE = 32 << 20  # bytes
# maximum for each core: more slots idle longer at the end of a window (also measured)
CPU_SLOTS = 48
MOST_SLOTS = 4096  # on a GPU or TPU


@settings
class ComputeConfig:
    """How a run is computed. No setting changes a result beyond rounding; a null is chosen."""

    # Precision of the trained arrays' matrix products: float32, tf32 or bf16. A reservoir is
    # computed in float32.
    precision: Literal["float32", "tf32", "bf16"] = "float32"
    # Kernel of the reservoir's sparse product; fused is for GPUs; auto: chosen for the device.
    kernel: Literal["auto", "bcoo", "csr", "dense", "fused"] = "auto"
    # Precision of W_rec's product: bf16 rounds the states; with the kernel dense, tf32 and bf16
    # round both factors.
    state_precision: Literal["float32", "tf32", "bf16"] = "float32"
    # B, parallel streams of a recurrence without a gradient, not the batch of an update
    # (training.batch_size); null: chosen
    batch_slots: Count | None = None
    # maximum number of tokens whose features are in memory at once; null: chosen
    window_tokens: Count | None = None
    chunk_tokens: Count = 1024  # C, tokens whose logits exist at once
    # The devices as {data: D, vocabulary: M} (docs/machines.md); null: all, along vocabulary.
    mesh: dict[Literal["data", "vocabulary"], Count] | None = None


@settings
class ResolvedCompute(ComputeConfig):
    """How a run is computed on the available devices, with every null but `mesh` chosen."""

    batch_slots: Count = field(kw_only=True)
    window_tokens: Count = field(kw_only=True)


# For functions whose caller may have set jax_enable_x64. A run computes in float32, and with this
# its arrays never mix with float64 ones: it computes the same bits as without jax_enable_x64.
in_float32 = jax.enable_x64(False)


def backend() -> str:
    """Returns the kind of device that JAX computes on: cpu, gpu or tpu.

    Raises:
        InputError: JAX_PLATFORMS names a kind that this machine lacks.
    """
    try:
        return jax.default_backend()
    except (RuntimeError, AssertionError) as error:  # JAX asserts that a CUDA device is there
        platforms = jax.config.jax_platforms  # type: ignore[attr-defined]
        # without JAX's own advice
        reason = str(error).partition(": ")[2].partition(" (set JAX_PLATFORMS")[0]
        reason = f" ({reason})" if reason else ""
        raise InputError(
            f"JAX_PLATFORMS is {platforms}: no such device is available{reason}"
        ) from None


def run_at_once(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Calls functions that dispatch programs to one device, and returns their results in order.

    Each function has a thread of its own: a CPU device runs the programs of one thread one after
    another, but those of several threads at the same time.
    """
    if len(calls) == 1:
        return [calls[0]()]

    with ThreadPoolExecutor(len(calls)) as threads:
        # JAX's settings hold for one thread
        return list(threads.map(lambda call: in_float32(call)(), calls))


def describe_device() -> dict[str, str | int]:
    """Returns the device of the computation; the cores are those that JAX may use."""
    device = jax.devices()[0]
    description = {
        "platform": device.platform,
        "kind": device.device_kind,
        "count": jax.device_count(),
        "cores": available_cores(),
    }
    if processes.count() > 1:
        description["processes"] = processes.count()
    return description


class SparseMatrix(NamedTuple):
    """The shape of a frozen (size, size) matrix that multiplies a state at each time step."""

    size: int
    nonzeros: int
    copies: int = 1  # number of such matrices


class Recurrence(NamedTuple):
    """The properties of a frozen recurrence that decide how a device computes it fastest."""

    units: int  # size of one slot's state, which should stay in a CPU's cache
    matrices: tuple[SparseMatrix, ...]


def default_batch_slots(units: int, backend: str) -> int:
    """Returns the number of slots: as many as the device's cache holds, and at least 8."""
    widest = {"cpu": CPU_CACHE, "gpu": GPU_CACHE}.get(backend, 1 << 28) // (4 * units)
    most = CPU_SLOTS * usable_cores() if backend == "cpu" else MOST_SLOTS
    return int(min(most, max(8, 1 << (max(widest, 1).bit_length() - 1))))
