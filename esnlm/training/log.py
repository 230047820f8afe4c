"""The results of calls of updates, on their way from the device into the state's counters and the metrics."""

import contextlib
import time
from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np

from esnlm.io.console import Progress, warn
from esnlm.runs.metrics import Metrics
from esnlm.training.state import State
from esnlm.training.update import NOT_LOOKED_AT, CallResult, NonFinite
from esnlm.training.usage import Usage

SECONDS_PER_CALL = 3.0  # A run can be stopped, and shows how far it is, only between two calls.


class Pushed(NamedTuple):
    """A call of updates; its result may still be computed by the device."""

    result: CallResult  # of all updates of the window
    in_window: slice  # the updates of this call
    step: int  # after the call
    tokens: int  # seen by then
    words: int  # seen by then
    log: bool  # a line of metrics is due


class TrainingLog:
    """Records the result of each call one call late, so that the device never waits for the host.

    The state's counters of losses and time, and the metrics, are therefore one call behind the arrays until `flush`.
    """

    def __init__(
        self, state: State, metrics: Metrics, epochs: int, updates_per_epoch: int, tokens: int, usage: Usage
    ) -> None:
        """
        Args:
            state: its counters are added to.
            tokens: that the whole run predicts.
            usage: of the device.
        """
        self.state, self.metrics, self.usage = state, metrics, usage
        self.epochs, self.updates_per_epoch = epochs, updates_per_epoch
        self.progress = Progress(tokens, state.tokens)
        self.began = time.monotonic() - state.seconds
        self.seconds_per_update: float | None = None  # of the call that was recorded last
        self.pending: Pushed | None = None
        self.warned = False

    def updates_per_call(self) -> int:
        """Returns how many updates take about SECONDS_PER_CALL; 1 before any were timed."""
        if self.seconds_per_update is None:
            return 1
        return max(1, int(SECONDS_PER_CALL / max(self.seconds_per_update, 1e-6)))

    def push(self, result: CallResult, in_window: tuple[int, int], log: bool) -> None:
        """Takes the result of the call that was just handed to the device, and records the one before.

        Args:
            result: of all updates of the window.
            in_window: the first update of this call, and the one after its last.
            log: a line of metrics is due after it.
        """
        state, before = self.state, self.pending
        self.pending = Pushed(result, slice(*in_window), state.step, state.tokens, state.words, log)
        if before is not None:
            self._record(before)

    def flush(self) -> None:
        """Waits for what is still on the device: the state's counters are then as after its last update."""
        if self.pending is not None:
            call, self.pending = self.pending, None
            self._record(call)
        self.state.metrics_sha256 = self.metrics.sha256
        self.state.note_memory()

    @contextlib.contextmanager
    def paused(self, recurs: bool = False) -> Iterator[None]:
        """Does not count the time that is spent within it as training.

        Args:
            recurs: it will be spent again, so that the time left has a share of it.
        """
        since = time.monotonic()
        with self.progress.aside(recurs):
            yield
        self.began += time.monotonic() - since

    def _record(self, call: Pushed) -> None:
        """Waits for a call, adds its result to the counters, and writes a line of metrics if one is due."""
        state, losses = self.state, np.asarray(call.result.losses, np.float64)[call.in_window]
        applied = np.asarray(call.result.applied)[call.in_window]
        seconds = time.monotonic() - self.began
        self.seconds_per_update, state.seconds = (seconds - state.seconds) / len(losses), seconds
        before = call.step - len(losses)
        self._warn_if_not_finite(losses, applied, before + 1, call.result.nonfinite)
        if before % self.updates_per_epoch == 0:
            state.train_nll_sum, state.train_nll_count = 0.0, 0
        for loss in losses[applied]:  # One by one: the rounding must not depend on how the run was cut into calls.
            state.train_nll_sum += float(loss)
        state.train_nll_count += int(applied.sum())
        state.skipped += int((~applied).sum())
        state.unlogged += losses[applied].tolist()
        if call.log:
            self._write_line(call)

    def _write_line(self, call: Pushed) -> None:
        state, epoch = self.state, (call.step - 1) // self.updates_per_epoch + 1
        train_nll, state.unlogged = float(np.mean(state.unlogged)) if state.unlogged else float("nan"), []
        tokens_per_second = call.tokens / state.seconds
        self.metrics.write(
            step=call.step,
            epoch=epoch,
            tokens=call.tokens,
            words=call.words,
            train_nll=train_nll,
            tokens_per_second=tokens_per_second,
            **self.usage.values(tokens_per_second),
        )
        last = self.epochs * self.updates_per_epoch
        line = f"epoch {epoch}/{self.epochs}  update {call.step}/{last}  train NLL {train_nll:.3f}"
        self.progress.show(call.tokens, line, final=call.step == last, describe=self.usage.describe)

    def _warn_if_not_finite(self, losses: np.ndarray, applied: np.ndarray, step: int, record: NonFinite) -> None:
        """Says, once in a process, at which update numbers stopped being finite, and what was done.

        Args:
            step: of the first loss.
        """
        bad = np.flatnonzero(~applied | ~np.isfinite(losses))
        if len(bad) == 0 or self.warned:
            return
        self.warned, first = True, int(bad[0])
        what = f"the loss is {losses[first]}" if not np.isfinite(losses[first]) else "a gradient is not finite"
        where = self._locate(record) if record.found else ""
        done = "applied all the same" if applied[first] else "left out"
        warn(
            f"update {step + first}: {what}{where}; the update was {done} (training.on_nonfinite);"
            " later ones are counted only"
        )

    def _locate(self, record: NonFinite) -> str:
        """Returns the largest |h| and where it began: in an earlier update, in the states, or in this gradient."""
        paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(self.state.params)]
        names = [jax.tree_util.keystr(path, simple=True, separator=".") for path in paths]
        before, gradient = (
            ", ".join(name for name, bad in zip(names, flags, strict=True) if bad)
            for flags in (record.params, record.gradient)
        )
        if before:
            where = f"not finite since the update before: {before}"
        elif not np.isfinite(record.largest_feature):
            where = "the states are not finite"
        else:
            where = f"not finite: the gradient of {gradient}" if gradient else "all arrays and gradients are finite"
        largest = float(record.largest_feature)
        return f" ({where})" if largest == NOT_LOOKED_AT else f" (largest |h| {largest:.3g}; {where})"
