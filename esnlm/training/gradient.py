"""Training by gradients: resume, features, update, logging, checkpoint, validation."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import serialization

from esnlm.base import processes
from esnlm.base.console import spinner, warn
from esnlm.data.sources import CorpusSize
from esnlm.data.store import TokenStore
from esnlm.evaluation.likelihood import Likelihood
from esnlm.models.base import LanguageModel, ModelConfig
from esnlm.models.devices import Machine
from esnlm.runs import checkpoint
from esnlm.training import batches
from esnlm.training.config import TrainingConfig
from esnlm.training.end_to_end import TokenInputs
from esnlm.training.log import TrainingLog
from esnlm.training.optimizer import (
    Schedule,
    evaluated,
    learning_rates,
    make_optimizer,
    not_reached,
    steps_at_words,
)
from esnlm.training.precomputed import PrecomputedInputs
from esnlm.training.state import TrainState, restore_newest, save_state, with_moments
from esnlm.training.trainer import FLOAT, Monitor, Needs, Session, Trainer
from esnlm.training.update import Inputs, Updates

NAMES = {"adamw": "AdamW", "sgd": "SGD"}


@dataclass(frozen=True)
class GradientTrainer(Trainer):
    """Trains by AdamW or SGD."""

    training: TrainingConfig
    model: ModelConfig
    chunk: int | None  # tokens of a document in an update; None: each sentence is independent
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
        if self.chunk is None:
            return math.ceil(sentences / batch_size)
        tokens = sentences + self.size.predicted_tokens
        return math.ceil(math.ceil(tokens / batch_size) / self.chunk)

    def plan(self, machine: Machine) -> Needs:
        training, method = self.training, NAMES[self.training.optimizer]
        updates = training.epochs * self.updates_per_epoch
        unit = "sentences" if self.chunk is None else f"chunks of {self.chunk} tokens"
        trainable = self.model.expected_counts(self.size.vocab_size).trainable
        on_device = trainable // machine.devices
        return Needs(
            method=method,
            work={"updates": f"{updates:,} of {training.batch_size} {unit}, by {method}"},
            updates=updates,
            trained=FLOAT * on_device + saved_bytes(training, on_device),
            checkpoint=saved_bytes(training, trainable),
            checkpoints=training.checkpoints_at_once,
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
        optimizer_state = arrays["optimizer"]
        if "average" in arrays:
            optimizer_state = optimizer_state | {"average": arrays["average"]}
        return TrainState(
            params=placement.shard(arrays["params"]),
            optimizer=placement.shard(serialization.from_state_dict(fresh, optimizer_state)),
            carry=arrays.get("carried"),
            **counters,
        )

    def run(self, session: Session, state: TrainState, monitor: Monitor) -> bool:
        training, text = self.training, session.corpus.train
        model = session.model.for_device(session.settings.compute)

        # 1. Resume. The seed decides the sentences of every update, so the state's step gives the
        # position in the run.
        epochs = [
            batches.plan_of(session.settings, text, epoch) for epoch in range(training.epochs)
        ]
        words = np.concatenate([_words_of_updates(text, epoch) for epoch in epochs])
        for line in not_reached(training, words):
            warn(line)
        schedule = Schedule(
            len(epochs[0].predictions),
            training.log_every,
            training.checkpoint_every,
            permanent=steps_at_words(words, training.checkpoint_words),
            validate_every=training.validate_every,
        )
        inputs = self._make_inputs(session, model, epochs)
        if state.carry is not None:
            inputs.carry = serialization.from_state_dict(inputs.carry, state.carry)
        rates = learning_rates(training, len(words), words)
        updates = Updates(inputs, self.optimizer, rates, training.on_nonfinite)
        stops_at_nonfinite = training.on_nonfinite == "stop"

        def validate() -> bool:
            """Returns whether the run is finished after a validation of the current state."""
            params = evaluated(state.params, state.optimizer)
            epoch = (state.step - 1) // schedule.updates_per_epoch + 1
            readout = session.placement.mask_padding_logits(model.readout_arrays(params))
            stream = inputs.stream(params)
            is_complete = monitor.validate(session, stream, readout, state.step, epoch)
            return is_complete and self._is_finished(state, len(words), monitor.validation)

        # The previous process may have been killed right after its last checkpoint. If the run had
        # stopped at a nonfinite update, its summary was not written. If a validation was due, it
        # may not have been logged, and its outcome is not in the checkpoint. Both need the
        # validation, so it is computed again.
        if self._has_stopped(state) or schedule.due(state.step).validation:
            is_finished = validate()
            if is_finished or monitor.interruption:
                return is_finished

        predictions = sum(int(epoch.predictions.sum()) for epoch in epochs)
        log = TrainingLog(
            state,
            monitor.metrics,
            training.epochs,
            schedule.updates_per_epoch,
            predictions,
            stops_at_nonfinite,
        )
        window: tuple[int, range] | None = None
        for next_window, u in _remaining(epochs, state.step):
            if monitor.profile.is_due(state.step):
                log.flush()
                with log.paused():
                    monitor.profile.switch()

            # 2. Features: for a window of updates at once, if they are frozen.
            if next_window != window:
                window = next_window
                inputs.load(*window)

            # 3. Update: dispatched to the device without waiting.
            number, in_window = window
            state.params, state.optimizer, outcome = updates.run(
                state.params, state.optimizer, u - in_window.start
            )
            state.carry = inputs.carry
            state.tokens += int(epochs[number].predictions[u])
            state.words += int(words[state.step])
            state.step += 1

            # 4. Logging of finished updates. Several processes must learn of a stop after the same
            # update.
            due = schedule.due(state.step)
            log.push(outcome, due.log)
            is_interrupted = bool(monitor.interruption)
            if due.checkpoint or is_interrupted or (stops_at_nonfinite and processes.count() > 1):
                log.flush()

            # 5. Checkpoint.
            if log.stopped:
                due = schedule.due(state.step)  # the step is that of the skipped update
            if due.checkpoint or is_interrupted or log.stopped:
                log.flush()
                keep = training.keep_checkpoints
                save_state(state, session.placement, session.directory, keep, due.permanent)
            if is_interrupted:
                return False

            # 6. Validation: every `validate_every` updates, at the end of each epoch, and if the
            # run stops here. A listener may interrupt the run when it gets the validation.
            if due.validation or log.stopped:
                with log.paused():
                    is_finished = validate()
                if is_finished or monitor.interruption:
                    return is_finished
        return True

    def describe(self, state: TrainState) -> dict[str, Any]:
        training, length = self.training, self.updates_per_epoch
        epochs, remainder = divmod(state.step, length)
        figures: dict[str, Any] = {"epochs": epochs}
        if remainder:
            figures["epochs"] = math.floor(1000 * state.step / length) / 1000
            figures["train_nll_of"] = f"{remainder:,} of the {length:,} updates of an epoch"
        if self._has_stopped(state):
            figures["status"] = "diverged"
        if training.stop_after is not None:
            reason = "all epochs are done"
            if self._has_stopped(state):
                reason = "a loss or gradient was not finite"
            elif state.validations_since_best >= training.stop_after:
                count = state.validations_since_best
                reason = f"{count} validations without a new best (training.stop_after)"
            figures["ended_because"] = reason
            figures |= {"best_step": state.best_step, "best_val_nll": state.best_val_nll}
        if training.ema is not None:
            figures["evaluated"] = f"averaged weights (training.ema {training.ema})"
        return figures

    def _make_inputs(
        self, session: Session, model: LanguageModel, epochs: list[batches.EpochPlan]
    ) -> Inputs:
        make = PrecomputedInputs if self.model.precomputed_width else TokenInputs
        return make(
            model=model,
            compute=session.settings.compute,
            seed=session.settings.seed,
            store=session.corpus.train,
            epochs=epochs,
            placement=session.placement,
        )

    def _is_finished(self, state: TrainState, updates: int, validation: Likelihood | None) -> bool:
        """Returns whether the run ends with a validation, which it records."""
        training = self.training
        if validation is not None and training.stop_after is not None:
            # Process 0 decides by its value, since all must end together.
            state.note_validation(processes.broadcast(validation.nll), training.stop_margin)
            if state.validations_since_best >= training.stop_after:
                return True
        return state.step == updates or self._has_stopped(state)

    def _has_stopped(self, state: TrainState) -> bool:
        return self.training.on_nonfinite == "stop" and state.skipped > 0


def saved_bytes(training: TrainingConfig, trained: int) -> int:
    """Returns the bytes of `trained` entries with their optimizer state, as in a checkpoint."""
    params = jax.ShapeDtypeStruct((trained,), jnp.float32)
    state = jax.tree.leaves(jax.eval_shape(make_optimizer(training).init, params))
    return FLOAT * (trained + sum(array.size for array in state if array.ndim))


def _remaining(
    epochs: list[batches.EpochPlan], step: int
) -> Iterator[tuple[tuple[int, range], int]]:
    """Yields the window, (epoch, its updates), and the number of each update after `step`."""
    before = 0
    for number, epoch in enumerate(epochs):
        for window in epoch.windows:
            for u in range(max(window.start, step - before), window.stop):
                yield (number, window), u
        before += len(epoch.predictions)


def _words_of_updates(text: TokenStore, epoch: batches.EpochPlan) -> np.ndarray:
    """Returns the words of text in each update of an epoch, (updates,) int64."""
    return np.array([text.words[update].sum(dtype=np.int64) for update in epoch.updates])
