"""The training of a run, from top to bottom: resume, features, update, logging, checkpoint, validation."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import optax

from esnlm.compute import ResolvedCompute
from esnlm.config import ResolvedExperiment, TrainingConfig
from esnlm.data.corpus import Corpus, unigram_counts
from esnlm.data.store import TokenStore
from esnlm.distributed import group
from esnlm.evaluation import likelihood
from esnlm.evaluation.likelihood import Likelihood
from esnlm.features.stream import FeatureStream, SentenceFeatures
from esnlm.io.console import Progress, detail, warn
from esnlm.models.base import LanguageModel, ModelConfig
from esnlm.models.devices import placement_of
from esnlm.regression.base import Fitter
from esnlm.runs import checkpoint
from esnlm.runs.directory import RunDirectory
from esnlm.runs.metrics import Metrics
from esnlm.training import batches, readout_regression
from esnlm.training.end_to_end import EndToEndUpdates
from esnlm.training.interruption import Interruption
from esnlm.training.learning_rate import learning_rates
from esnlm.training.log import TrainingLog
from esnlm.training.plan import count_updates, require_memory
from esnlm.training.precomputed import PrecomputedUpdates
from esnlm.training.profile import Profile
from esnlm.training.readout_regression import ReadoutRegression
from esnlm.training.schedule import Schedule, not_reached, steps_at_words
from esnlm.training.state import State, open_model, open_state, save_state
from esnlm.training.update import Updates, make_optimizer
from esnlm.training.usage import usage_of


def open_training(
    experiment: ResolvedExperiment, corpus: Corpus, directory: RunDirectory
) -> tuple[LanguageModel, State]:
    """Returns the model before its first update, and the state that the run goes on from: a checkpoint's, or a fresh one.

    Raises:
        InputError: the machine has too little memory or disk, or what was saved is damaged.
    """
    training, config, vocab_size = experiment.training, experiment.model, corpus.tokenizer.vocab_size
    if isinstance(training, Fitter):
        readout_regression.require_memory(training, config.feature_size, vocab_size, config.linear_readout.rank)
    else:
        require_memory(experiment, vocab_size)
    with group.in_turn():
        model = open_model(config, vocab_size, experiment.seed, directory, corpus.train)
    if isinstance(training, Fitter):
        return model, readout_regression.open_state(training, model.params, config.feature_size, vocab_size, directory)
    moments = None
    if experiment.parent.run is not None:
        initial, _ = checkpoint.restore(directory.initial)
        model = model.with_params(jax.tree.map(jax.numpy.asarray, initial["params"]))
        if experiment.parent.keep_optimizer:
            moments = initial.get("optimizer", {})  # An imported model has none.
    optimizer = optimizer_of(config, training, vocab_size)
    placement = placement_of(config, experiment.compute, vocab_size)
    return model, open_state(model.params, optimizer, directory, training, placement, moments)


def train(
    experiment: ResolvedExperiment,
    corpus: Corpus,
    model: LanguageModel,
    state: State,
    metrics: Metrics,
    directory: RunDirectory,
    interruption: Interruption,
    profile: Profile,
) -> tuple[Likelihood | None, bool]:
    """Trains what is left of a run: by gradients, or by one of the regressions.

    Args:
        state: changes as training goes on.
        metrics: where the losses are logged.
        interruption: becomes true when the process is asked to stop; the state is saved then.
        profile: traces some of the updates; a regression has none.

    Returns:
        (validation, ended): the last validation, None if it was interrupted or there is no validation text, and whether the run
        came to its end, the last validation included.
    """
    training, compute = experiment.training, experiment.compute
    chosen = ", ".join(f"{name} {value}" for name, value in vars(compute).items() if value is not None)
    detail(f"computing on {jax.devices()[0].device_kind}: {chosen}")
    model = model.for_device(compute)
    if isinstance(training, TrainingConfig):
        return _train_by_gradients(
            experiment, training, corpus, model, state, metrics, directory, interruption, profile
        )
    placement = placement_of(experiment.model, compute, corpus.tokenizer.vocab_size)
    if placement.mesh is None:
        placement = dataclasses.replace(placement, rows=placement.vocab_size)  # A regression does not pad its readout.
    stream = model.stream(compute, placement)
    assert isinstance(stream, FeatureStream), "`Experiment` accepts regressions on frozen features only"
    counts, rank = unigram_counts(corpus.train, corpus.tokenizer), experiment.model.linear_readout.rank
    regression = ReadoutRegression(training, rank, experiment.seed, corpus.train, counts, stream, compute)
    regression.run(state, metrics, directory, interruption)
    if interruption:
        return None, False
    readout = placement.masked(model.readout_arrays(placement.place(state.params)))
    validation = _validate(stream, readout, corpus.validation, compute, interruption)
    _log_validation(metrics, state.step, training.epochs, validation)
    return validation, _is_measured(validation, corpus)


def _train_by_gradients(
    experiment: ResolvedExperiment,
    training: TrainingConfig,
    corpus: Corpus,
    model: LanguageModel,
    state: State,
    metrics: Metrics,
    directory: RunDirectory,
    interruption: Interruption,
    profile: Profile,
) -> tuple[Likelihood | None, bool]:
    """Runs the updates that are left, and returns the last validation and whether the run came to its end, as `train` does."""
    text, compute, vocab_size = corpus.train, experiment.compute, corpus.tokenizer.vocab_size
    stops = training.on_nonfinite == "stop"

    # 1. Resume. The seed alone decides the sentences of every update, so the state's step says where the run stands.
    given = training.batch_size, compute.window_tokens, training.order
    epochs = [batches.plan_epoch(text.lengths, experiment.seed, epoch, *given) for epoch in range(training.epochs)]
    words = np.concatenate([_words_of_updates(text, epoch) for epoch in epochs])
    for line in not_reached(training, words):
        warn(line)
    schedule = Schedule(
        len(epochs[0].updates),
        training.log_every,
        training.checkpoint_every,
        permanent=steps_at_words(words, training.checkpoint_words),
        validate_every=training.validate_every,
    )
    updates_in_all = count_updates(training, len(text))
    make: Callable[..., Updates] = PrecomputedUpdates if model.config.ahead_size else EndToEndUpdates
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

    def validate() -> Likelihood | None:
        params = state.evaluated
        readout = updates.placement.masked(model.readout_arrays(params))
        return _validate(updates.features_with(params), readout, corpus.validation, compute, interruption)

    def take_up(validation: Likelihood | None) -> bool:
        """Logs a validation, and returns whether the run ends with it."""
        _log_validation(metrics, state.step, (state.step - 1) // schedule.updates_per_epoch + 1, validation)
        if validation is not None and training.stop_after is not None:
            # Process 0 says how good it was, since all must end together.
            state.note_validation(group.agree(validation.nll), training.stop_margin)
            if state.validations_since_best >= training.stop_after:
                return True
        return state.step == updates_in_all or (stops and state.skipped > 0)

    validation = None
    # The process before may have been killed between its last checkpoint and what follows it. If the run had stopped at
    # an update that is not finite, its summary was not written. If a validation was due, it may not have been logged,
    # and the checkpoint does not know its outcome. Both need the validation, so it is computed again.
    if (stops and state.skipped > 0) or schedule.due(state.step).validation:
        validation = validate()
        if not _is_measured(validation, corpus):
            return None, False
        ends = take_up(validation)
        if ends or interruption:
            return validation, ends

    predictions, usage = sum(int(epoch.predictions.sum()) for epoch in epochs), usage_of(experiment, vocab_size)
    log = TrainingLog(state, metrics, training.epochs, schedule.updates_per_epoch, predictions, usage, stops)
    loaded: tuple[int, range] | None = None
    for number, window, u in _remaining(epochs, state.step):
        if profile.begins_after(state.step):
            log.flush()
            with log.paused():
                profile.begin()
        # 2. Features: those of a window of updates at once, if nothing that decides them is trained.
        if loaded != (number, window):
            updates.load(number, window)
            loaded = number, window

        # 3. Update: handed to the device, and not waited for.
        state.params, state.optimizer, outcome = updates.run(state.params, state.optimizer, u - window.start)
        state.tokens += int(epochs[number].predictions[u])
        state.words += int(words[state.step])
        state.step += 1

        # 4. Logging, of what the device has done. Several processes must know of a stop after the same update.
        due = schedule.due(state.step)
        log.push(outcome, due.log)
        if profile.ends_after(state.step):
            log.flush()
            with log.paused():
                profile.end()
        interrupted = bool(interruption)
        if due.checkpoint or interrupted or (stops and group.count() > 1):
            log.flush()

        # 5. Checkpoint.
        if log.stopped:
            due = schedule.due(state.step)  # which is that of the update that was left out
        if due.checkpoint or interrupted or log.stopped:
            log.flush()
            save_state(state, directory, training.keep_checkpoints, due.permanent)
        if interrupted:
            return None, False

        # 6. Validation, every so many updates and at the end of each epoch, or of a run that stops here.
        if due.validation or log.stopped:
            with log.paused(recurs=True):
                validation = validate()
            if not _is_measured(validation, corpus):
                return None, False
            ends = take_up(validation)
            if ends or interruption:  # which a listener may have asked for, when it was told of the validation
                return validation, ends
    return validation, True


def _remaining(epochs: list[batches.EpochPlan], step: int) -> Iterator[tuple[int, range, int]]:
    """Yields the updates after `step`: the number of the epoch, the window, and the number of the update in the epoch."""
    before = 0
    for number, epoch in enumerate(epochs):
        for window in epoch.windows:
            for u in range(max(window.start, step - before), window.stop):
                yield number, window, u
        before += len(epoch.updates)


def _words_of_updates(text: TokenStore, epoch: batches.EpochPlan) -> np.ndarray:
    """Returns the words of text in each update of an epoch, (updates,) int64."""
    order = epoch.updates.sentences
    return np.add.reduceat(text.words[order].astype(np.int64), range(0, len(order), epoch.updates.batch_size))


def optimizer_of(
    model: ModelConfig, training: TrainingConfig, vocab_size: int
) -> optax.GradientTransformationExtraArgs:
    """Returns the optimizer of a run."""
    readout = model.linear_readout
    widths = None if readout.rank is None else (model.feature_size, readout.rank, vocab_size)
    return make_optimizer(training, readout.scaling, widths)


def _validate(
    stream: SentenceFeatures,
    readout: dict[str, Any],
    store: TokenStore | None,
    compute: ResolvedCompute,
    interruption: Interruption,
) -> Likelihood | None:
    """Measures a model on the validation text; None if there is no such text, or if it was interrupted."""
    if store is None:
        return None
    progress = Progress(int(store.lengths.sum()) - len(store))

    def on_progress(nats: float, tokens: int) -> bool:
        progress.show(tokens, f"validation  NLL {nats / tokens:.3f}", final=tokens == progress.total)
        return bool(interruption)

    return likelihood.of_model(stream, readout, store, compute, on_progress)


def _is_measured(validation: Likelihood | None, corpus: Corpus) -> bool:
    """Returns whether a validation came to its end, and was not interrupted."""
    return validation is not None or corpus.validation is None


def _log_validation(metrics: Metrics, step: int, epoch: int, validation: Likelihood | None) -> None:
    """Writes the line of metrics of a validation, if there was one."""
    if validation is not None:
        figures = ("nll", "nll_without_eos", "bits_per_byte")
        metrics.write(step=step, epoch=epoch, **{f"val_{name}": getattr(validation, name) for name in figures})
