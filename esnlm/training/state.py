"""The state of a training: what changes as it goes, and how it is saved and found again."""

import dataclasses
import math
import time
from dataclasses import dataclass

import jax
from flax import serialization

from esnlm.config import Experiment
from esnlm.models import echo_state
from esnlm.models.echo_state import EchoState
from esnlm.reservoir.weights import Reservoir
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
    unlogged: list[float] = dataclasses.field(default_factory=list)  # batch losses since the last line of metrics


def open_model(experiment: Experiment, corpus: Corpus, directory: RunDirectory) -> EchoState:
    """The model as initialised, with the reservoir of frozen/ where it was saved before."""
    vocab_size = corpus.tokenizer.vocab_size
    if directory.frozen.exists():
        arrays, _ = checkpoint.restore(directory.frozen)
        return echo_state.untrained(experiment.model, Reservoir.from_arrays(arrays, vocab_size), experiment.seed)
    began = time.monotonic()
    reservoir, record = echo_state.draw_reservoir(experiment.model, vocab_size, experiment.seed)
    say(f"reservoir of {reservoir.state_size:,} units drawn in {time.monotonic() - began:.1f} s")
    checkpoint.save(directory.frozen, reservoir.arrays(), record)
    return echo_state.untrained(experiment.model, reservoir, experiment.seed)


def open_state(experiment: Experiment, corpus: Corpus, model: EchoState, directory: RunDirectory) -> State:
    """The newest good checkpoint's state, or a fresh one.

    Raises:
        InputError: no checkpoint is good, or the disk is too full.
    """
    per_epoch = math.ceil(len(corpus.train) / experiment.training.batch_size)
    params = model.params
    fresh = make_optimizer(experiment.training, per_epoch * experiment.training.epochs).init(params)
    newest = checkpoint.restore_newest(directory.checkpoints, lambda line: say(f"warning: {line}"))
    if newest is None:
        size = 3 * sum(array.nbytes for array in params.values())  # the parameters and AdamW's two moments
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
