"""Accelerators by name: their memory, its bandwidth, and their highest speeds, as their makers state them.

A bound on a time and the MFU are worked out from these figures. Nothing here was measured. Speeds are those without
sparsity. A float32 product of a TPU is six products of bfloat16 (JAX's precision "highest").
"""

import math
from dataclasses import dataclass

from esnlm.errors import require


@dataclass(frozen=True)
class Device:
    """One device of a kind."""

    name: str
    title: str
    kinds: tuple[str, ...]  # what JAX calls it: `device_kind`
    backend: str  # the name by which esnlm chooses its settings: gpu or tpu
    memory: int  # bytes
    bandwidth: float  # bytes a second, of the main memory
    flops: dict[str, float]  # operations a second in matrix products, by precision (ops/matmul.py)
    source: str  # where its maker says so


def _gpu(
    name: str,
    kinds: tuple[str, ...],
    memory: float,
    bandwidth: float,
    tflops: tuple[float, float, float],
    source: str,
) -> Device:
    """Returns a GPU by its bytes, its TB/s and its TFLOP/s in float32, tf32 and bf16."""
    flops = dict(zip(("float32", "tf32", "bf16"), (1e12 * speed for speed in tflops), strict=True))
    return Device(name, kinds[0], kinds, "gpu", int(memory), 1e12 * bandwidth, flops, f"NVIDIA, {source}")


def _tpu(name: str, kinds: tuple[str, ...], gibibytes: int, bandwidth: float, tflops: float) -> Device:
    """Returns a chip by its GiB, its TB/s and its TFLOP/s in bf16."""
    bf16 = 1e12 * tflops
    flops = {"float32": bf16 / 6, "tf32": bf16 / 3, "bf16": bf16}
    title, source = f"TPU {name.removeprefix('tpu-')}", f"Google Cloud documentation, TPU {name.removeprefix('tpu-')}"
    return Device(name, title, kinds, "tpu", gibibytes << 30, 1e12 * bandwidth, flops, source)


# The memory and the bandwidth of the H100 SXM and of the A100 SXM 80GB are those that the devices report of themselves.
_H100, _A100 = "H100 Tensor Core GPU data sheet", "A100 Tensor Core GPU data sheet"
_HOPPER, _AMPERE = (66.9, 494.7, 989.4), (19.5, 156, 312)
DEVICES = {
    device.name: device
    for device in (
        _gpu("b200", ("NVIDIA B200",), 180e9, 7.7, (75, 1125, 2250), "HGX B200 data sheet, an eighth of eight GPUs"),
        _gpu("h200", ("NVIDIA H200",), 141e9, 4.8, _HOPPER, "H200 Tensor Core GPU data sheet"),
        _gpu("h100", ("NVIDIA H100 80GB HBM3",), 84_942_979_072, 3.35232, _HOPPER, _H100),
        _gpu("h100-nvl", ("NVIDIA H100 NVL",), 94e9, 3.9, (60, 417.5, 835), _H100),
        _gpu("h100-pcie", ("NVIDIA H100 PCIe",), 80e9, 2.0, (51.2, 378, 756), f"{_H100} of 2022"),
        _gpu("a100", ("NVIDIA A100-SXM4-80GB",), 85_100_068_864, 2.03904, _AMPERE, _A100),
        _gpu("a100-pcie", ("NVIDIA A100 80GB PCIe",), 80e9, 1.935, _AMPERE, _A100),
        _gpu("a100-40gb", ("NVIDIA A100-SXM4-40GB", "NVIDIA A100-PCIE-40GB"), 40e9, 1.555, _AMPERE, _A100),
        _gpu("l40s", ("NVIDIA L40S",), 48e9, 0.864, (91.6, 183, 362), "L40S data sheet"),
        _gpu("l4", ("NVIDIA L4",), 24e9, 0.3, (30.3, 60, 121), "L4 data sheet"),
        _gpu(
            *("rtx-4090", ("NVIDIA GeForce RTX 4090",), 24e9, 1.008, (82.6, 82.6, 165.2)),
            "Ada GPU architecture whitepaper, appendix A, with float32 sums",
        ),
        _tpu("tpu-v4", ("TPU v4",), 32, 1.228, 275),
        _tpu("tpu-v5e", ("TPU v5 lite", "TPU v5e"), 16, 0.819, 197),
        _tpu("tpu-v5p", ("TPU v5", "TPU v5p"), 95, 2.765, 459),
        _tpu("tpu-v6e", ("TPU v6 lite", "TPU v6e"), 32, 1.64, 918),
    )
}


def find_device(kind: str) -> Device | None:
    """Returns the device that JAX calls `kind`; None where it is not in the table."""
    return next((device for device in DEVICES.values() if kind in device.kinds), None)


def parse_devices(text: str) -> tuple[Device, int]:
    """Returns the device of `h100:8` or `tpu-v5e:4x4`, and how many there are: 8 and 16.

    Raises:
        InputError: there is no device of that name, or that many cannot be.
    """
    name, colon, shape = text.partition(":")
    require(name in DEVICES, f"--on {text}: no device of that name is known; choose {', '.join(DEVICES)}")
    sides = shape.split("x") if colon else ["1"]
    require(
        all(side.isascii() and side.isdigit() and 1 <= int(side) <= 1 << 16 for side in sides),
        f"--on {text}: after the colon stands how many there are, as in {name}:8 or {name}:4x4",
    )
    return DEVICES[name], math.prod(map(int, sides))


def mfu(tokens_per_second: float, flops_per_token: float, speed: float, devices: int = 1) -> float:
    """Returns the share of the highest speed of some devices that a training makes use of ("model FLOPs utilization").

    MFU = (tokens predicted a second) x (operations that the model needs for one) / (devices x operations a second).

    Only operations that the model needs are counted (`ModelConfig.flops_per_token`). Padding, or what is computed twice to
    save memory, does not make the share larger. The definition is that of Chowdhery et al. 2022, appendix B.
    """
    return tokens_per_second * flops_per_token / (devices * speed)
