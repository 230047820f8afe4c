"""What a run will need, before it is begun: parameters, memory, disk and time."""

import math
import os
import time
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

from esnlm.compute import backend, choose_compute
from esnlm.config import Experiment, TrainingConfig
from esnlm.ops.matmul import matmul
from esnlm.regression.base import Fitter
from esnlm.runs.console import clock
from esnlm.training import readout_regression
from esnlm.training.update import make_optimizer

# Updates of 32 sentences of real text have 33 or 36 padded sizes, measured at V = 50,257 and 8,192 (results/start_up.md).
SIZES, SECONDS_PER_SIZE = 35, 0.85


def show(experiment: Experiment) -> int:
    """Prints what an experiment needs and returns 0. Trains nothing and writes nothing.

    Raises:
        InputError: its data cannot be used.
    """
    training, model = experiment.training, experiment.model
    corpus = experiment.data.size()
    compute = choose_compute(experiment.compute, model, backend())
    assert compute.window_tokens is not None and compute.batch_slots is not None
    counts = model.expected_counts(corpus.vocab_size)
    if isinstance(training, Fitter):
        readout = {"readout": training.description}
        memory = readout_regression.memory(training, model.feature_size, corpus.vocab_size, model.readout_rank)
        fit = _Fit(training.kind, memory, 1, 4 * counts.trainable)
    else:
        updates = training.epochs * math.ceil(corpus.sentences / training.batch_size)
        fit = _gradient_fit(training, counts.trainable)
        readout = {"updates": f"{updates:,} of {training.batch_size} sentences, by {fit.name}"}
    frozen = model.frozen_bytes(corpus.vocab_size)
    features = 4 * model.feature_size * (compute.window_tokens + compute.batch_slots)
    logits = 4 * 2 * corpus.vocab_size * compute.chunk_tokens
    seconds = flops(experiment) / matmul_speed(compute.precision)
    lines = {
        "trained parameters": f"{counts.trainable:,}",
        "all parameters, nonzero": f"{counts.total:,}",
        "all entries, zeros too": f"{counts.entries:,}",
        **readout,
        "predicted tokens": f"{training.epochs * corpus.predicted_tokens:,} in {training.epochs} epoch(s)",
        "memory": f"{_gigabytes(frozen + fit.memory + features + logits)}: frozen {_gigabytes(frozen)}, trained with"
        f" {fit.name} {_gigabytes(fit.memory)}, features {_gigabytes(features)}, logits {_gigabytes(logits)}",
        "disk": f"{_gigabytes(frozen + fit.checkpoints * fit.checkpoint_size)}: {fit.checkpoints} checkpoints of"
        f" {_gigabytes(fit.checkpoint_size)}, frozen {_gigabytes(frozen)}",
        "time at best": f"{clock(seconds)} on this {jax.default_backend()}, by the speed of its matrix products alone;"
        " expect half as much again",
        "compilation": _compilation(experiment),
        "chosen for this device": f"kernel {compute.kernel}, batch slots {compute.batch_slots}, window of"
        f" {compute.window_tokens:,} tokens",
    }
    table = Table(box=None, pad_edge=False, show_header=False)
    for line in lines.items():
        table.add_row(*line)
    Console(width=None if Console().is_terminal else 150, highlight=False).print(table)
    return 0


def _compilation(experiment: Experiment) -> str:
    """Returns what the compiler takes before the first update, and where its programs are kept for the next start."""
    if isinstance(experiment.training, Fitter):
        needed = "a few seconds"
    elif experiment.model.features_are_frozen:
        needed = f"about {SECONDS_PER_SIZE * SIZES:.0f} s of processor time before the first update"
    else:
        needed = "a few seconds for each new size of a batch"
    folder = os.environ.get("JAX_COMPILATION_CACHE_DIR")  # esnlm/compilation_cache.py has chosen it
    return f"{needed}; {f'kept in {folder} for the next start' if folder else 'not kept for the next start'}"


def flops(experiment: Experiment) -> int:
    """Returns the floating-point operations of the whole training, counting matrix products only.

    Raises:
        InputError: its data cannot be used.
    """
    training, model, corpus = experiment.training, experiment.model, experiment.data.size()
    tokens = training.epochs * corpus.predicted_tokens
    if isinstance(training, Fitter):
        return training.flops(model.feature_size, corpus.vocab_size, tokens)
    return tokens * model.flops_per_token(corpus.vocab_size)


@cache
def matmul_speed(precision: str) -> float:
    """Returns the floating-point operations per second of one matrix product, the best of five."""
    x = jnp.asarray(np.random.default_rng(0).normal(size=(1024, 1024)), jnp.float32)
    multiply = jax.jit(lambda x: matmul(x, x, (1, 1), precision))
    multiply(x).block_until_ready()
    times = []
    for _ in range(5):
        began = time.perf_counter()
        multiply(x).block_until_ready()
        times.append(time.perf_counter() - began)
    return 2 * 1024**3 / min(times)


class _Fit(NamedTuple):
    """What it takes to train the parameters in one way."""

    name: str
    memory: int  # bytes
    checkpoints: int  # that exist at once
    checkpoint_size: int  # bytes


def _gradient_fit(training: TrainingConfig, trainable: int) -> _Fit:
    """Returns the needs of an optimizer: parameters, gradient and its state; a checkpoint holds all but the gradient."""
    name = {"adamw": "AdamW", "sgd": "SGD"}[training.optimizer]
    params = jax.ShapeDtypeStruct((trainable,), jnp.float32)
    state = jax.tree.leaves(jax.eval_shape(make_optimizer(training, updates=1).init, params))
    saved = 4 * (trainable + sum(array.size for array in state if array.ndim))
    checkpoints = training.keep_checkpoints + len(training.checkpoint_words) + 1
    return _Fit(name, saved + 4 * trainable, checkpoints, saved)


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.2f} GB"
