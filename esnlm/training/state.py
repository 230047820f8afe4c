"""The state of a training, with saving and restoring."""

import dataclasses
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import optax
from flax import serialization

from esnlm.base import processes
from esnlm.base.console import say, warn, working
from esnlm.base.errors import InputError
from esnlm.data.store import TokenStore
from esnlm.machine.memory import memory_use
from esnlm.machine.placement import Placement
from esnlm.models.base import LanguageModel, ModelConfig
from esnlm.readout.base import Accumulators
from esnlm.runs import checkpoint
from esnlm.runs.directory import RunDirectory
from esnlm.training.config import TrainingConfig
from esnlm.training.optimizer import Averaged, evaluated
from esnlm.training.parent import with_moments


@dataclass(kw_only=True)
class State:
    """Everything that changes during training. Every checkpoint contains all of it."""

    params: dict[str, Any]  # the trained arrays
    optimizer: Any = ()  # optax's state; empty for a regression
    # of a regression under way; empty otherwise
    accumulators: Accumulators = field(default_factory=dict)
    # state of the lanes of documents before the window or update to come; None: there are none
    carried: Any = None
    placement: Placement | None = None  # of params and optimizer; None: as in a checkpoint

    # The counters, saved in the metadata of a checkpoint:
    step: int = 0  # updates done
    tokens: int = 0  # predicted tokens seen
    words: int = 0  # words of training text seen
    seconds: float = 0.0  # spent in training, over all processes
    peak_memory_bytes: int = 0  # at the last checkpoint, over all processes
    train_nll_sum: float = 0.0  # the train NLL is this sum, in nats, ...
    # ... over this count: of the epoch's batch losses, or of a regression's predicted tokens
    train_nll_count: int = 0
    skipped: int = 0  # updates left out because they were not finite
    # batch losses since the last line of metrics
    unlogged: list[float] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)  # of the settings since the run was begun
    # devices of the training so far, in order
    devices: list[dict[str, Any]] = field(default_factory=list)
    # record of the readout's fit; empty before
    regression: dict[str, Any] = field(default_factory=dict)
    best_step: int | None = None  # step of the best validation so far, for training.stop_after
    best_val_nll: float | None = None  # its NLL in nats per token
    validations_since_best: int = 0

    @property
    def train_nll(self) -> float:
        """The mean train NLL so far; nan before the first."""
        return self.train_nll_sum / self.train_nll_count if self.train_nll_count else math.nan

    def note_validation(self, val_nll: float, margin: float) -> None:
        """Records a validation after `step`: a new best, if it is below the best so far by more
        than the margin."""
        best = math.inf if self.best_val_nll is None else self.best_val_nll
        if val_nll < best - margin:
            self.best_step, self.best_val_nll, self.validations_since_best = self.step, val_nll, 0
        else:  # also for NaN
            self.validations_since_best += 1

    def note_memory(self) -> None:
        """Records the peak memory so far."""
        self.peak_memory_bytes = max(self.peak_memory_bytes, memory_use().peak)

    def counters(self) -> dict[str, Any]:
        """Returns the counters by name, for the metadata of a checkpoint."""
        return {name: getattr(self, name) for name in _COUNTERS}

    @property
    def evaluated(self) -> dict[str, Any]:
        """The arrays for validation: their average if there is one (training/average.py)."""
        return evaluated(self.params, self.optimizer)


_ARRAYS = ("params", "optimizer", "accumulators", "carried", "placement")
_COUNTERS = [each.name for each in dataclasses.fields(State) if each.name not in _ARRAYS]


def counters_of(metadata: dict[str, Any]) -> dict[str, Any]:
    """Returns the counters in a checkpoint's metadata, as arguments of `State`."""
    return {name: metadata[name] for name in _COUNTERS if name in metadata}


@working("opening the model")
def open_model(
    config: ModelConfig,
    vocab_size: int,
    seed: int,
    directory: RunDirectory,
    text: TokenStore | None = None,
) -> LanguageModel:
    """Returns the model before the first update, with its frozen arrays from frozen/ if they were
    saved.

    Raises InputError if frozen/ is damaged or missing and the seed gives different arrays on this
    machine.
    """
    if (damage := checkpoint.verify(directory.frozen)) is None:
        return config.initialize(vocab_size, seed, checkpoint.restore(directory.frozen)[0])
    expected = (directory.manifest.read() or {}).get("frozen_sha256")  # None for a new run
    began = time.monotonic()
    arrays, record = config.initialize_frozen(vocab_size, seed, text)
    if arrays:
        say(f"frozen arrays initialized in {time.monotonic() - began:.1f} s")
        record["sha256"] = checkpoint.digest(arrays)
        if expected not in (None, record["sha256"]):
            raise InputError(
                f"{directory.frozen}: {damage}, and its seed gives another reservoir on this"
                " machine; restore it from a copy of the run"
            )
        if expected is not None:
            warn(
                f"{directory.frozen}: {damage}; the same reservoir was initialized again from its"
                " seed"
            )
        checkpoint.save(directory.frozen, arrays, record)
    return config.initialize(vocab_size, seed, arrays)


@working("opening the state")
def open_state(
    params: dict[str, Any],
    optimizer: optax.GradientTransformation,
    directory: RunDirectory,
    training: TrainingConfig,
    placement: Placement,
    moments: dict[str, Any] | None = None,
) -> State:
    """Returns the state of the newest intact checkpoint, or a new one from `params` and a parent's
    `moments`.

    Raises InputError if all checkpoints are damaged, or the disk is too full.
    """
    params = placement.place(params)
    fresh = optimizer.init(params)
    newest = restore_newest(directory.checkpoints)
    if newest is None:
        size = sum(array.nbytes for array in jax.tree.leaves((params, fresh)))
        checkpoint.check_free_space(directory.path, size * training.checkpoints_at_once)
        if moments is not None:
            fresh = with_moments(fresh, moments, str(directory.initial))
        return State(params=params, optimizer=placement.place(fresh), placement=placement)
    step, arrays, metadata = newest
    say(f"resuming at update {step}")
    counters = counters_of(metadata)
    if processes.writes():  # A kill may have cut the last pruning short.
        checkpoint.prune(
            directory.checkpoints, training.keep_checkpoints, counters.get("best_step")
        )
    average = {"average": arrays["average"]} if "average" in arrays else {}
    optimizer_state = placement.place(
        serialization.from_state_dict(fresh, arrays["optimizer"] | average)
    )
    params, carried = placement.place(arrays["params"]), arrays.get("carried")
    return State(
        params=params, optimizer=optimizer_state, carried=carried, placement=placement, **counters
    )


def restore_newest(*folders: Path) -> tuple[int, checkpoint.Arrays, dict[str, Any]] | None:
    """Returns the newest intact checkpoint of the first folder with any, as (step, arrays,
    metadata), or None.

    Process 0 chooses the checkpoint and every process reads all of it. Raises InputError if all are
    damaged.
    """
    for folder in folders:
        newest = checkpoint.restore_latest(folder, warn) if processes.writes() else None
        step = processes.agree(None if newest is None else newest[0])
        if step is not None:
            return newest or (step, *checkpoint.restore(folder / str(step)))
    return None


@working("saving the checkpoint")
def save_state(state: State, directory: RunDirectory, keep: int, permanent: bool) -> None:
    """Saves the state as checkpoints/STEP and deletes the checkpoints that are no longer needed."""
    params, optimizer = state.params, state.optimizer
    if state.placement is not None:
        params, optimizer = state.placement.fetch(params), state.placement.fetch(optimizer)
    arrays = {"params": params, "optimizer": serialization.to_state_dict(optimizer)}
    if state.carried is not None:
        arrays["carried"] = serialization.to_state_dict(state.carried)
    # `esnlm.load` looks for it here, since it does not open the optimizer's state.
    if isinstance(optimizer, Averaged):
        arrays["average"] = arrays["optimizer"].pop("average")
    with processes.written_by_first() as writes:
        if writes:
            metadata = state.counters() | {"permanent": permanent}
            checkpoint.save(directory.checkpoints / str(state.step), arrays, metadata)
            checkpoint.prune(directory.checkpoints, keep, state.best_step)
            if directory.upload is not None:
                directory.upload()


_AS_BEGUN = "as begun"


def note_changes(state: State, changes: Sequence[str]) -> None:
    """Records the update at which settings change from, or back to, those that the run was begun
    with."""
    if changes:
        state.changes.append(f"from update {state.step}: {'; '.join(changes)}")
    elif state.changes and not state.changes[-1].endswith(_AS_BEGUN):
        state.changes.append(f"from update {state.step}: {_AS_BEGUN}")


def note_device(state: State, device: dict[str, Any]) -> None:
    """Records the device from this update on, so that the summary shows if several devices
    contributed to its time."""
    last = state.devices[-1] if state.devices else {}
    if device["platform"] != "cpu":  # On an accelerator, ignore the host's cores.
        last = last | {"cores": device["cores"]}
    if last != device:
        state.devices.append(device)


def warn_of_damage(directory: RunDirectory, step: int) -> None:
    """Warns of damaged files in a run that ended at update `step`, even if training does not read
    them again."""
    for line in directory.manifest.find_damage(directory.metrics):
        warn(f"{line}; restore it from a copy of the run")
    again = f"delete {directory.summary.name} and give the same command"
    if (directory.manifest.read() or {}).get("frozen_sha256") and (
        problem := checkpoint.verify(directory.frozen)
    ):
        warn(f"{directory.frozen}: {problem}; to initialize it again, {again}")
    if checkpoint.latest_step(directory.checkpoints, warn) != step:
        warn(
            f"{directory.checkpoints}: update {step} is missing or damaged; to train to it again,"
            f" {again}"
        )
