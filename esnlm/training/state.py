"""The state of a training: what changes as it goes, and how it is saved and found again."""

import dataclasses
import math
import time
from dataclasses import dataclass

import jax
from flax import serialization

from esnlm.config import Experiment
from esnlm.errors import InputError
from esnlm.runs import checkpoint
from esnlm.runs.console import say, warn
from esnlm.runs.directory import RunDirectory
from esnlm.training.corpus import Corpus
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
    metrics_sha256: str | None = None  # of the lines of metrics.jsonl so far
    changes: list[str] = dataclasses.field(default_factory=list)  # of the configuration since the run was begun
    regression: dict = dataclasses.field(
        default_factory=dict
    )  # how its readout was made, once it is (training/regression.py)


def open_model(experiment: Experiment, corpus: Corpus, directory: RunDirectory):
    """The model as initialised, with what is frozen from frozen/ where it was saved before.

    Raises:
        InputError: frozen/ is damaged or missing, and its seed does not give the same again.
    """
    config, seed, vocab_size = experiment.model, experiment.seed, corpus.tokenizer.vocab_size
    if (damage := checkpoint.verify(directory.frozen)) is None:
        arrays, _ = checkpoint.restore(directory.frozen)
        return config.initialize(vocab_size, seed, arrays)
    expected = (directory.read_manifest() or {}).get("frozen_sha256")  # of the one that the run was begun with
    began = time.monotonic()
    arrays, record = config.initialize_frozen(vocab_size, seed)
    if arrays:
        say(
            f"reservoir of {config.reservoir.layers * config.reservoir.state_size:,} units drawn in {time.monotonic() - began:.1f} s"
        )
        record["sha256"] = checkpoint.digest(arrays)
        if expected not in (None, record["sha256"]):
            raise InputError(
                f"{directory.frozen}: {damage}, and its seed gives another reservoir on this machine; restore it from a copy of the run"
            )
        if expected is not None:
            warn(f"{directory.frozen}: {damage}; the same reservoir was drawn again from its seed")
        checkpoint.save(directory.frozen, arrays, record)
    return config.initialize(vocab_size, seed, arrays)


def open_state(experiment: Experiment, corpus: Corpus, model, directory: RunDirectory) -> State:
    """The newest good checkpoint's state, or a fresh one.

    Raises:
        InputError: no checkpoint is good, or the disk is too full.
    """
    per_epoch = math.ceil(len(corpus.train) / experiment.training.batch_size)
    params = model.params
    fresh = make_optimizer(experiment.training, per_epoch * experiment.training.epochs, experiment.scaling).init(params)
    newest = checkpoint.restore_newest(directory.checkpoints, warn)
    if newest is None:
        size = 3 * sum(array.nbytes for array in jax.tree.leaves(params))  # the parameters and AdamW's two moments
        checkpoint.require_free_space(directory.path, size * (experiment.training.keep_checkpoints + 1))
        return State(params, fresh)
    step, arrays, metadata = newest
    say(f"resuming at update {step}")
    arrays = jax.tree.map(jax.numpy.asarray, arrays)
    checkpoint.prune(directory.checkpoints, experiment.training.keep_checkpoints)  # which a kill may have cut short
    counters = {name: metadata[name] for name in COUNTERS if name in metadata}
    return State(arrays["params"], serialization.from_state_dict(fresh, arrays["optimizer"]), **counters)


def warn_of_damage(directory: RunDirectory, step: int) -> None:
    """Tells what of a run that ended with update `step` is not as it was left, in files that training would not read again."""
    for line in directory.find_damage(directory.metrics):
        warn(f"{line}; restore it from a copy of the run")
    if (directory.read_manifest() or {}).get("frozen_sha256") and (problem := checkpoint.verify(directory.frozen)):
        warn(
            f"{directory.frozen}: {problem}; to draw it again, delete {directory.summary.name} and give the same command"
        )
    newest = checkpoint.newest_good(directory.checkpoints, warn)
    if newest != step:
        warn(
            f"{directory.checkpoints}: update {step} is missing or damaged; to train to it again, delete {directory.summary.name}"
        )


def note_changes(state: State, changes: list[str]) -> None:
    """Remembers from which update on the configuration is not, or is again, the one that the run was begun with."""
    if changes:
        state.changes.append(f"from update {state.step}: {'; '.join(changes)}")
    elif state.changes and not state.changes[-1].endswith(_AS_BEGUN):
        state.changes.append(f"from update {state.step}: {_AS_BEGUN}")


def save_state(state: State, directory: RunDirectory, keep: int, permanent: bool) -> None:
    """Saves checkpoints/STEP and drops the older ones.

    Args:
        keep: how many of the newest to keep, beside the permanent ones.
        permanent: keep this one for good.
    """
    arrays = {"params": state.params, "optimizer": serialization.to_state_dict(state.optimizer)}
    metadata = {name: getattr(state, name) for name in COUNTERS} | {"permanent": permanent}
    checkpoint.save(directory.checkpoints / str(state.step), arrays, metadata)
    checkpoint.prune(directory.checkpoints, keep)


_AS_BEGUN = "as begun"
COUNTERS = [field.name for field in dataclasses.fields(State)][2:]
