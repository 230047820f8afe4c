"""The training of a run, from top to bottom: resume, features, update, logging, checkpoint,
validation."""

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import optax
from flax import serialization

from esnlm.base import processes
from esnlm.base.console import Progress, detail, warn
from esnlm.data.corpus import Corpus, unigram_counts
from esnlm.data.store import TokenStore
from esnlm.evaluation import likelihood
from esnlm.evaluation.likelihood import Likelihood
from esnlm.features.stream import FeatureStream, SentenceFeatures
from esnlm.models.base import LanguageModel, ModelConfig
from esnlm.models.devices import placement_of
from esnlm.readout.base import Fitter
from esnlm.runs import checkpoint
from esnlm.runs.directory import RunDirectory
from esnlm.runs.trackers import Metrics
from esnlm.training import batches, readout_regression
from esnlm.training.config import ResolvedExperiment, TrainingConfig
from esnlm.training.end_to_end import EndToEndUpdates
from esnlm.training.interruption import Interruption, Profile
from esnlm.training.log import TrainingLog
from esnlm.training.optimizer import Schedule, learning_rates, not_reached, steps_at_words
from esnlm.training.plan import require_memory
from esnlm.training.precomputed import PrecomputedUpdates
from esnlm.training.readout_regression import ReadoutRegression
from esnlm.training.state import State, open_model, open_state, save_state
from esnlm.training.update import Updates, make_optimizer


def open_training(
    experiment: ResolvedExperiment, corpus: Corpus, directory: RunDirectory
) -> tuple[LanguageModel, State]:
    """Returns the model before its first update, and the state to continue from: a checkpoint's, or
    a new one.

    Raises InputError if the machine has too little memory or disk, or saved files are damaged.
    """
    training, config, vocab_size = (
        experiment.training,
        experiment.model,
        corpus.tokenizer.vocab_size,
    )
    require_memory(experiment, vocab_size)
    with processes.in_turn():
        model = open_model(config, vocab_size, experiment.seed, directory, corpus.train)
    if isinstance(training, Fitter):
        return model, readout_regression.open_state(
            training, model.params, config.feature_size, vocab_size, directory
        )
    moments = None
    if experiment.parent.run is not None:
        initial, _ = checkpoint.restore(directory.initial)
        model = model.with_params(jax.tree.map(jax.numpy.asarray, initial["params"]))
        if experiment.parent.keep_optimizer:
            moments = initial.get("optimizer", {})  # An imported model has no moments.
    optimizer = optimizer_of(config, training, vocab_size)
    placement = placement_of(config, experiment.compute, vocab_size)
    return model, open_state(model.params, optimizer, directory, training, placement, moments)


@dataclass(frozen=True)
class Training:
    """The remaining training of a run, by gradients or by a regression. `run` does it."""

    experiment: ResolvedExperiment
    corpus: Corpus
    model: LanguageModel
    state: State  # updated during training
    metrics: Metrics
    directory: RunDirectory
    interruption: Interruption  # asks the run to save its state and stop
    profile: Profile  # for training by gradients only

    def run(self) -> tuple[Likelihood | None, bool]:
        """Returns the last validation (None: none, or an interrupted one), and whether the run is
        finished."""
        compute = self.experiment.compute
        chosen = ", ".join(
            f"{name} {value}" for name, value in vars(compute).items() if value is not None
        )
        detail(f"computing on {jax.devices()[0].device_kind}: {chosen}")
        model, training = self.model.for_device(compute), self.experiment.training
        if isinstance(training, TrainingConfig):
            return self._by_gradients(training, model)
        return self._by_regression(training, model)

    def _by_regression(
        self, fitter: Fitter, model: LanguageModel
    ) -> tuple[Likelihood | None, bool]:
        experiment, corpus, compute = self.experiment, self.corpus, self.experiment.compute
        placement = placement_of(experiment.model, compute, corpus.tokenizer.vocab_size)
        if placement.mesh is None:
            # A regression pads nothing.
            placement = dataclasses.replace(placement, rows=placement.vocab_size)
        stream = model.stream(compute, placement)
        assert isinstance(stream, FeatureStream), (
            "`Experiment` accepts regressions on frozen features only"
        )
        counts, rank = (
            unigram_counts(corpus.train, corpus.tokenizer),
            experiment.model.linear_readout.rank,
        )
        given = fitter, rank, experiment.seed, corpus.train, counts, stream, compute
        ReadoutRegression(*given, self.metrics, self.directory, self.interruption).run(self.state)
        if self.interruption:
            return None, False
        readout = placement.masked(model.readout_arrays(placement.place(self.state.params)))
        validation = self._validate(stream, readout)
        self._log_validation(fitter.epochs, validation)
        return validation, self._is_measured(validation)

    def _by_gradients(
        self, training: TrainingConfig, model: LanguageModel
    ) -> tuple[Likelihood | None, bool]:
        experiment, corpus, state, interruption = (
            self.experiment,
            self.corpus,
            self.state,
            self.interruption,
        )
        text, compute, vocab_size = corpus.train, experiment.compute, corpus.tokenizer.vocab_size
        stops = training.on_nonfinite == "stop"

        # 1. Resume. The seed decides the sentences of every update, so the state's step gives the
        # position in the run.
        epochs = [batches.plan_of(experiment, text, epoch) for epoch in range(training.epochs)]
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
        updates_in_all = sum(len(epoch.predictions) for epoch in epochs)
        make: Callable[..., Updates] = (
            PrecomputedUpdates if model.config.ahead_size else EndToEndUpdates
        )
        updates = make(
            model=model,
            compute=compute,
            seed=experiment.seed,
            store=text,
            epochs=epochs,
            optimizer=optimizer_of(model.config, training, vocab_size),
            rates=learning_rates(training, updates_in_all, words),
            on_nonfinite=training.on_nonfinite,
            placement=placement_of(model.config, compute, vocab_size),
        )
        if state.carried is not None:
            updates.carried = serialization.from_state_dict(updates.carried, state.carried)

        def validate() -> Likelihood | None:
            params = state.evaluated
            readout = updates.placement.masked(model.readout_arrays(params))
            return self._validate(updates.features_with(params), readout)

        def take_up(validation: Likelihood | None) -> bool:
            """Logs a validation, and returns whether the run ends with it."""
            self._log_validation((state.step - 1) // schedule.updates_per_epoch + 1, validation)
            if validation is not None and training.stop_after is not None:
                # Process 0 decides by its value, since all must end together.
                state.note_validation(processes.agree(validation.nll), training.stop_margin)
                if state.validations_since_best >= training.stop_after:
                    return True
            return state.step == updates_in_all or (stops and state.skipped > 0)

        validation = None
        # The previous process may have been killed right after its last checkpoint. If the run had
        # stopped at a nonfinite update, its summary was not written. If a validation was due, it
        # may not have been logged, and its outcome is not in the checkpoint. Both need the
        # validation, so it is computed again.
        if (stops and state.skipped > 0) or schedule.due(state.step).validation:
            validation = validate()
            if not self._is_measured(validation):
                return None, False
            ends = take_up(validation)
            if ends or interruption:
                return validation, ends

        predictions = sum(int(epoch.predictions.sum()) for epoch in epochs)
        log = TrainingLog(
            state, self.metrics, training.epochs, schedule.updates_per_epoch, predictions, stops
        )
        loaded: tuple[int, range] | None = None
        for number, window, u in _remaining(epochs, state.step):
            if self.profile.is_due(state.step):
                log.flush()
                with log.paused():
                    self.profile.switch()
            # 2. Features: for a window of updates at once, if they are frozen.
            if loaded != (number, window):
                updates.load(number, window)
                loaded = number, window

            # 3. Update: dispatched to the device without waiting.
            state.params, state.optimizer, outcome = updates.run(
                state.params, state.optimizer, u - window.start
            )
            state.carried = updates.carried
            state.tokens += int(epochs[number].predictions[u])
            state.words += int(words[state.step])
            state.step += 1

            # 4. Logging of finished updates. Several processes must learn of a stop after the same
            # update.
            due = schedule.due(state.step)
            log.push(outcome, due.log)
            interrupted = bool(interruption)
            if due.checkpoint or interrupted or (stops and processes.count() > 1):
                log.flush()

            # 5. Checkpoint.
            if log.stopped:
                due = schedule.due(state.step)  # the step is that of the skipped update
            if due.checkpoint or interrupted or log.stopped:
                log.flush()
                save_state(state, self.directory, training.keep_checkpoints, due.permanent)
            if interrupted:
                return None, False

            # 6. Validation: every `validate_every` updates, at the end of each epoch, and if the
            # run stops here.
            if due.validation or log.stopped:
                with log.paused():
                    validation = validate()
                if not self._is_measured(validation):
                    return None, False
                ends = take_up(validation)
                if ends or interruption:  # a listener may interrupt when it gets the validation
                    return validation, ends
        return validation, True

    def _validate(self, stream: SentenceFeatures, readout: dict[str, Any]) -> Likelihood | None:
        """Measures the model on the validation text; None without such text, or if interrupted."""
        store = self.corpus.validation
        if store is None:
            return None
        progress = Progress(int(store.lengths.sum()) - len(store))

        def on_progress(nats: float, tokens: int) -> bool:
            progress.show(
                tokens, f"validation  NLL {nats / tokens:.3f}", final=tokens == progress.total
            )
            return bool(self.interruption)

        by_document = self.experiment.data.document_piece is not None
        return likelihood.of_model(
            stream, readout, store, self.experiment.compute, on_progress, by_document
        )

    def _is_measured(self, validation: Likelihood | None) -> bool:
        """Returns whether a validation was completed and not interrupted."""
        return validation is not None or self.corpus.validation is None

    def _log_validation(self, epoch: int, validation: Likelihood | None) -> None:
        if validation is not None:
            figures = ("nll", "nll_without_eos", "bits_per_byte")
            values = {f"val_{name}": getattr(validation, name) for name in figures}
            self.metrics.write(step=self.state.step, epoch=epoch, **values)


def _remaining(epochs: list[batches.EpochPlan], step: int) -> Iterator[tuple[int, range, int]]:
    """Yields the updates after `step`: the number of the epoch, the window, and the number of the
    update in the epoch."""
    before = 0
    for number, epoch in enumerate(epochs):
        for window in epoch.windows:
            for u in range(max(window.start, step - before), window.stop):
                yield number, window, u
        before += len(epoch.predictions)


def _words_of_updates(text: TokenStore, epoch: batches.EpochPlan) -> np.ndarray:
    """Returns the words of text in each update of an epoch, (updates,) int64."""
    return np.array([text.words[update].sum(dtype=np.int64) for update in epoch.updates])


def optimizer_of(
    model: ModelConfig, training: TrainingConfig, vocab_size: int
) -> optax.GradientTransformationExtraArgs:
    """Returns the optimizer of a run."""
    readout = model.linear_readout
    widths = None if readout.rank is None else (model.feature_size, readout.rank, vocab_size)
    return make_optimizer(training, readout.scaling, widths)
