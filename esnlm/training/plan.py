"""The needs of a run before it begins: parameters, updates, memory and disk."""

import math
import os
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from esnlm.base.console import counted
from esnlm.base.errors import InputError
from esnlm.base.screen import Screen
from esnlm.data.corpus import check_usable
from esnlm.machine.compute import backend
from esnlm.machine.memory import device_memory, memory_use, total_memory
from esnlm.machine.mesh import describe
from esnlm.models.devices import choose_compute, mesh_of
from esnlm.readout.base import Fitter
from esnlm.training import readout_regression
from esnlm.training.config import Experiment, TrainingConfig
from esnlm.training.update import make_optimizer

FLOAT = 4  # bytes of a number
SWITCH = "ESNLM_MEMORY_CHECK"  # "off": try a run even if it seems not to fit
ONE_DEVICE: Mapping[str, int] = {"data": 1, "vocabulary": 1}

# Measured memory of a CPU's process without its arrays (results/performance.md): compiled programs,
# and freed memory kept by the allocator. It grows with the temporaries up to a maximum, and is
# larger if gradients go through time.
AHEAD, MOST_AHEAD, THROUGH_TIME, MOST_THROUGH_TIME = (
    600_000_000,
    700_000_000,
    500_000_000,
    1_100_000_000,
)


def show(experiment: Experiment) -> int:
    """Prints the needs of an experiment and returns 0. It trains nothing and writes no files.

    Raises InputError if its data cannot be used.
    """
    training, model, corpus = experiment.training, experiment.model, experiment.data.size()
    if (stores := experiment.data.prepared_stores()) is not None:
        check_usable(*stores, model.longest)
    platform, mesh = backend(), describe(mesh_of(model, experiment.compute))
    compute = choose_compute(experiment.compute, model, platform, math.prod(mesh.values()))
    counts, needed = model.expected_counts(corpus.vocab_size), memory(experiment, platform, mesh)
    if isinstance(training, Fitter):
        readout, named = {"readout": training.description}, training.kind
    else:
        named = {"adamw": "AdamW", "sgd": "SGD"}[training.optimizer]
        updates, piece = count_updates(experiment, *corpus[:2]), experiment.data.document_piece
        of = "sentences" if piece is None else f"pieces of {piece} tokens"
        readout = {"updates": f"{updates:,} of {training.batch_size} {of}, by {named}"}
    parts = {
        f"trained with {named}" if name == "trained" else name: size
        for name, size in needed._asdict().items()
    }
    said = "at least"
    # The activations of a transformer or a regression are not estimated.
    if platform == "cpu" and isinstance(training, TrainingConfig) and model.longest is None:
        said, parts = "about", parts | _of_process(experiment, corpus.vocab_size)
    listed = ", ".join(f"{name} {_bytes(size)}" for name, size in parts.items() if size)
    lines = {
        "trained parameters": f"{counts.trainable:,}",
        "all parameters, nonzero": f"{counts.total:,}",
        "all entries, zeros too": f"{counts.entries:,}",
        **readout,
        "predicted tokens": (
            f"{training.epochs * corpus.predicted_tokens:,} in {counted(training.epochs, 'epoch')}"
        ),
        f"memory{'' if mesh == ONE_DEVICE else ' of each device'}": (
            f"{said} {_bytes(sum(parts.values()))}: {listed}"
        ),
        "disk": _disk(experiment),
        "chosen for this device": (
            f"kernel {compute.kernel}, batch slots {compute.batch_slots},"
            f" window of {compute.window_tokens:,} tokens"
        ),
    }
    if isinstance(training, Fitter) and platform != "cpu":
        on_host = readout_regression.memory(
            training, model.feature_size, corpus.vocab_size, model.linear_readout.rank
        )
        lines["memory of the host"] = f"{_bytes(on_host)}: {training.kind}"
    Screen().table([], list(lines.items()), align="l")
    return 0


# ---- memory and disk ----


class Memory(NamedTuple):
    """Minimum bytes on a device at one time, without compiled programs, logits and temporaries."""

    frozen: int
    # with optimizer state and gradient; for a regression its sums on a CPU, else its readout
    trained: int
    features: int  # features computed ahead of the updates


def memory(
    experiment: Experiment,
    platform: str,
    mesh: Mapping[str, int] = ONE_DEVICE,
    vocab_size: int | None = None,
) -> Memory:
    """Returns the minimum memory of an experiment on each device of a mesh."""
    training, model, vocab_size = (
        experiment.training,
        experiment.model,
        vocab_size or experiment.data.size().vocab_size,
    )
    devices = math.prod(mesh.values())
    compute = choose_compute(experiment.compute, model, platform, devices)
    if not isinstance(training, Fitter):
        trained = optimizer_bytes(training, model.expected_counts(vocab_size).trainable // devices)[
            0
        ]
    elif platform == "cpu":
        trained = readout_regression.memory(
            training, model.feature_size, vocab_size, model.linear_readout.rank
        )
    else:
        trained = training.memory_on_device(model.feature_size, vocab_size)
    # With several devices features exist twice: sharded by sentence when computed, and by unit for
    # the updates.
    rows = (compute.window_tokens // devices + compute.batch_slots) * (1 if devices == 1 else 2)
    return Memory(
        frozen=model.frozen_bytes(vocab_size),
        trained=trained,
        features=FLOAT * model.ahead_size * rows,
    )


def _of_process(experiment: Experiment, vocab_size: int) -> dict[str, int]:
    """Returns the memory of a CPU's process apart from its arrays, by name."""
    # Logits, their gradient and temporaries: XLA's own analysis of an update gives 2.7 to 3.1 times
    # the logits.
    temporaries = 3 * FLOAT * experiment.compute.chunk_tokens * vocab_size
    if experiment.model.ahead_size:
        programs = min(MOST_AHEAD, AHEAD + 5 * temporaries)
    else:
        programs = min(MOST_THROUGH_TIME, THROUGH_TIME + 6 * temporaries)
    return {
        "Python and JAX": memory_use().peak,
        "compiled programs": programs,
        "logits": temporaries,
    }


def require_memory(experiment: Experiment, vocab_size: int) -> None:
    """Raises InputError if a training needs more memory than the device has, or a regression more
    than the machine has.

    For training by gradients it counts a minimum: trained arrays with gradient and optimizer state,
    frozen arrays, and buffers of precomputed features. All memory of the device counts as free, or
    on a CPU all memory that this process may use. So a rejected run cannot fit, and an accepted run
    may still run out of memory.
    """
    if os.environ.get(SWITCH) == "off":
        return
    training, model = experiment.training, experiment.model
    where, there, advice = "this machine", total_memory(), "a smaller model"
    if isinstance(training, Fitter):
        fit = readout_regression.memory(
            training, model.feature_size, vocab_size, model.linear_readout.rank
        )
        parts = {f"training.kind {training.kind}": fit}
        advice = (
            "a smaller model.reservoir.state_size or training.held_out_tokens, training.kind"
            " gradient"
        )
    else:
        platform, mesh = backend(), describe(mesh_of(model, experiment.compute))
        planned = memory(experiment, platform, mesh, vocab_size)
        # The devices of a CPU, which are for tests, share one memory.
        together = (
            min(math.prod(mesh.values()), jax.local_device_count()) if platform == "cpu" else 1
        )
        named = {
            "trained arrays": planned.trained,
            "frozen arrays": planned.frozen,
            "features": planned.features,
        }
        parts = {name: together * size for name, size in named.items() if size}
        there = device_memory()
        if platform != "cpu":
            where = f"a device, this {jax.local_devices()[0].device_kind},"
        if max(parts, key=parts.__getitem__) == "features":
            advice = "a smaller compute.window_tokens"
    if (needed := sum(parts.values())) > there:
        of_it = ", ".join(f"{name} {size / 1e9:,.1f}" for name, size in parts.items())
        raise InputError(
            f"this run needs at least {needed / 1e9:,.1f} GB of memory ({of_it}) and {where} has"
            f" {there / 1e9:,.1f} GB; choose {advice}, or try it all the same with {SWITCH}=off"
        )


def optimizer_bytes(training: TrainingConfig, trained: int) -> tuple[int, int]:
    """Returns the bytes of `trained` entries with gradient and optimizer state, in memory and in a
    checkpoint."""
    params = jax.ShapeDtypeStruct((trained,), jnp.float32)
    state = jax.tree.leaves(jax.eval_shape(make_optimizer(training).init, params))
    saved = FLOAT * (trained + sum(array.size for array in state if array.ndim))
    return saved + FLOAT * trained, saved


def _disk(experiment: Experiment) -> str:
    training, model, corpus = experiment.training, experiment.model, experiment.data.size()
    frozen, trained = (
        model.frozen_bytes(corpus.vocab_size),
        model.expected_counts(corpus.vocab_size).trainable,
    )
    if isinstance(training, Fitter):
        # Sums, and at the end the readout. Old files are deleted after new ones are written.
        count, size = 2, training.sums_size(model.feature_size, corpus.vocab_size) + FLOAT * trained
    else:
        count, size = training.checkpoints_at_once, optimizer_bytes(training, trained)[1]
    return (
        f"{_bytes(frozen + count * size)}: {count} checkpoints of {_bytes(size)}, frozen"
        f" {_bytes(frozen)}"
    )


def _bytes(size: float) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"


# ---- updates ----


def count_updates(experiment: Experiment, sentences: int, predicted_tokens: int) -> int:
    """Returns the updates of a whole run; 0 for a regression."""
    if not isinstance(experiment.training, TrainingConfig):
        return 0
    return experiment.training.epochs * updates_per_epoch(experiment, sentences, predicted_tokens)


def updates_per_epoch(experiment: Experiment, sentences: int, predicted_tokens: int) -> int:
    """Returns the updates of one pass over the training text."""
    training, piece = experiment.training, experiment.data.document_piece
    assert isinstance(training, TrainingConfig)
    if piece is None:
        return math.ceil(sentences / training.batch_size)
    return math.ceil(math.ceil((sentences + predicted_tokens) / training.batch_size) / piece)
