"""The trainer of an experiment, and the needs of a run before it begins."""

import os
from typing import cast

import jax

from esnlm.base.console import counted
from esnlm.base.errors import InputError
from esnlm.base.screen import Screen
from esnlm.data.corpus import Corpus, check_usable
from esnlm.data.sources import CorpusSize, StoreData
from esnlm.machine.memory import device_memory, memory_use, total_memory
from esnlm.models.devices import Machine, find_machine
from esnlm.readout.base import Fitter
from esnlm.training.config import Experiment, ResolvedExperiment, TrainingConfig, resolved
from esnlm.training.gradient import GradientTrainer
from esnlm.training.regression import RegressionTrainer
from esnlm.training.trainer import FLOAT, Needs, Trainer

# The text of a plan before there is a store: a million words of English with a vocabulary of 8,192,
# a quarter of the text of configs/studies/reading.yaml.
EXAMPLE = CorpusSize(sentences=72_000, predicted_tokens=1_550_000, vocab_size=8192)

SWITCH = "ESNLM_MEMORY_CHECK"  # "off": try a run even if it seems not to fit

# Measured memory of a CPU's process without its arrays (results/performance.md): compiled programs,
# and freed memory kept by the allocator. It grows with the temporaries up to a maximum, and is
# larger if gradients go through time.
PROGRAMS, MOST_PROGRAMS = 600_000_000, 700_000_000
PROGRAMS_THROUGH_TIME, MOST_PROGRAMS_THROUGH_TIME = 500_000_000, 1_100_000_000


def trainer_of(experiment: Experiment, size: CorpusSize) -> Trainer:
    """Returns the trainer of an experiment on a training text of some size."""
    model, fitter = experiment.model, experiment.fitter
    if fitter is not None:
        return RegressionTrainer(fitter, model, size)
    training = cast(TrainingConfig, experiment.training)
    return GradientTrainer(training, model, experiment.data.document_chunk, size)


def show(experiment: Experiment) -> int:
    """Prints the needs of an experiment and returns 0. It trains nothing and writes no files.

    Without the token store, it plans for EXAMPLE. Raises InputError if the data cannot be used.
    """
    training, model, data = experiment.training, experiment.model, experiment.data
    if isinstance(data, StoreData) and data.is_missing:
        size, text = EXAMPLE, f"an example of a million words: there is no {data.train} yet"
    else:
        size = data.size()
        text = f"{size.sentences:,} sentences"
        if (stores := data.prepared_stores()) is not None:
            check_usable(*stores, model.max_length)
    machine = find_machine(model, experiment.compute)
    needs = trainer_of(experiment, size).plan(machine)
    settings = resolved(experiment, machine)
    compute = settings.compute
    parts = memory(settings, needs, machine, size.vocab_size)
    bound = "at least"
    # The activations of a transformer or a regression are not estimated.
    if machine.backend == "cpu" and not needs.host_bytes and model.max_length is None:
        bound, parts = "about", parts | _process_memory(settings, size.vocab_size)
    listed = ", ".join(f"{name} {_spell(part)}" for name, part in parts.items())
    counts, frozen = model.expected_counts(size.vocab_size), model.frozen_bytes(size.vocab_size)
    disk, tokens = (
        frozen + needs.checkpoints_at_once * needs.checkpoint_bytes,
        training.epochs * size.predicted_tokens,
    )
    lines = {
        "text": text,
        "trained parameters": f"{counts.trainable:,}",
        "all parameters, nonzero": f"{counts.total:,}",
        "all entries, zeros too": f"{counts.entries:,}",
        **needs.work,
        "predicted tokens": f"{tokens:,} in {counted(training.epochs, 'epoch')}",
        f"memory{'' if machine.mesh is None else ' of each device'}": (
            f"{bound} {_spell(sum(parts.values()))}: {listed}"
        ),
        "disk": (
            f"{_spell(disk)}: {needs.checkpoints_at_once} checkpoints of"
            f" {_spell(needs.checkpoint_bytes)}, frozen {_spell(frozen)}"
        ),
        "chosen for this device": (
            f"kernel {compute.kernel}, batch slots {compute.batch_slots},"
            f" window of {compute.window_tokens:,} tokens"
        ),
    }
    if needs.host_bytes and machine.backend != "cpu":
        lines["memory of the host"] = f"{_spell(needs.host_bytes)}: {needs.method}"
    Screen().table([], list(lines.items()), align="l")
    return 0


def memory(
    settings: ResolvedExperiment, needs: Needs, machine: Machine, vocab_size: int
) -> dict[str, int]:
    """Returns the minimum bytes of a run on each device at one time, by name.

    It omits compiled programs, logits and temporaries.
    """
    model, compute, devices = settings.model, settings.compute, machine.devices
    # With several devices features exist twice: sharded by sentence when computed, and by unit for
    # the updates.
    copies = 1 if devices == 1 else 2
    rows = copies * (compute.window_tokens // devices + compute.batch_slots)
    parts = {
        "frozen": model.frozen_bytes(vocab_size),
        f"trained with {needs.method}": needs.trained_bytes,
        "features": FLOAT * model.precomputed_width * rows,
    }
    return {name: size for name, size in parts.items() if size}


def check_memory(
    settings: ResolvedExperiment, needs: Needs, machine: Machine, vocab_size: int
) -> None:
    """Raises InputError if a training needs more memory than there is.

    For training by gradients it counts a minimum: trained arrays with gradient and optimizer state,
    frozen arrays, and buffers of precomputed features. All memory of the device counts as free, or
    on a CPU all memory that this process may use. So a rejected run cannot fit, and an accepted run
    may still run out of memory.
    """
    if os.environ.get(SWITCH) == "off":
        return
    place, advice = "this machine", "a smaller model"
    if needs.host_bytes:
        available, parts = total_memory(), {f"training.kind {needs.method}": needs.host_bytes}
        advice = (
            "a smaller model.reservoir.state_size or training.held_out_tokens, training.kind"
            " gradient"
        )
    else:
        available, copies = device_memory(), 1
        if machine.backend == "cpu":  # Its devices, which are for tests, share one memory.
            copies = min(machine.devices, jax.local_device_count())
        else:
            place = f"a device, this {jax.local_devices()[0].device_kind},"
        minimum = memory(settings, needs, machine, vocab_size)
        parts = {name: copies * size for name, size in minimum.items()}
        if max(parts, key=parts.__getitem__) == "features":
            advice = "a smaller compute.window_tokens"
    needed = sum(parts.values())
    if needed > available:
        listed = ", ".join(f"{name} {size / 1e9:,.1f}" for name, size in parts.items())
        raise InputError(
            f"this run needs at least {needed / 1e9:,.1f} GB of memory ({listed}) and {place} has"
            f" {available / 1e9:,.1f} GB; choose {advice}, or try it all the same with {SWITCH}=off"
        )


def check_validation(training: TrainingConfig | Fitter, corpus: Corpus) -> None:
    """Raises InputError for settings that need validation text, if there is none."""
    for name in ("stop_after", "validate_every"):
        value = getattr(training, name, None)
        if value is not None and corpus.validation is None:
            raise InputError(
                f"training.{name} is {value}: there is no validation text; give data.validation"
            )


def _process_memory(settings: ResolvedExperiment, vocab_size: int) -> dict[str, int]:
    """Returns the memory of a CPU's process without its arrays, by name."""
    # Logits, their gradient and temporaries: XLA's own analysis of an update gives 2.7 to 3.1 times
    # the logits.
    temporaries = 3 * FLOAT * settings.compute.chunk_tokens * vocab_size
    programs = min(MOST_PROGRAMS_THROUGH_TIME, PROGRAMS_THROUGH_TIME + 6 * temporaries)
    if settings.model.precomputed_width:
        programs = min(MOST_PROGRAMS, PROGRAMS + 5 * temporaries)
    return {
        "Python and JAX": memory_use().peak,
        "compiled programs": programs,
        "logits": temporaries,
    }


def _spell(size: float) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"
