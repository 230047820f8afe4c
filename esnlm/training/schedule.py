"""What is due after which update: computed from numbers alone, and tested without JAX."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from esnlm.config import TrainingConfig


class Due(NamedTuple):
    """What is due after an update."""

    log: bool  # a line of metrics
    checkpoint: bool
    permanent: bool  # the checkpoint is kept for good
    validation: bool


@dataclass(frozen=True)
class Schedule:
    """What is due in a run, by step: the number of an update, from 1, over the whole run.

    Every epoch has the same number of updates, and its end makes a line of metrics, a checkpoint and a validation due. Every
    validation makes the other two due before it.
    """

    updates_per_epoch: int
    log_every: int  # steps
    checkpoint_every: int  # steps
    permanent: Collection[int] = ()  # the steps whose checkpoints are kept for good
    validate_every: int | None = None  # steps; None: there is a validation at the end of each epoch only

    def due(self, step: int) -> Due:
        """Returns what is due after a step; nothing is before the first one."""

        def is_due(every: int | None) -> bool:
            return step > 0 and every is not None and step % every == 0

        validation = is_due(self.updates_per_epoch) or is_due(self.validate_every)
        permanent = step in self.permanent
        checkpoint = validation or permanent or is_due(self.checkpoint_every)
        return Due(validation or is_due(self.log_every), checkpoint, permanent, validation)


def steps_at_words(words: Sequence[np.ndarray], counts: Sequence[int]) -> set[int]:
    """Returns the steps at which so many words of training text have been read.

    Args:
        words: of each update, an array an epoch.
        counts: of words, counted over all epochs. One that the run does not reach has no step.
    """
    read = np.cumsum(np.concatenate(words), dtype=np.int64)
    return {1 + int(np.searchsorted(read, count)) for count in counts if count <= read[-1]}


def not_reached(training: TrainingConfig, words: Sequence[np.ndarray]) -> list[str]:
    """Returns a line for each setting that lies behind the end of a run: a warm-up, and words at which a checkpoint is kept.

    A schedule that ends long before the run has one, too.

    Args:
        training: the settings.
        words: of each update, an array an epoch.
    """
    updates, read = sum(map(len, words)), int(sum(each.sum() for each in words))
    found = []
    for name, value, last, unit in (
        ("warmup_updates", training.warmup_updates, updates, "updates"),
        ("warmup_words", training.warmup_words, read, "words"),
    ):
        if value > last:
            highest = training.learning_rate * last / value
            found.append(
                f"training.{name} is {value:,} and the run has {last:,} {unit}: its learning rate ends at {highest:.3g}"
            )
    end = training.schedule_words
    if end is not None and read > 1.01 * end:  # A schedule of a million words is meant to end near a million.
        found.append(
            f"training.schedule_words is {end:,} and the run reads {read:,} words: its learning rate is 0 for the last {read - end:,}"
        )
    for count in training.checkpoint_words:
        if count > read:
            found.append(
                f"training.checkpoint_words has {count:,}, and the run reads {read:,} words: no checkpoint is kept there"
            )
    return found
