"""The least time that a training can take on devices that need not be there, and the memory of each: `train.py --plan --on`.

Every stage takes as long as its bytes at the bandwidth of the main memory, or its products at the highest speed, whichever is
longer. Both are those of the data sheets (esnlm/devices.py). Nothing is measured. What is left out makes the real time longer:
starting kernels, reading data again, the logits where they are written to memory, and what devices send each other. A kernel
for a sparse W_rec that finds most states in a cache can be faster than the bound of states says.

    states     a dense W_rec: 2 N^2 operations a token, in float32, and W_rec read once for all batch slots;
               a sparse one: 4 bytes for each of its nonzeros a token, since a state is gathered for each; and the features
               written, 4 F bytes
    update     products of the readout forward and back (`ModelConfig.flops_per_token`) at the precision of the run, or the
               parameters and features read and the gradient written, 4 (2 P + C F) bytes; then the optimizer: with AdamW
               4 x 7 P bytes, since parameters, gradient and two moments are read, and all but the gradient written
    scoring    states, and 2 operations for each entry of the readout and token, or parameters and features read

All work is divided by the number of devices. Some of it is in fact repeated along `data`: scores are made of all predictions by
each of the D groups of devices, and so is the optimizer's step of arrays by token. The bounds of these are loose where D > 1. A
reservoir that several devices share (parallel/mesh.py) has these bounds too, since the exchange of its states is left out.
"""

from typing import NamedTuple

from esnlm.compute import ComputeConfig
from esnlm.config import TrainingConfig
from esnlm.devices import Device
from esnlm.models.base import ModelConfig

FLOAT = 4  # bytes of a number


class Bound(NamedTuple):
    """Seconds, at least."""

    state: float  # to compute the features of one token before the updates; 0 where they are part of an update
    update: float
    scored: float  # to score one token


def bound_times(
    model: ModelConfig,
    compute: ComputeConfig,
    training: TrainingConfig,
    vocab_size: int,
    tokens: float,
    device: Device,
    devices: int = 1,
) -> Bound:
    """Returns the least times of a training by gradients.

    Args:
        model: the model's settings.
        compute: chosen for such a device.
        training: its optimizer decides the bytes of a step.
        vocab_size: V.
        tokens: C, the predictions of an update.
        device: one of them.
        devices: that share the work.
    """
    assert compute.batch_slots is not None, "choose_compute decides it"
    speed, float32, features = device.flops[compute.precision], device.flops["float32"], model.ahead_size

    def seconds(size: float, flops: float, speed: float) -> float:
        return max(FLOAT * size / device.bandwidth, flops / speed) / devices

    trained = model.expected_counts(vocab_size).trainable
    nonzeros, entries = model.recurrent_entries if model.trains_ahead else (0, 0)
    state = 0.0
    if model.trains_ahead:
        if compute.kernel == "dense":
            state = seconds(features + entries / compute.batch_slots, 2 * entries, float32)
        else:
            state = seconds(features + nonzeros, 2 * nonzeros, float32)
    flops = model.flops_per_token(vocab_size) - 2 * nonzeros  # of what is trained
    products = seconds(2 * trained + tokens * features, tokens * flops, speed)
    step = seconds(optimizer_arrays(training) * trained, 0, speed)

    if model.features_are_frozen:
        rank = model.readout_rank
        forward = 2 * (features * vocab_size if rank is None else rank * (features + vocab_size))
    else:
        forward = flops // 3  # Two thirds are the way back.
    rows = compute.chunk_tokens
    scored = state + seconds(trained + rows * features, rows * forward, speed) / rows
    return Bound(state, products + step, scored)


def optimizer_arrays(training: TrainingConfig) -> int:
    """Returns how many arrays as large as the parameters a step reads and writes."""
    moments = {"adamw": 2, "sgd": 1}[training.optimizer]
    averages = 0 if training.ema is None else 1
    return 1 + 2 * (1 + moments + averages)  # The gradient is read; the rest is read and written.
