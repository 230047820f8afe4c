"""summary.json: what a run came to, and what it came from."""

import hashlib
import json
import math
import os
import platform
from dataclasses import dataclass
from importlib import metadata

import jax
import numpy as np

from esnlm import config as configuration
from esnlm.config import Experiment
from esnlm.runs.atomic import write_atomically
from esnlm.runs.directory import RunDirectory
from esnlm.runs.metrics import plain
from esnlm.training.corpus import Corpus, fingerprints
from esnlm.training.state import State


@dataclass(frozen=True)
class Likelihood:
    """What a model gives a text: the sum of -log p over its predicted tokens, EOS included."""

    nats: float
    tokens: int  # predicted
    bytes: int  # UTF-8, of the sentences' text
    words: int

    @property
    def nll(self) -> float:
        """Nats per predicted token."""
        return self.nats / self.tokens

    @property
    def bits_per_byte(self) -> float:
        """Comparable across vocabularies."""
        return self.nats / math.log(2) / self.bytes

    @property
    def nats_per_word(self) -> float:
        """Comparable across vocabularies."""
        return self.nats / self.words


def has_diverged(train_nll: float, validation_nll: float | None, vocab_size: int) -> bool:
    """S2's rule [ours]: a train or validation NLL that is not finite, or above 10 ln V."""
    losses = [loss for loss in (train_nll, validation_nll) if loss is not None]
    return not all(math.isfinite(loss) and loss <= 10 * math.log(vocab_size) for loss in losses)


def perplexity(nll: float) -> float:
    """exp of an NLL in nats per token; inf where it is too large."""
    with np.errstate(over="ignore"):
        return float(np.exp(np.float64(nll)))


def summarize(experiment: Experiment, corpus: Corpus, model, state: State, validation: Likelihood | None) -> dict:
    """The values of summary.json; losses in nats per token."""
    # The plain mean of the last epoch's batch losses (S1).
    train_nll = state.epoch_loss / state.epoch_updates if state.epoch_updates else math.nan
    val_nll = validation.nll if validation else None
    counts = model.counts()
    stopped = state.skipped > 0 and experiment.training.on_nonfinite == "stop"
    diverged = stopped or has_diverged(train_nll, val_nll, corpus.tokenizer.vocab_size)
    return {
        "status": "diverged" if diverged else "finished",
        "step": state.step,
        "epochs": experiment.training.epochs,
        "tokens": state.tokens,
        "words": state.words,
        "skipped_updates": state.skipped,
        "train_nll": train_nll,
        "val_nll": val_nll,
        "val_bits_per_byte": validation.bits_per_byte if validation else None,
        "val_nats_per_word": validation.nats_per_word if validation else None,
        "perplexity": perplexity(val_nll) if validation else None,
        "trainable_params": counts.trainable,
        "total_params": counts.total,
        "total_entries": counts.entries,
        "tokens_per_second": state.tokens / state.seconds if state.seconds else None,
        "seconds": state.seconds,
        "precision": experiment.compute.precision,
        "seed": experiment.seed,
        "changes": state.changes,
        "versions": versions(),
        "device": describe_device(),
        "data_sha256": fingerprints(corpus),
        "config_sha256": hash_config(experiment),
    } | ({"regression": state.regression} if state.regression else {})


def write_summary(directory: RunDirectory, summary: dict) -> None:
    """Writes summary.json."""
    write_atomically(directory.summary, json.dumps(plain(summary), indent=1) + "\n")


def versions() -> dict[str, str]:
    """Of Python and of the packages that decide a number."""
    packages = ("esnlm", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy", "scipy", "tiktoken")
    return {"python": platform.python_version()} | {name: metadata.version(name) for name in packages}


def describe_device() -> dict[str, str | int]:
    """What the numbers were computed on."""
    device = jax.devices()[0]
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    )  # those that JAX may use
    return {"platform": device.platform, "kind": device.device_kind, "count": jax.device_count(), "cores": cores}


def hash_config(experiment: Experiment) -> str:
    """sha256 of the configuration, but for the name of the run directory."""
    tree = configuration.as_dict(experiment) | {"run": None}
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()
