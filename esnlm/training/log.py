"""The outcomes of updates, on their way from the device to the state's counters and the metrics."""

import contextlib
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from esnlm.base.console import Progress, warn
from esnlm.machine.memory import memory_use
from esnlm.runs.trackers import Metrics
from esnlm.training.state import TrainState
from esnlm.training.update import Outcome

# Seconds of updates that are dispatched ahead of the device. A stop or a checkpoint waits for them.
SECONDS_AHEAD, FEWEST_AHEAD, MOST_AHEAD = 1.0, 2, 32


class Pushed(NamedTuple):
    """An update dispatched to the device, which may still compute it."""

    outcome: Outcome
    step: int
    tokens: int  # seen up to this update
    words: int  # seen up to this update
    log: bool  # a line of metrics is due


@dataclass
class TrainingLog:
    """Records outcomes when the device has computed them, so that it never waits for the host.

    So until `flush` the state's counters of losses and time, and the metrics, are some updates
    behind the arrays.
    """

    state: TrainState  # its counters are updated
    metrics: Metrics
    epochs: int
    updates_per_epoch: int
    tokens: int  # predicted tokens of the whole run
    # Whether the run ends with the first skipped update, `last_update`. The outcomes of later
    # updates, which had no effect, are then discarded.
    stops: bool

    def __post_init__(self) -> None:
        self.progress = Progress(self.tokens, self.state.tokens)
        self.began = time.monotonic() - self.state.seconds
        self.pace: float | None = None  # moving average of the seconds per update
        self.pending: deque[Pushed] = deque()
        self.last_update: Pushed | None = None  # the skipped update that ends the run
        self.warned = False

    def push(self, outcome: Outcome, log: bool) -> None:
        """Adds the outcome of the update just dispatched, and records all finished ones."""
        state = self.state
        for number in outcome:
            number.copy_to_host_async()
        self.pending.append(Pushed(outcome, state.step, state.tokens, state.words, log))
        most = FEWEST_AHEAD
        if self.pace is not None:
            most = min(MOST_AHEAD, max(FEWEST_AHEAD, int(SECONDS_AHEAD / max(self.pace, 1e-6))))
        while self.pending and (len(self.pending) > most or _is_ready(self.pending[0])):
            self._record(self.pending.popleft())

    def flush(self) -> None:
        """Waits for the device, so that the state's counters include its last update."""
        while self.pending:
            self._record(self.pending.popleft())

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Excludes the time within this context from the training time."""
        since = time.monotonic()
        with self.progress.aside():
            yield
        self.began += time.monotonic() - since

    def _record(self, update: Pushed) -> None:
        """Waits for an update, adds its outcome to the counters, and logs it if that is due."""
        state, loss, applied = self.state, float(update.outcome.loss), bool(update.outcome.applied)
        seconds = time.monotonic() - self.began
        spent, state.seconds = seconds - state.seconds, seconds
        self.pace = spent if self.pace is None else 0.8 * self.pace + 0.2 * spent
        if not (applied and np.isfinite(loss)) and not self.warned:
            self.warned = True
            what = "a gradient is not finite" if np.isfinite(loss) else f"the loss is {loss}"
            done = "applied all the same" if applied else "left out"
            warn(
                f"update {update.step}: {what}; the update was {done} (training.on_nonfinite);"
                " later ones are counted only"
            )
        if (update.step - 1) % self.updates_per_epoch == 0:
            state.train_nll_sum, state.train_nll_count = 0.0, 0
        if applied:
            state.train_nll_sum += loss
            state.train_nll_count += 1
            state.unlogged.append(loss)
        else:
            state.skipped += 1
        if update.log:
            self._write_line(update)
        if self.stops and not applied:
            self.last_update = update
            self.pending.clear()

    def _write_line(self, update: Pushed) -> None:
        state, epoch = self.state, (update.step - 1) // self.updates_per_epoch + 1
        train_nll = float(np.mean(state.unlogged)) if state.unlogged else float("nan")
        state.unlogged = []
        speed = update.tokens / state.seconds
        memory = memory_use()
        figures = {"train_nll": train_nll, "tokens_per_second": speed} | memory.values
        self.metrics.write(
            step=update.step, epoch=epoch, tokens=update.tokens, words=update.words, **figures
        )
        last = self.epochs * self.updates_per_epoch
        line = (
            f"epoch {epoch}/{self.epochs}  update {update.step}/{last}  train NLL {train_nll:.3f} "
            f" {memory}"
        )
        self.progress.show(update.tokens, line, final=update.step == last)


def _is_ready(update: Pushed) -> bool:
    """Returns whether the device has computed an update."""
    loss: Any = update.outcome.loss  # jax.Array's own type leaves `is_ready` out
    return loss.is_ready()
