"""How much of the device a training makes use of: the share of its highest speed (MFU), and memory.

    MFU = (tokens predicted a second) x (operations that the model needs for one) / (devices x operations a second)

It counts only operations that the model needs (Chowdhery et al. 2022, appendix B). It is left out on a device that is not in the
table, on a CPU, whose makers state no such speed, and for a regression, part of which runs on the host.
"""

import jax

from esnlm.config import ResolvedExperiment, TrainingConfig
from esnlm.memory import memory_use
from esnlm.models.devices import mesh_of
from esnlm.ops.matmul import PRECISIONS

# Operations a second in matrix products of float32, tf32 and bf16, in TFLOP/s without sparsity, by what JAX calls the device: NVIDIA's
# data sheets and Google Cloud's documentation. A float32 product of a TPU is six products of bf16 (JAX's precision "highest").
HOPPER, AMPERE = (66.9, 494.7, 989.4), (19.5, 156, 312)
TPUS = {"v4": 275, "v5 lite": 197, "v5e": 197, "v5": 459, "v5p": 459, "v6 lite": 918, "v6e": 918}
TFLOPS: dict[str, tuple[float, float, float]] = {
    "NVIDIA B200": (75, 1125, 2250),
    "NVIDIA H200": HOPPER,
    "NVIDIA H100 80GB HBM3": HOPPER,
    "NVIDIA H100 NVL": (60, 417.5, 835),
    "NVIDIA H100 PCIe": (51.2, 378, 756),
    "NVIDIA A100-SXM4-80GB": AMPERE,
    "NVIDIA A100 80GB PCIe": AMPERE,
    "NVIDIA A100-SXM4-40GB": AMPERE,
    "NVIDIA A100-PCIE-40GB": AMPERE,
    "NVIDIA L40S": (91.6, 183, 362),
    "NVIDIA L4": (30.3, 60, 121),
    "NVIDIA GeForce RTX 4090": (82.6, 82.6, 165.2),
} | {f"TPU {kind}": (bf16 / 6, bf16 / 3, bf16) for kind, bf16 in TPUS.items()}


class Usage:
    """Says what is made use of, for the console and for metrics.jsonl."""

    def __init__(self, flops_per_token: int | None, precision: str, devices: int = 1) -> None:
        speeds = TFLOPS.get(jax.devices()[0].device_kind)
        self.speed = None if speeds is None else 1e12 * speeds[PRECISIONS.index(precision)]
        self.flops_per_token, self.devices = flops_per_token, devices

    def mfu(self, tokens_per_second: float) -> float | None:
        """Returns the share of the devices' highest speed; None if it is not known."""
        if self.speed is None or self.flops_per_token is None:
            return None
        return tokens_per_second * self.flops_per_token / (self.devices * self.speed)

    def values(self, tokens_per_second: float) -> dict[str, float]:
        """Returns what a line of metrics.jsonl says of it."""
        share = self.mfu(tokens_per_second)
        return ({} if share is None else {"mfu": share}) | memory_use().values

    def describe(self, tokens_per_second: float) -> str:
        """Returns the end of a line on the console, such as "  MFU 41.2 %  memory 12.34 GB"."""
        share, memory = self.mfu(tokens_per_second), memory_use()
        said = "" if share is None else f"  MFU {100 * share:.1f} %"
        return f"{said}  memory {memory.peak / 1e9:.2f} GB"


def usage_of(experiment: ResolvedExperiment, vocab_size: int) -> Usage:
    """Returns the usage that a run reports."""
    model, mesh = experiment.model, mesh_of(experiment.model, experiment.compute)
    flops = model.flops_per_token(vocab_size) if isinstance(experiment.training, TrainingConfig) else None
    return Usage(flops, experiment.compute.precision, 1 if mesh is None else mesh.size)
