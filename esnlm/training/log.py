"""Losses on their way from the device into the state's sums and the metrics."""

import contextlib
import time
from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np

from esnlm.runs.console import Progress, say
from esnlm.runs.metrics import Metrics
from esnlm.training.state import State
from esnlm.training.update import NonFinite, Outcome

# Between two calls a run can be stopped and shows how far it is.
SECONDS_PER_CALL = 3.0


class Call(NamedTuple):
    """Updates that were handed to the device."""

    outcome: Outcome
    first: int  # of them, this call's
    last: int
    step: int  # after it
    tokens: int
    words: int
    log: bool


class Ledger:
    """Enters each call's losses one call late, so that the device never waits for the host."""

    def __init__(self, state: State, metrics: Metrics, epochs: int, per_epoch: int, tokens: int):
        self.state, self.metrics = state, metrics
        self.epochs, self.per_epoch = epochs, per_epoch
        self.progress = Progress(tokens, state.tokens)
        self.began = time.monotonic() - state.seconds
        self.waiting: list[Call] = []
        self.warned = False
        self.updates_per_call = 1

    def enter(self, outcome: Outcome, first: int, last: int, log: bool) -> None:
        """Takes note of a call whose outcome is still on the device, and settles the one before.

        Args:
            outcome: of a window, of which the updates first .. last - 1 are this call's.
            log: a line of metrics is due after it.
        """
        state = self.state
        self.waiting.append(Call(outcome, first, last, state.step, state.tokens, state.words, log))
        if len(self.waiting) > 1:
            self._settle(self.waiting.pop(0))

    def settle(self) -> None:
        """Waits for what is still on the device: the state is then as after its last update."""
        while self.waiting:
            self._settle(self.waiting.pop(0))
        self.state.metrics_sha256 = self.metrics.sha256

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Time spent within is not training."""
        since = time.monotonic()
        yield
        self.began += time.monotonic() - since

    def _settle(self, call: Call) -> None:
        state, losses = self.state, np.asarray(call.outcome.losses, np.float64)[call.first : call.last]
        applied = np.asarray(call.outcome.applied)[call.first : call.last]
        seconds = time.monotonic() - self.began
        per_update = (seconds - state.seconds) / len(losses)
        self.updates_per_call = max(1, int(SECONDS_PER_CALL / max(per_update, 1e-6)))
        state.seconds = seconds
        epoch = (call.step - 1) // self.per_epoch
        if call.step - len(losses) == epoch * self.per_epoch:
            state.epoch_loss, state.epoch_updates = 0.0, 0
        self._warn_of(losses, applied, call.step - len(losses) + 1, call.outcome.nonfinite)
        for loss in losses[
            applied
        ]:  # one by one, so that the sum's rounding does not depend on how the run was cut into calls
            state.epoch_loss += float(loss)
        state.epoch_updates += int(applied.sum())
        state.skipped += int((~applied).sum())
        state.unlogged += losses[applied].tolist()
        if not call.log:
            return
        loss, state.unlogged = float(np.mean(state.unlogged)) if state.unlogged else float("nan"), []
        self.metrics.write(
            step=call.step,
            epoch=epoch + 1,
            tokens=call.tokens,
            words=call.words,
            train_nll=loss,
            tokens_per_second=call.tokens / seconds,
        )
        last = self.epochs * self.per_epoch
        text = f"epoch {epoch + 1}/{self.epochs}  update {call.step}/{last}  train NLL {loss:.3f}"
        self.progress.show(call.tokens, text, final=call.step == last)

    def _warn_of(self, losses, applied, step, record: NonFinite):
        """Says once in a run at which update numbers stopped being finite, and what was done."""
        bad = np.flatnonzero(~applied | ~np.isfinite(losses))
        if len(bad) == 0 or self.warned:
            return
        self.warned, first = True, int(bad[0])
        what = f"the loss is {losses[first]}" if not np.isfinite(losses[first]) else "a gradient is not finite"
        what += self._named(record) if record.found else ""
        done = "applied all the same" if applied[first] else "left out"
        say(
            f"warning: update {step + first}: {what}; the update was {done} (training.on_nonfinite); later ones are counted only"
        )

    def _named(self, record: NonFinite) -> str:
        """The largest |h|, and where it all began: in the states, in the arrays as they were before, or in this gradient."""
        paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(self.state.params)]
        names = [jax.tree_util.keystr(path, simple=True, separator=".") for path in paths]
        before, gradient = (
            [name for name, bad in zip(names, flags, strict=True) if bad] for flags in (record.params, record.gradient)
        )
        if before:
            where = f"not finite since the update before: {', '.join(before)}"
        elif not np.isfinite(record.largest_feature):
            where = "the states are not finite"
        else:
            where = (
                f"not finite: the gradient of {', '.join(gradient)}"
                if gradient
                else "all arrays and gradients are finite"
            )
        return f" (largest |h| {float(record.largest_feature):.3g}; {where})"
