"""The outcomes of updates, on their way from the device into the state's counters and the metrics."""

import contextlib
import time
from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np

from esnlm.runs.console import Progress, say
from esnlm.runs.metrics import Metrics
from esnlm.training.state import State
from esnlm.training.update import Fault

SECONDS_PER_CALL = 3.0  # A run can be stopped, and shows how far it is, only between two calls.


class Outcome(NamedTuple):
    """What a call of updates came to; its arrays may still be computed by the device."""

    losses: jax.Array  # (U,) for all U updates of the window, nats
    applied: jax.Array  # (U,) bool
    in_window: slice  # the updates of this call
    fault: Fault | None  # what was not finite first
    step: int  # after the call
    tokens: int  # seen by then
    words: int  # seen by then
    log: bool  # a line of metrics is due


class TrainingLog:
    """Records the outcome of each call one call late, so that the device never waits for the host.

    The state's counters of losses and time, and the metrics, are therefore one call behind the arrays until `flush`.
    """

    def __init__(self, state: State, metrics: Metrics, epochs: int, updates_per_epoch: int, tokens: int) -> None:
        """
        Args:
            state: its counters are added to.
            tokens: that the whole run predicts.
        """
        self.state, self.metrics = state, metrics
        self.epochs, self.updates_per_epoch = epochs, updates_per_epoch
        self.progress = Progress(tokens, state.tokens)
        self.began = time.monotonic() - state.seconds
        self.seconds_per_update: float | None = None  # of the call that was recorded last
        self.pending: Outcome | None = None
        self.warned = False

    def updates_per_call(self) -> int:
        """Returns how many updates take about SECONDS_PER_CALL; 1 before any were timed."""
        if self.seconds_per_update is None:
            return 1
        return max(1, int(SECONDS_PER_CALL / max(self.seconds_per_update, 1e-6)))

    def push(
        self, losses: jax.Array, applied: jax.Array, in_window: tuple[int, int], fault: Fault | None, log: bool
    ) -> None:
        """Takes the outcome of the call that was just handed to the device, and records the one before.

        Args:
            losses: of all updates of the window, (U,).
            applied: likewise; False where an update was left out.
            in_window: the first update of this call, and the one after its last.
            fault: what was not finite in the call first.
            log: a line of metrics is due after it.
        """
        state, before = self.state, self.pending
        self.pending = Outcome(losses, applied, slice(*in_window), fault, state.step, state.tokens, state.words, log)
        if before is not None:
            self._record(before)

    def flush(self) -> None:
        """Waits for what is still on the device: the state's counters are then as after its last update."""
        if self.pending is not None:
            outcome, self.pending = self.pending, None
            self._record(outcome)
        self.state.metrics_sha256 = self.metrics.sha256

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Does not count the time that is spent within it as training."""
        since = time.monotonic()
        yield
        self.began += time.monotonic() - since

    def _record(self, outcome: Outcome) -> None:
        """Waits for a call, adds its outcome to the counters, and writes a line of metrics if one is due."""
        state, losses = self.state, np.asarray(outcome.losses, np.float64)[outcome.in_window]
        applied = np.asarray(outcome.applied)[outcome.in_window]
        seconds = time.monotonic() - self.began
        self.seconds_per_update, state.seconds = (seconds - state.seconds) / len(losses), seconds
        before = outcome.step - len(losses)
        self._warn_if_not_finite(losses, applied, before + 1, outcome.fault)
        if before % self.updates_per_epoch == 0:
            state.train_nll_sum, state.train_nll_count = 0.0, 0
        for loss in losses[applied]:  # One by one: the rounding must not depend on how the run was cut into calls.
            state.train_nll_sum += float(loss)
        state.train_nll_count += int(applied.sum())
        state.skipped += int((~applied).sum())
        state.unlogged += losses[applied].tolist()
        if outcome.log:
            self._write_line(outcome)

    def _write_line(self, outcome: Outcome) -> None:
        state, epoch = self.state, (outcome.step - 1) // self.updates_per_epoch + 1
        train_nll, state.unlogged = float(np.mean(state.unlogged)) if state.unlogged else float("nan"), []
        self.metrics.write(
            step=outcome.step,
            epoch=epoch,
            tokens=outcome.tokens,
            words=outcome.words,
            train_nll=train_nll,
            tokens_per_second=outcome.tokens / state.seconds,
        )
        last = self.epochs * self.updates_per_epoch
        line = f"epoch {epoch}/{self.epochs}  update {outcome.step}/{last}  train NLL {train_nll:.3f}"
        self.progress.show(outcome.tokens, line, final=outcome.step == last)

    def _warn_if_not_finite(self, losses: np.ndarray, applied: np.ndarray, step: int, fault: Fault | None) -> None:
        """Says, once in a process, at which update numbers stopped being finite, and what was done.

        Args:
            step: of the first loss.
        """
        bad = np.flatnonzero(~applied | ~np.isfinite(losses))
        if len(bad) == 0 or self.warned:
            return
        self.warned, first = True, int(bad[0])
        what = f"the loss is {losses[first]}" if not np.isfinite(losses[first]) else "a gradient is not finite"
        where = self._locate(fault) if fault is not None and fault.seen else ""
        done = "applied all the same" if applied[first] else "left out"
        say(
            f"warning: update {step + first}: {what}{where}; the update was {done} (training.on_nonfinite);"
            " later ones are counted only"
        )

    def _locate(self, fault: Fault) -> str:
        """Returns the largest |h| and where it began: in an earlier update, in the states, or in this gradient."""
        paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(self.state.params)]
        names = [jax.tree_util.keystr(path, simple=True, separator=".") for path in paths]
        before, gradient = (
            ", ".join(name for name, bad in zip(names, flags, strict=True) if bad)
            for flags in (fault.params, fault.gradient)
        )
        if before:
            where = f"not finite since the update before: {before}"
        elif not np.isfinite(fault.largest):
            where = "the states are not finite"
        else:
            where = f"not finite: the gradient of {gradient}" if gradient else "all arrays and gradients are finite"
        return f" (largest |h| {float(fault.largest):.3g}; {where})"
