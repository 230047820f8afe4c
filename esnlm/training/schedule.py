"""The schedule of logging, checkpoints and validations by update. It needs no JAX."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from esnlm.config import TrainingConfig


class Due(NamedTuple):
    """The actions due after an update."""

    log: bool  # a line of metrics
    checkpoint: bool
    permanent: bool  # the checkpoint is kept for good
    validation: bool


@dataclass(frozen=True)
class Schedule:
    """The actions due in a run, by step: the number of an update, from 1, over the whole run.

    Every epoch has the same number of updates. A line of metrics, a checkpoint and a validation are
    due at its end; the first two are also due before every other validation.
    """

    updates_per_epoch: int
    log_every: int  # steps
    checkpoint_every: int  # steps
    permanent: Collection[int] = ()  # steps whose checkpoints are kept for good
    validate_every: int | None = None  # steps; None: at the end of each epoch only

    def due(self, step: int) -> Due:
        """Returns the actions due after a step; none before the first."""

        def is_due(every: int | None) -> bool:
            return step > 0 and every is not None and step % every == 0

        validation = is_due(self.updates_per_epoch) or is_due(self.validate_every)
        permanent = step in self.permanent
        checkpoint = validation or permanent or is_due(self.checkpoint_every)
        return Due(validation or is_due(self.log_every), checkpoint, permanent, validation)


def steps_at_words(words: np.ndarray, counts: Sequence[int]) -> set[int]:
    """Returns the steps at which the run reaches the word counts `counts`, given the words of each
    update."""
    read = np.cumsum(words, dtype=np.int64)
    return {1 + int(np.searchsorted(read, count)) for count in counts if count <= read[-1]}


def not_reached(training: TrainingConfig, words: np.ndarray) -> list[str]:
    """Returns a line for each setting that does not fit the length of a run."""
    updates, read, found = len(words), int(words.sum()), []
    for name, value in (
        ("warmup_updates", training.warmup_updates),
        ("warmup_words", training.warmup_words),
    ):
        if value > (has := updates if name == "warmup_updates" else read):
            found.append(
                f"{name} is {value:,}, but the run has {has:,}: it never reaches its learning rate"
            )
    end = training.schedule_words
    if (
        end is not None and read > 1.01 * end
    ):  # A schedule of a million words is meant to end near a million.
        found.append(
            f"schedule_words is {end:,}, but the run reads {read:,} words: the last ones at a"
            " learning rate of 0"
        )
    for count in training.checkpoint_words:
        if count > read:
            found.append(
                f"checkpoint_words has {count:,}, but the run reads {read:,}: no checkpoint is kept"
                " there"
            )
    return [f"training.{line}" for line in found]
