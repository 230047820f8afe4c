"""How much of the device a training makes use of: the share of its highest speed, and memory.

The MFU is left out where it would be a guess: on a device that esnlm/devices.py does not know, on a CPU, whose makers state no
such speed, and for a regression, part of which runs on the host. A speed that is measured here, as `--plan` does, would not
do in its place: it depends on what else the machine does at that moment.
"""

import jax

from esnlm.config import Experiment, TrainingConfig
from esnlm.devices import find_device, mfu
from esnlm.memory import memory_use


class Usage:
    """Says what is made use of, for the console and for metrics.jsonl.

    Args:
        flops_per_token: of the training, by `ModelConfig.flops_per_token`; None where there is no such figure.
        precision: of the products with trained matrices, whose highest speed counts.
        devices: that compute side by side.
    """

    def __init__(self, flops_per_token: int | None, precision: str, devices: int = 1) -> None:
        device = find_device(jax.devices()[0].device_kind)
        self.speed = device.flops[precision] if device else None
        self.flops_per_token, self.devices = flops_per_token, devices

    def mfu(self, tokens_per_second: float) -> float | None:
        """Returns the share of the devices' highest speed; None where it is not known."""
        if self.speed is None or self.flops_per_token is None:
            return None
        return mfu(tokens_per_second, self.flops_per_token, self.speed, self.devices)

    def values(self, tokens_per_second: float) -> dict[str, float]:
        """Returns what a line of metrics.jsonl says of it."""
        share = self.mfu(tokens_per_second)
        return ({} if share is None else {"mfu": share}) | memory_use().values

    def describe(self, tokens_per_second: float) -> str:
        """Returns the end of a line on the console, such as "  MFU 41.2 %  memory 12.34 GB"."""
        share, memory = self.mfu(tokens_per_second), memory_use()
        said = "" if share is None else f"  MFU {100 * share:.1f} %"
        return f"{said}  memory {memory.peak / 1e9:.2f} GB"


def usage_of(experiment: Experiment, vocab_size: int) -> Usage:
    """Returns what tells how much of its devices a run makes use of."""
    model, mesh = experiment.model, experiment.model.mesh(experiment.compute)
    flops = model.flops_per_token(vocab_size) if isinstance(experiment.training, TrainingConfig) else None
    return Usage(flops, experiment.compute.precision, 1 if mesh is None else mesh.size)
