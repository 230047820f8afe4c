"""Training by gradients: resume, features, update, logging, checkpoint, validation."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from esnlm.base import processes
from esnlm.base.console import spinner, warn
from esnlm.data.sources import CorpusSize
from esnlm.models.base import ModelConfig
from esnlm.models.devices import Machine
from esnlm.runs import checkpoint
from esnlm.training import batches
from esnlm.training.config import TrainingConfig
from esnlm.training.inputs import Inputs, PrecomputedInputs, TokenInputs
from esnlm.training.log import TrainingLog
from esnlm.training.optimizer import (
    Due,
    Schedule,
    averaged_params,
    learning_rates,
    make_optimizer,
    steps_at_word_counts,
    unreached_settings,
)
from esnlm.training.state import (
    TrainState,
    carry_like,
    from_checkpoint,
    restore_newest,
    save_state,
    with_moments,
)
from esnlm.training.trainer import FLOAT, Monitor, Needs, Session, Trainer
from esnlm.training.update import Outcome, Updates

NAMES = {"adamw": "AdamW", "sgd": "SGD"}


@dataclass(frozen=True)
class GradientTrainer(Trainer):
    """Trains by AdamW or SGD."""

    training: TrainingConfig
    model: ModelConfig
    # tokens of each document stream in an update; None: sentences are independent
    bptt_length: int | None
    size: CorpusSize  # of the training text

    @cached_property
    def optimizer(self) -> optax.GradientTransformationExtraArgs:
        readout, widths = self.model.linear_readout, None
        if readout.rank is not None:
            widths = self.model.feature_size, readout.rank, self.size.vocab_size
        return make_optimizer(self.training, readout.scaling, widths)

    @property
    def updates_per_epoch(self) -> int:
        sentences, batch_size = self.size.sentences, self.training.batch_size
        if self.bptt_length is None:
            return math.ceil(sentences / batch_size)
        return math.ceil(math.ceil(self.size.tokens / batch_size) / self.bptt_length)

    def plan(self, machine: Machine) -> Needs:
        training, method = self.training, NAMES[self.training.optimizer]
        updates = training.epochs * self.updates_per_epoch
        unit = "sentences" if self.bptt_length is None else f"chunks of {self.bptt_length} tokens"
        trainable = self.model.expected_counts(self.size.vocab_size).trainable
        on_device = trainable // machine.devices
        return Needs(
            method=method,
            work={"updates": f"{updates:,} of {training.batch_size} {unit}, by {method}"},
            updates=updates,
            trained_bytes=FLOAT * on_device + saved_bytes(training, on_device),
            checkpoint_bytes=saved_bytes(training, trainable),
            checkpoints_at_once=training.checkpoints_at_once,
        )

    @spinner("opening the state")
    def open(self, session: Session) -> TrainState:
        directory, placement = session.directory, session.placement
        params = placement.shard(session.model.params)
        fresh = self.optimizer.init(params)
        saved = restore_newest(directory.checkpoints)
        if saved is None:
            size = sum(array.nbytes for array in jax.tree.leaves((params, fresh)))
            checkpoint.check_free_space(directory.path, size * self.training.checkpoints_at_once)
            if session.settings.parent.keep_optimizer:
                initial, _ = checkpoint.restore(directory.initial)
                moments = initial.get("optimizer", {})  # An imported model has no moments.
                fresh = with_moments(fresh, moments, str(directory.initial))
            return TrainState(params=params, optimizer=placement.shard(fresh))
        arrays, counters = saved
        if processes.is_rank0():  # A kill may have cut the last pruning short.
            keep, best_step = self.training.keep_checkpoints, counters.get("best_step")
            checkpoint.prune(directory.checkpoints, keep, best_step)
        return from_checkpoint(arrays, counters, fresh, placement)

    def run(self, session: Session, state: TrainState, monitor: Monitor) -> bool:
        return TrainingLoop(self, session, state, monitor).run()

    def describe(self, state: TrainState) -> dict[str, Any]:
        training, length = self.training, self.updates_per_epoch
        epochs, remainder = divmod(state.step, length)
        figures: dict[str, Any] = {"epochs": epochs}
        if remainder:
            figures["epochs"] = math.floor(1000 * state.step / length) / 1000
            figures["train_nll_of"] = f"{remainder:,} of the {length:,} updates of an epoch"
        if self.has_stopped(state):
            figures["status"] = "diverged"
        if training.stop_after is not None:
            reason = "all epochs are done"
            if self.has_stopped(state):
                reason = "a loss or gradient was not finite"
            elif self.ends_early(state):
                count = state.validations_since_best
                reason = f"{count} validations without a new best (training.stop_after)"
            figures["ended_because"] = reason
            figures |= {"best_step": state.best_step, "best_val_nll": state.best_val_nll}
        if training.ema is not None:
            figures["evaluated"] = f"averaged weights (training.ema {training.ema})"
        return figures

    def has_stopped(self, state: TrainState) -> bool:
        """Returns whether the run has ended at a nonfinite update."""
        return self.training.on_nonfinite == "stop" and state.skipped > 0

    def ends_early(self, state: TrainState) -> bool:
        """Returns whether the run ends since its validations have no new best any more."""
        stop_after = self.training.stop_after
        return stop_after is not None and state.validations_since_best >= stop_after


def saved_bytes(training: TrainingConfig, trained: int) -> int:
    """Returns the bytes of `trained` entries with their optimizer state, as in a checkpoint."""
    params = jax.ShapeDtypeStruct((trained,), jnp.float32)
    state = jax.tree.leaves(jax.eval_shape(make_optimizer(training).init, params))
    return FLOAT * (trained + sum(array.size for array in state if array.ndim))


class TrainingLoop:
    """The updates of a run, from its state to its end or to an interruption.

    The seed decides the sentences of every update, so the state's step is the position in the run.
    """

    def __init__(
        self, trainer: GradientTrainer, session: Session, state: TrainState, monitor: Monitor
    ) -> None:
        self.trainer, self.session, self.state, self.monitor = trainer, session, state, monitor
        training, text = trainer.training, session.corpus.train
        self.model = session.model.for_device(session.settings.compute)
        self.epochs = [
            batches.plan_of(session.settings, text, epoch) for epoch in range(training.epochs)
        ]
        # the words of text in each update, (updates,) int64
        self.words = np.array(
            [
                text.words[update].sum(dtype=np.int64)
                for epoch in self.epochs
                for update in epoch.updates
            ]
        )
        for line in unreached_settings(training, self.words):
            warn(line)
        self.updates_per_epoch = len(self.epochs[0].predictions)
        self.schedule = Schedule(
            self.updates_per_epoch,
            training.log_every,
            training.checkpoint_every,
            permanent=steps_at_word_counts(self.words, training.checkpoint_words),
            validate_every=training.validate_every,
        )
        make = PrecomputedInputs if trainer.model.precomputed_width else TokenInputs
        self.inputs: Inputs = make(
            model=self.model,
            compute=session.settings.compute,
            seed=session.settings.seed,
            store=text,
            epochs=self.epochs,
            placement=session.placement,
        )
        self.inputs.carry = carry_like(self.inputs.carry, state.carry)
        rates = learning_rates(training, len(self.words), self.words)
        self.updates = Updates(self.inputs, trainer.optimizer, rates, training.on_nonfinite)
        self.stops_at_nonfinite = training.on_nonfinite == "stop"
        self.log = TrainingLog(
            state,
            monitor.metrics,
            training.epochs,
            self.updates_per_epoch,
            sum(int(epoch.predictions.sum()) for epoch in self.epochs),
            self.stops_at_nonfinite,
        )
        self.window: tuple[int, range] | None = None  # the loaded one: its epoch and updates

    def run(self) -> bool:
        """Runs the remaining updates. Returns whether the run is finished, not interrupted."""
        # A validation runs after its checkpoint is saved. If the last process was killed in
        # between, the validation is missing and is computed now. The same holds for a run that
        # stopped at a nonfinite update.
        due_validation = self.schedule.due(self.state.step).validation
        while True:
            if due_validation or self.trainer.has_stopped(self.state):
                is_finished = self._validate()
                # A listener may interrupt the run when it gets the validation.
                if is_finished or self.monitor.interruption:
                    return is_finished
            self._switch_profile()
            outcome = self._dispatch()
            due, is_interrupted = self._settle(outcome)
            if is_interrupted:
                return False
            due_validation = due.validation

    def _switch_profile(self) -> None:
        """Begins or ends the trace if that is due."""
        if self.monitor.profile.is_due(self.state.step):
            self.log.flush()
            with self.log.paused():
                self.monitor.profile.switch()

    def _dispatch(self) -> Outcome:
        """Dispatches the next update to the device, after the features of its window."""
        state = self.state
        epoch, u = divmod(state.step, self.updates_per_epoch)
        if self.window is None or epoch != self.window[0] or u not in self.window[1]:
            self.window = epoch, next(each for each in self.epochs[epoch].windows if u in each)
            self.inputs.load_window(*self.window)
        state.params, state.optimizer, outcome = self.updates.run(
            state.params, state.optimizer, u - self.window[1].start
        )
        state.carry = self.inputs.carry
        state.tokens += int(self.epochs[epoch].predictions[u])
        state.words += int(self.words[state.step])
        state.step += 1
        return outcome

    def _settle(self, outcome: Outcome) -> tuple[Due, bool]:
        """Logs finished updates and saves a checkpoint if that is due.

        Returns what is due after the last update, and whether the run is interrupted.
        """
        state, due = self.state, self.schedule.due(self.state.step)
        self.log.push(outcome, due.log)
        is_interrupted = bool(self.monitor.interruption)
        # Several processes must learn after the same update that it is not finite.
        together = self.stops_at_nonfinite and processes.count() > 1
        if due.checkpoint or is_interrupted or together:
            self.log.flush()
        last = self.log.last_update
        if last is not None:  # Later updates had no effect.
            state.step, state.tokens, state.words = last.step, last.tokens, last.words
            due = self.schedule.due(state.step)
        if due.checkpoint or is_interrupted or last is not None:
            keep = self.trainer.training.keep_checkpoints
            directory, placement = self.session.directory, self.session.placement
            save_state(state, placement, directory, keep, due.permanent)
        return due, is_interrupted

    def _validate(self) -> bool:
        """Validates the model and records the outcome. Returns whether the run is finished."""
        state, session, training = self.state, self.session, self.trainer.training
        params = averaged_params(state.params, state.optimizer)
        readout = session.placement.mask_padding_logits(self.model.readout_arrays(params))
        epoch = (state.step - 1) // self.updates_per_epoch + 1
        stream = self.inputs.stream(params)
        with self.log.paused():
            is_complete = self.monitor.validate(session, stream, readout, state.step, epoch)
        if not is_complete:
            return False
        validation = self.monitor.validation
        if validation is not None and training.stop_after is not None:
            # All processes decide by the value of process 0.
            state.note_validation(processes.broadcast(validation.nll), training.stop_margin)
        is_last = state.step == len(self.words)
        return is_last or self.trainer.has_stopped(state) or self.trainer.ends_early(state)
