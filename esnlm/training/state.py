"""The arrays and counters of a training: where they begin, and how they are saved and restored."""

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
from esnlm.base.console import info, spinner, warn
from esnlm.base.errors import InputError
from esnlm.data.corpus import Corpus
from esnlm.data.store import TokenStore
from esnlm.data.tokenizer import load_tokenizer
from esnlm.machine.memory import memory_use
from esnlm.machine.mesh import Placement
from esnlm.models.base import LanguageModel, ModelConfig
from esnlm.readout.base import Accumulators
from esnlm.runs import checkpoint
from esnlm.runs.directory import RunDirectory
from esnlm.training.config import ParentConfig
from esnlm.training.optimizer import Averaged
from esnlm.training.settings import open_parent

MOMENTS = (optax.ScaleByAdamState, optax.TraceState)  # states with moments of gradients
_AS_BEGUN = "as begun"


@dataclass(kw_only=True)
class TrainState:
    """Everything that changes during training. Every checkpoint contains all of it."""

    params: dict[str, Any]  # the trained arrays
    optimizer: Any = ()  # optax's state; empty for a regression
    # of a regression under way; empty otherwise
    accumulators: Accumulators = field(default_factory=dict)
    # state of the lanes of documents before the window or update to come; None: there are none
    carry: Any = None

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
        """Records a validation, which is a new best if it is lower by more than the margin."""
        best = math.inf if self.best_val_nll is None else self.best_val_nll
        if val_nll < best - margin:
            self.best_step, self.best_val_nll, self.validations_since_best = self.step, val_nll, 0
        else:  # also for NaN
            self.validations_since_best += 1

    def note_memory(self) -> None:
        """Records the peak memory so far."""
        self.peak_memory_bytes = max(self.peak_memory_bytes, memory_use().peak)

    def note_changes(self, changes: Sequence[str]) -> None:
        """Records the update at which settings change from, or back to, those of the beginning."""
        if changes:
            self.changes.append(f"from update {self.step}: {'; '.join(changes)}")
        elif self.changes and not self.changes[-1].endswith(_AS_BEGUN):
            self.changes.append(f"from update {self.step}: {_AS_BEGUN}")

    def note_device(self, device: dict[str, Any]) -> None:
        """Records the device from this update on, if it differs from the last one."""
        last = self.devices[-1] if self.devices else {}
        if device["platform"] != "cpu":  # On an accelerator, ignore the host's cores.
            last = last | {"cores": device["cores"]}
        if last != device:
            self.devices.append(device)

    def counters(self) -> dict[str, Any]:
        """Returns the counters by name, for the metadata of a checkpoint."""
        return {name: getattr(self, name) for name in _COUNTERS}


_ARRAYS = ("params", "optimizer", "accumulators", "carry")
_COUNTERS = [each.name for each in dataclasses.fields(TrainState) if each.name not in _ARRAYS]


def copy_parent(
    settings: ParentConfig, model: ModelConfig, corpus: Corpus, directory: RunDirectory
) -> None:
    """Copies a parent's arrays, if there is one, to frozen/ and initial/ of a new run directory.

    The frozen arrays are copied bit for bit. The trained arrays come from one checkpoint of the
    parent, not from its average. The parent may then be deleted.

    Raises InputError if the corpus has another tokenizer, or the parent is damaged.
    """
    if settings.run is None or directory.manifest_file.exists():
        return
    parent = open_parent(settings.run)
    corpus.train.check_tokenizer(load_tokenizer(parent.tokenizer))
    has_frozen = model.frozen_bytes(corpus.tokenizer.vocab_size) > 0
    if has_frozen and checkpoint.verify(directory.frozen) is not None:
        checkpoint.save(directory.frozen, *checkpoint.restore(parent.frozen))
    if checkpoint.verify(directory.initial) is not None:
        arrays, metadata = checkpoint.restore(parent.checkpoints / str(settings.step))
        names = ("params", "optimizer") if settings.keep_optimizer else ("params",)
        initial = {name: arrays[name] for name in names if name in arrays}
        checkpoint.save(directory.initial, initial, {"step": metadata["step"]})
    info(f"continuing from {parent.path}, update {settings.step}")


@spinner("opening the model")
def open_model(
    config: ModelConfig,
    vocab_size: int,
    seed: int,
    directory: RunDirectory,
    text: TokenStore | None = None,
) -> LanguageModel:
    """Returns the model before the first update, with the frozen arrays of frozen/ if it exists.

    Raises InputError if frozen/ is damaged or missing and the seed gives different arrays on this
    machine.
    """
    damage = checkpoint.verify(directory.frozen)
    if damage is None:
        return config.initialize(vocab_size, seed, checkpoint.restore(directory.frozen)[0])
    expected = (directory.manifest.read() or {}).get("frozen_sha256")  # None for a new run
    began = time.monotonic()
    arrays, record = config.initialize_frozen(vocab_size, seed, text)
    if arrays:
        info(f"frozen arrays initialized in {time.monotonic() - began:.1f} s")
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


def with_moments(fresh: optax.OptState, saved: dict[str, Any], where: str) -> optax.OptState:
    """Returns the state of an optimizer with the moments of a saved state.

    The rest of the saved state is ignored: the schedule counts updates from 0, and clipping and
    averaging may differ. Raises InputError if it is the state of another optimizer.
    """

    def restore(state: Any) -> Any:
        if not isinstance(state, MOMENTS):
            return state
        moments = _find_fields(saved, set(state._fields))
        if moments is None:
            raise InputError(
                f"{where}: no moments of this training.optimizer are saved; leave"
                " parent.keep_optimizer out"
            )
        return serialization.from_state_dict(state, moments)

    return jax.tree.map(restore, fresh, is_leaf=lambda state: isinstance(state, MOMENTS))


def _find_fields(tree: Any, fields: set[str]) -> dict[str, Any] | None:
    """Returns the first nested dict with exactly these keys; None if there is none."""
    if not isinstance(tree, dict):
        return None
    if tree.keys() == fields:
        return tree
    matches = (_find_fields(inner, fields) for inner in tree.values())
    return next((match for match in matches if match is not None), None)


def restore_newest(*folders: Path) -> tuple[checkpoint.Arrays, dict[str, Any]] | None:
    """Returns the arrays and counters of the newest intact checkpoint, or None.

    It is from the first folder that has one. Process 0 chooses it and every process reads all of
    it. Raises InputError if all are damaged.
    """
    for folder in folders:
        newest = checkpoint.restore_latest(folder, warn) if processes.is_rank0() else None
        step = processes.broadcast(None if newest is None else newest[0])
        if step is not None:
            info(f"resuming at update {step}")
            arrays, metadata = newest[1:] if newest else checkpoint.restore(folder / str(step))
            counters = {name: metadata[name] for name in _COUNTERS if name in metadata}
            return arrays, counters
    return None


@spinner("saving the checkpoint")
def save_state(
    state: TrainState,
    placement: Placement,
    directory: RunDirectory,
    keep: int,
    permanent: bool = False,
) -> None:
    """Saves the state as checkpoints/STEP and deletes the checkpoints that are no longer needed."""
    optimizer = placement.gather(state.optimizer)
    arrays = {
        "params": placement.gather(state.params),
        "optimizer": serialization.to_state_dict(optimizer),
    }
    if state.carry is not None:
        arrays["carried"] = serialization.to_state_dict(state.carry)
    # `esnlm.load` reads the average from here, since it does not open the optimizer's state.
    if isinstance(optimizer, Averaged):
        arrays["average"] = arrays["optimizer"].pop("average")
    with processes.written_by_first() as is_writer:
        if is_writer:
            metadata = state.counters() | {"permanent": permanent}
            checkpoint.save(directory.checkpoints / str(state.step), arrays, metadata)
            checkpoint.prune(directory.checkpoints, keep, state.best_step)
            if directory.upload is not None:
                directory.upload()
