"""What a run needs, before it is begun: parameters, memory, disk and time."""

import math
import time
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

from esnlm.compute import choose_compute
from esnlm.config import Experiment
from esnlm.models import families
from esnlm.readout.cross_entropy import product
from esnlm.runs.console import clock
from esnlm.training import regression


def show(experiment: Experiment) -> int:
    """Prints what `experiment` needs and returns 0. Trains nothing and writes nothing.

    Raises:
        InputError: its token store cannot be used.
    """
    sentences, tokens, vocab_size = experiment.data.size()
    compute = choose_compute(experiment.compute, experiment.model, jax.default_backend())
    family = families.of(experiment.model)
    training, is_regression = experiment.training, experiment.training.kind in regression.METHODS
    counts, epochs = family.expected_counts(experiment.model, vocab_size), training.epochs
    frozen, logits = family.frozen_bytes(experiment.model, vocab_size), 4 * 2 * vocab_size * compute.chunk_tokens
    states = 4 * experiment.model.feature_size * (compute.window_tokens + compute.batch_slots)
    if is_regression:
        how, trained, kept, size = training.kind, regression.memory(experiment, vocab_size), 1, 4 * counts.trainable
    else:
        how, trained, size = "AdamW", 16 * counts.trainable, 12 * counts.trainable
        kept = training.keep_checkpoints + len(training.checkpoint_words) + 1
    seconds = flops(experiment) / matmul_speed(compute.precision)
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in {
        "trained parameters": f"{counts.trainable:,}",
        "all parameters, nonzero": f"{counts.total:,}",
        "all entries, zeros too": f"{counts.entries:,}",
        **_updates(experiment, sentences),
        "predicted tokens": f"{epochs * tokens:,} in {epochs} epoch(s)",
        "memory": f"{_gigabytes(frozen + trained + states + logits)}: frozen {_gigabytes(frozen)}, trained with {how}"
        f" {_gigabytes(trained)}, features {_gigabytes(states)}, logits {_gigabytes(logits)}",
        "disk": f"{_gigabytes(frozen + kept * size)}: {kept} checkpoints of {_gigabytes(size)}, frozen {_gigabytes(frozen)}",
        "time at best": f"{clock(seconds)} on this {jax.default_backend()}, by the speed of its matrix products alone;"
        " expect half as much again",
        "chosen for this device": f"kernel {compute.kernel}, slots {compute.batch_slots}, window of {compute.window_tokens:,} tokens",
    }.items():
        table.add_row(name, value)
    Console(width=None if Console().is_terminal else 150, highlight=False).print(table)
    return 0


def flops(experiment: Experiment) -> int:
    """Of the whole training, in matrix products.

    Raises:
        InputError: its token store cannot be used.
    """
    _, tokens, vocab_size = experiment.data.size()
    model, training = experiment.model, experiment.training
    if training.kind in regression.METHODS:
        return regression.METHODS[training.kind].flops(model.feature_size, vocab_size, training.epochs * tokens)
    return training.epochs * tokens * families.of(model).flops_per_token(model, vocab_size)


def _updates(experiment: Experiment, sentences: int) -> dict[str, str]:
    training = experiment.training
    if training.kind in regression.METHODS:
        return {
            "readout": {"ridge": "in closed form", "rls": "by recursive least squares", "lms": "by least mean squares"}[
                training.kind
            ]
        }
    return {
        "updates": f"{training.epochs * math.ceil(sentences / training.batch_size):,} of {training.batch_size} sentences"
    }


@cache
def matmul_speed(precision: str) -> float:
    """Flops a second of one matrix product, the best of five."""
    x = jnp.asarray(np.random.default_rng(0).normal(size=(1024, 1024)), jnp.float32)
    multiply = jax.jit(lambda x: product(x, x, (1, 1), precision))
    multiply(x).block_until_ready()
    times = []
    for _ in range(5):
        began = time.perf_counter()
        multiply(x).block_until_ready()
        times.append(time.perf_counter() - began)
    return 2 * 1024**3 / min(times)


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.2f} GB"
