"""The state of a training: what changes as it goes, and how it is saved and found again."""

import dataclasses
import math
import time
from dataclasses import dataclass

import jax
from flax import serialization

from esnlm.config import Experiment
from esnlm.models import families
from esnlm.training import checkpoint
from esnlm.training.corpus import Corpus
from esnlm.training.run_directory import RunDirectory
from esnlm.training.tracking import say
from esnlm.training.update import make_optimizer


@dataclass
class State:
    """What changes as training goes, and is in every checkpoint."""

    params: dict
    optimizer: tuple
    step: int = 0  # updates done
    tokens: int = 0  # predicted tokens seen
    words: int = 0  # words of training text seen
    seconds: float = 0.0  # spent in training, over all its pieces
    epoch_loss: float = 0.0  # sum of the epoch's batch losses so far, nats
    epoch_updates: int = 0  # that it sums over
    skipped: int = 0  # updates left out because they were not finite
    unlogged: list[float] = dataclasses.field(default_factory=list)  # batch losses since the last line of metrics


def open_model(experiment: Experiment, corpus: Corpus, directory: RunDirectory):
    """The model as initialised, with what is frozen from frozen/ where it was saved before."""
    config, seed, vocab_size = experiment.model, experiment.seed, corpus.tokenizer.vocab_size
    family = families.of(config)
    if directory.frozen.exists():
        arrays, _ = checkpoint.restore(directory.frozen)
        return family.untrained(config, vocab_size, seed, arrays)
    began = time.monotonic()
    arrays, record = family.draw_frozen(config, vocab_size, seed)
    if arrays:
        say(f"reservoir of {len(arrays['leak']):,} units drawn in {time.monotonic() - began:.1f} s")
        checkpoint.save(directory.frozen, arrays, record)
    return family.untrained(config, vocab_size, seed, arrays)


def open_state(experiment: Experiment, corpus: Corpus, model, directory: RunDirectory) -> State:
    """The newest good checkpoint's state, or a fresh one.

    Raises:
        InputError: no checkpoint is good, or the disk is too full.
    """
    per_epoch = math.ceil(len(corpus.train) / experiment.training.batch_size)
    params = model.params
    fresh = make_optimizer(experiment.training, per_epoch * experiment.training.epochs).init(params)
    newest = checkpoint.restore_newest(directory.checkpoints, lambda line: say(f"warning: {line}"))
    if newest is None:
        size = 3 * sum(array.nbytes for array in jax.tree.leaves(params))  # the parameters and AdamW's two moments
        checkpoint.require_free_space(directory.path, size * (experiment.training.keep_checkpoints + 1))
        return State(params, fresh)
    step, arrays, metadata = newest
    say(f"resuming at update {step}")
    arrays = jax.tree.map(jax.numpy.asarray, arrays)
    counters = {name: metadata[name] for name in _COUNTERS}
    return State(arrays["params"], serialization.from_state_dict(fresh, arrays["optimizer"]), **counters)


def save_state(state: State, directory: RunDirectory, keep: int, permanent: bool) -> None:
    """Saves checkpoints/STEP and drops the older ones.

    Args:
        keep: how many of the newest to keep, beside the permanent ones.
        permanent: keep this one for good.
    """
    arrays = {"params": state.params, "optimizer": serialization.to_state_dict(state.optimizer)}
    metadata = {name: getattr(state, name) for name in _COUNTERS} | {"permanent": permanent}
    checkpoint.save(directory.checkpoints / str(state.step), arrays, metadata)
    checkpoint.prune(directory.checkpoints, keep)


_COUNTERS = [field.name for field in dataclasses.fields(State)][2:]
