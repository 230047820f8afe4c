"""Which updates run in one call, and what is due after them: computed from numbers alone, and tested without JAX."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from esnlm.config import TrainingConfig


@dataclass(frozen=True)
class Call:
    """Updates that are handed to the device together, and what is due after the last of them.

    Updates are numbered from 0 within their epoch; a step is an update's number, from 1, over the whole run.
    """

    epoch: int  # its number, from 0
    window: range  # of the epoch's updates, whose features are computed together
    opens_window: bool  # its features are not computed yet, or a validation has overwritten them
    first: int
    last: int  # the call runs first .. last - 1
    step: int  # of its last update
    log: bool  # a line of metrics is due
    permanent: bool  # a checkpoint is due, and is kept for good
    checkpoint: bool  # a checkpoint is due
    validate: bool  # a validation is due

    @property
    def in_window(self) -> tuple[int, int]:
        """`first` and `last`, counted from the window's first update."""
        return self.first - self.window.start, self.last - self.window.start


@dataclass(frozen=True)
class Schedule:
    """The calls of a run.

    A call ends where its window ends, where anything is due, and at `ends_of_calls`. Every epoch has the same number of
    updates, and its end makes a line of metrics, a checkpoint and a validation due. Every validation, wherever it is due, makes
    the other two due before it.

    Example:
        >>> schedule = Schedule([[range(0, 4), range(4, 5)]], log_every=2, checkpoint_every=100)
        >>> [(call.first, call.last, call.log) for call in schedule.calls(step=0, updates_per_call=lambda: 100)]
        [(0, 2, True), (2, 4, True), (4, 5, True)]
    """

    windows: Sequence[Sequence[range]]  # of each epoch: consecutive updates, by their number within the epoch
    log_every: int  # steps
    checkpoint_every: int  # steps
    permanent: Collection[int] = ()  # the steps whose checkpoints are kept for good
    ends_of_calls: Collection[int] = ()  # further steps after which a call ends, though nothing is due
    one_update_a_call: bool = False  # each update's outcome must be known before the next one begins
    validate_every: int | None = None  # steps; None: there is a validation at the end of each epoch only

    @property
    def updates_per_epoch(self) -> int:
        return self.windows[0][-1].stop

    def ends_epoch(self, step: int) -> bool:
        """Tells whether an epoch ends after this step."""
        return step > 0 and step % self.updates_per_epoch == 0

    def validates(self, step: int) -> bool:
        """Tells whether a validation is due after this step."""
        return self.ends_epoch(step) or (
            self.validate_every is not None and step > 0 and step % self.validate_every == 0
        )

    def calls(self, step: int, updates_per_call: Callable[[], int]) -> Iterator[Call]:
        """Yields the calls that are left after `step`, which may lie inside a window.

        Args:
            step: the updates that are done.
            updates_per_call: says how many updates a call may have now; asked before each call, so it may change.
        """
        for epoch, windows in enumerate(self.windows):
            before = epoch * self.updates_per_epoch
            for window in windows:
                opens_window = True
                while step < before + window.stop:  # false at once for a window that was done before
                    most = 1 if self.one_update_a_call else updates_per_call()
                    first, last = step - before, min(step + most, before + window.stop, self._next_due(step)) - before
                    step = before + last
                    permanent, validate = step in self.permanent, self.validates(step)
                    checkpoint = self._is_due(step, self.checkpoint_every) or validate
                    yield Call(
                        *(epoch, window, opens_window, first, last, step),
                        log=self._is_due(step, self.log_every) or validate,
                        permanent=permanent,
                        checkpoint=checkpoint or permanent,
                        validate=validate,
                    )
                    opens_window = validate

    def _is_due(self, step: int, every: int) -> bool:
        return step % every == 0 or self.ends_epoch(step)

    def _next_due(self, step: int) -> int:
        """Returns the next step after which something is due or a call ends. (The end of an epoch is the end of a window, too.)"""
        rhythms = (self.log_every, self.checkpoint_every, self.validate_every)
        multiples = [(step // every + 1) * every for every in rhythms if every is not None]
        return min(multiples + [other for other in (*self.permanent, *self.ends_of_calls) if other > step])


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
