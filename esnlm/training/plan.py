"""What a run needs, before it is begun: parameters, memory, disk and time."""

import math
import time
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

from esnlm.compute import choose_compute
from esnlm.config import Experiment, GrammarData, StoreData
from esnlm.data import grammar
from esnlm.data.store import open_store
from esnlm.data.tokenizer import word_tokenizer
from esnlm.readout.cross_entropy import product
from esnlm.runs.console import clock
from esnlm.training import regression


def show(experiment: Experiment) -> int:
    """Prints what `experiment` needs and returns 0. Trains nothing and writes nothing.

    Raises:
        InputError: its token store cannot be used.
    """
    sentences, tokens, vocab_size = _size_of_corpus(experiment.data)
    compute = choose_compute(experiment.compute, experiment.model, jax.default_backend())
    training, is_regression = experiment.training, experiment.training.kind in regression.METHODS
    counts, epochs = experiment.model.expected_counts(vocab_size), training.epochs
    frozen, logits = experiment.model.frozen_bytes(vocab_size), 4 * 2 * vocab_size * compute.chunk_tokens
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
    _, tokens, vocab_size = _size_of_corpus(experiment.data)
    model, training = experiment.model, experiment.training
    if training.kind in regression.METHODS:
        return regression.METHODS[training.kind].flops(model.feature_size, vocab_size, training.epochs * tokens)
    return training.epochs * tokens * model.flops_per_token(vocab_size)


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
def _size_of_corpus(data: StoreData | GrammarData) -> tuple[int, int, int]:
    """Sentences, predicted tokens and vocabulary size of the training text."""
    if isinstance(data, GrammarData):
        tokens = data.sentences * grammar.entropy().tokens_per_sentence
        return data.sentences, round(tokens), word_tokenizer(grammar.words()).vocab_size
    store = open_store(Path(data.train), verify=False)
    return len(store), len(store.tokens) - len(store), store.manifest["tokenizer"]["vocab_size"]


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
