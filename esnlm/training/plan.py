"""What a run needs, before it is begun: parameters, memory, disk and time."""

import math
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

from esnlm.config import Experiment, GrammarData
from esnlm.models import families
from esnlm.readout.cross_entropy import product
from esnlm.text import grammar
from esnlm.text.store import open_store
from esnlm.text.vocabulary import word_tokenizer
from esnlm.training.resolution import choose_compute
from esnlm.training.tracking import clock


def show(experiment: Experiment) -> int:
    """Prints what `experiment` needs and returns 0. Trains nothing and writes nothing.

    Raises:
        InputError: its token store cannot be used.
    """
    sentences, tokens, vocab_size = _size_of_corpus(experiment)
    compute = choose_compute(experiment, jax.default_backend())
    family = families.of(experiment.model)
    counts, epochs = family.expected_counts(experiment.model, vocab_size), experiment.training.epochs
    updates = epochs * math.ceil(sentences / experiment.training.batch_size)
    frozen, logits = family.frozen_bytes(experiment.model, vocab_size), 4 * 2 * vocab_size * compute.chunk_tokens
    states = 4 * experiment.model.feature_size * (compute.window_tokens + compute.lanes)
    kept = experiment.training.keep_checkpoints + len(experiment.training.checkpoint_words)
    seconds = epochs * tokens * family.flops_per_token(experiment.model, vocab_size) / _matmul_speed(compute.precision)
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in {
        "trained parameters": f"{counts.trainable:,}",
        "all parameters, nonzero": f"{counts.total:,}",
        "all entries, zeros too": f"{counts.entries:,}",
        "updates": f"{updates:,} of {experiment.training.batch_size} sentences",
        "predicted tokens": f"{epochs * tokens:,} in {epochs} epoch(s)",
        "memory": f"{_gigabytes(frozen + 16 * counts.trainable + states + logits)}: frozen {_gigabytes(frozen)}, trained with"
        f" AdamW {_gigabytes(16 * counts.trainable)}, features {_gigabytes(states)}, logits {_gigabytes(logits)}",
        "disk": f"{_gigabytes(frozen + (kept + 1) * 12 * counts.trainable)}: {kept + 1} checkpoints of"
        f" {_gigabytes(12 * counts.trainable)}, frozen {_gigabytes(frozen)}",
        "time at best": f"{clock(seconds)} on this {jax.default_backend()}, by the speed of its matrix products alone;"
        " expect half as much again",
        "chosen for this device": f"kernel {compute.kernel}, lanes {compute.lanes}, window of {compute.window_tokens:,} tokens",
    }.items():
        table.add_row(name, value)
    Console(width=None if Console().is_terminal else 150, highlight=False).print(table)
    return 0


def _size_of_corpus(experiment: Experiment) -> tuple[int, int, int]:
    """Sentences, predicted tokens and vocabulary size of the training text."""
    if isinstance(experiment.data, GrammarData):
        tokens = experiment.data.sentences * grammar.entropy().tokens_per_sentence
        return experiment.data.sentences, round(tokens), word_tokenizer(grammar.words()).vocab_size
    store = open_store(Path(experiment.data.train), verify=False)
    return len(store), len(store.tokens) - len(store), store.manifest["tokenizer"]["vocab_size"]


def _matmul_speed(precision: str) -> float:
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
