"""The training of a run, from top to bottom: resume, features, update, logging, checkpoint, validation."""

import dataclasses
import time
from functools import partial
from typing import Any

import jax
import numpy as np
import optax

from esnlm import background, compilation_cache
from esnlm.compute import ComputeConfig, backend, in_float32
from esnlm.config import Experiment, TrainingConfig
from esnlm.data.corpus import Corpus, unigram_counts
from esnlm.data.store import TokenStore
from esnlm.distributed import group
from esnlm.evaluation import likelihood
from esnlm.evaluation.likelihood import Likelihood
from esnlm.features.stream import FeatureStream, SentenceFeatures
from esnlm.io.console import Progress, detail, say, warn
from esnlm.models.base import LanguageModel
from esnlm.parallel.mesh import in_host_memory
from esnlm.parallel.placement import Placement
from esnlm.readout import padding
from esnlm.readout.padding import VocabularyPadding
from esnlm.regression.base import Fitter
from esnlm.runs.directory import RunDirectory
from esnlm.runs.metrics import Metrics
from esnlm.training import batches, parent, readout_regression
from esnlm.training.end_to_end import EndToEndUpdates
from esnlm.training.interruption import Interruption
from esnlm.training.learning_rate import learning_rates
from esnlm.training.log import TrainingLog
from esnlm.training.memory_check import require_memory
from esnlm.training.plan import count_updates
from esnlm.training.precomputed import PrecomputedUpdates
from esnlm.training.profile import Profile
from esnlm.training.schedule import Call, Schedule, not_reached, steps_at_words
from esnlm.training.state import State, open_model, open_state, save_state
from esnlm.training.update import CallResult, Updates, make_optimizer
from esnlm.training.usage import usage_of


def open_training(experiment: Experiment, corpus: Corpus, directory: RunDirectory) -> tuple[LanguageModel, State]:
    """Returns the model before its first update, and the state that the run goes on from: a checkpoint's, or a fresh one.

    Raises:
        InputError: the machine has too little memory or disk, or what was saved is damaged.
    """
    training, vocab_size, features = experiment.training, corpus.tokenizer.vocab_size, experiment.model.feature_size
    placement = experiment.model.placement(experiment.compute, vocab_size)
    is_cut = placement is not None and placement.units > 1
    if isinstance(training, Fitter):
        readout_regression.require_memory(training, features, vocab_size, experiment.model.readout_rank)
        with group.in_turn(), in_host_memory(is_cut):
            model = open_model(experiment.model, vocab_size, experiment.seed, directory, corpus.train)
        return model, readout_regression.open_state(training, model.params, features, vocab_size, directory)
    require_memory(experiment, vocab_size)
    with group.in_turn(), in_host_memory(is_cut):
        model = open_model(experiment.model, vocab_size, experiment.seed, directory, corpus.train)
    if initial := parent.restore_initial(experiment, directory):
        model = model.with_params(jax.tree.map(jax.numpy.asarray, initial["params"]))
    optimizer = optimizer_of(experiment, training, vocab_size)
    moments = initial.get("optimizer")
    if experiment.parent.keep_optimizer:
        moments = moments or {}  # of an imported model
    return model, open_state(model.params, optimizer, directory, training, placement, moments)


def train(
    experiment: Experiment,
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
        (validation, ended): the last validation, None where it was interrupted or there is no validation text, and whether the run
        came to its end, the last validation included.
    """
    training, compute = experiment.training, experiment.compute
    detail(f"computing on {jax.devices()[0].device_kind}: {_spell(compute)}")
    placement = experiment.model.placement(compute, corpus.tokenizer.vocab_size)
    ready = model.for_device(compute, placement)
    if isinstance(training, TrainingConfig):
        return _train_by_gradients(
            experiment, training, corpus, ready, state, metrics, directory, interruption, profile
        )
    stream = ready.stream(compute, placement)
    # `Experiment.check` and `resolve` see to both.
    assert isinstance(stream, FeatureStream) and compute.window_tokens is not None
    readout_regression.ReadoutRegression(
        fitter=training,
        rank=experiment.model.readout_rank,
        seed=experiment.seed,
        store=corpus.train,
        counts=unigram_counts(corpus.train, corpus.tokenizer),
        stream=stream,
        precision=compute.precision,
        window_tokens=compute.window_tokens,
        chunk_tokens=compute.chunk_tokens,
    ).run(state, metrics, directory, interruption)
    if interruption:
        return None, False
    params = state.params if placement is None else placement.place(state.params)
    validation = _validate(experiment, ready, stream, params, corpus.validation, interruption)
    _log_validation(metrics, state.step, training.epochs, validation)
    return validation, _is_measured(validation, corpus)


def _spell(compute: ComputeConfig) -> str:
    """Returns the settings of the section compute, with what was chosen for the device."""
    return ", ".join(f"{name} {value}" for name, value in dataclasses.asdict(compute).items() if value is not None)


def _train_by_gradients(
    experiment: Experiment,
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
    text, window_tokens = corpus.train, experiment.compute.window_tokens
    assert window_tokens is not None  # `resolve` has chosen it for the device.
    stop_on_nonfinite = training.on_nonfinite == "stop"

    # 1. Resume. The seed alone decides the sentences of every update, so the state's step says where the run stands.
    epochs = [
        batches.plan_epoch(text.lengths, experiment.seed, epoch, training.batch_size, window_tokens, training.order)
        for epoch in range(training.epochs)
    ]
    words = [_words_of_updates(text, epoch) for epoch in epochs]
    for line in not_reached(training, words):
        warn(line)
    schedule = Schedule(
        [epoch.windows for epoch in epochs],
        training.log_every,
        training.checkpoint_every,
        permanent=steps_at_words(words, training.checkpoint_words),
        ends_of_calls=profile.ends_of_calls,
        one_update_a_call=stop_on_nonfinite,
        validate_every=training.validate_every,
    )
    # On disk the arrays have V rows, on an accelerator a multiple of a tile. What is saved goes through `trimmed`.
    # The placement on a mesh of devices does this by itself.
    can_be_padded = experiment.model.readout_can_be_padded and state.placement is None
    padded = padding.choose(corpus.tokenizer.vocab_size, backend(), can_be_padded=can_be_padded)
    updates = _open_updates(experiment, training, model, text, epochs, np.concatenate(words), padded, state.placement)
    state.params, state.optimizer = padded.pad_params(state.params), padded.pad_moments(state.optimizer)

    def trimmed() -> State:
        return dataclasses.replace(state, params=padded.trim(state.params), optimizer=padded.trim(state.optimizer))

    def validate() -> Likelihood | None:
        # An average was padded like the moments of the optimizer, or moved away from the padding that the readout needs.
        params = state.params if training.ema is None else padded.pad_params(padded.trim(state.evaluated))
        return _validate(experiment, model, updates.features_with(params), params, corpus.validation, interruption)

    def take_up(validation: Likelihood | None) -> bool:
        """Logs a validation, and returns whether the run ends with it: it was the last one of too many without a new best."""
        _log_validation(metrics, state.step, (state.step - 1) // schedule.updates_per_epoch + 1, validation)
        if validation is None or training.stop_after is None:
            return False
        # Of several processes one says how good it was, since they must end together.
        state.note_validation(group.agree(validation.nll), training.stop_margin)
        return state.validations_since_best >= training.stop_after

    validation, updates_in_all = None, count_updates(training, len(text))
    # The process before may have been killed between its last checkpoint and what follows it. Where the run had stopped at
    # an update that is not finite, its summary was not written. Where a validation was due, it may not have been logged,
    # and the checkpoint does not know its outcome. Both need the validation, so it is computed again.
    stopped = stop_on_nonfinite and state.skipped > 0
    if stopped or schedule.validates(state.step):
        validation = validate()
        if not _is_measured(validation, corpus):
            return None, False
        ends = take_up(validation) or stopped or state.step == updates_in_all
        if ends or interruption:
            return validation, ends

    predictions = sum(int(epoch.predictions.sum()) for epoch in epochs)
    usage = usage_of(experiment, corpus.tokenizer.vocab_size)
    log = TrainingLog(state, metrics, training.epochs, schedule.updates_per_epoch, predictions, usage)
    first_step = state.step
    for call in schedule.calls(state.step, lambda: group.agree(log.updates_per_call())):
        # 2. Features: those of a window of updates at once, where nothing that decides them is trained.
        # 3. Updates, as many as fit between here and what is due next. The first call of a process compiles them.
        epoch, done = epochs[call.epoch], slice(call.first, call.last)
        if profile.begins_after(state.step):
            log.flush()
            with log.paused():
                profile.begin()
        if state.step == first_step:
            with interruption.at_once():
                state.params, state.optimizer, result = _first_call(updates, state, call)
                group.meet()  # Until all have compiled, any of them may leave.
        else:
            if call.opens_window:
                updates.load(call.epoch, call.window)
            state.params, state.optimizer, result = updates.run(state.params, state.optimizer, *call.in_window)
        state.step = call.step
        state.tokens += int(epoch.predictions[done].sum())
        state.words += int(words[call.epoch][done].sum())

        # 4. Logging, one call late: the device is never waited for, but where the state is to be saved or looked at. The
        # counters of losses, of skipped updates and of time in `state` therefore lag one call until `log.flush`.
        log.push(result, call.in_window, call.log)
        if profile.ends_after(state.step):
            log.flush()
            with log.paused():
                profile.end()
        interrupted = bool(interruption)
        if call.checkpoint or interrupted or stop_on_nonfinite:
            log.flush()
        stopped = stop_on_nonfinite and state.skipped > 0

        # 5. Checkpoint.
        if call.checkpoint or interrupted or stopped:
            save_state(trimmed(), directory, training.keep_checkpoints, call.permanent)
        if interrupted:
            return None, False

        # 6. Validation, every so many updates and at the end of each epoch, or of a run that stops here.
        if call.validate or stopped:
            with log.paused(recurs=True):
                validation = validate()
            if not _is_measured(validation, corpus):
                return None, False
            ends = take_up(validation) or stopped or state.step == updates_in_all
            if ends or interruption:  # which a listener may have asked for, when it was told of the validation
                return validation, ends
    return validation, True


def _first_call(updates: Updates, state: State, call: Call) -> tuple[dict, Any, CallResult]:
    """Returns what `updates.run` returns for the first call of a process, and says so where it takes long to compile.

    A signal handler may raise KeyboardInterrupt meanwhile. The work is then left behind (background.py). It runs in another
    thread, to which `in_float32` of the caller does not reach.
    """
    began: float | None = None

    def say_compiling() -> None:
        nonlocal began
        began = time.monotonic() - background.SLOW
        say(f"compiling the update{updates.sizes()}")

    with compilation_cache.savings() as saved:
        background.run(in_float32(partial(updates.load, call.epoch, call.window)))
        run = partial(updates.run, state.params, state.optimizer, *call.in_window)
        result = background.run(in_float32(run), say_compiling)
    if began is not None:
        say(f"compiled in {time.monotonic() - began:.0f} s")
    if saved.programs:
        say(str(saved))
    return result


def _words_of_updates(text: TokenStore, epoch: batches.EpochPlan) -> np.ndarray:
    """Returns the words of text in each update of an epoch, (updates,) int64."""
    firsts = np.cumsum([0, *map(len, epoch.updates[:-1])])
    return np.add.reduceat(text.words[np.concatenate(list(epoch.updates))].astype(np.int64), firsts)


def _open_updates(
    experiment: Experiment,
    training: TrainingConfig,
    model: LanguageModel,
    text: TokenStore,
    epochs: list[batches.EpochPlan],
    words: np.ndarray,
    padded: VocabularyPadding,
    placement: Placement | None,
) -> Updates:
    """Returns what runs the updates: with precomputed features, or with features inside each gradient."""
    needed: dict[str, Any] = {
        "model": model,
        "compute": experiment.compute,
        "seed": experiment.seed,
        "store": text,
        "epochs": epochs,
        "optimizer": padded.hold(optimizer_of(experiment, training, padded.vocab_size)),
        "rates": learning_rates(training, count_updates(training, len(text)), words),
        "on_nonfinite": training.on_nonfinite,
        "placement": placement,
    }
    return PrecomputedUpdates(**needed) if model.config.trains_ahead else EndToEndUpdates(**needed)


def optimizer_of(
    experiment: Experiment, training: TrainingConfig, vocab_size: int
) -> optax.GradientTransformationExtraArgs:
    """Returns the optimizer of a run."""
    model = experiment.model
    widths = None if model.readout_rank is None else (model.feature_size, model.readout_rank, vocab_size)
    return make_optimizer(training, model.readout_scaling, widths)


def _validate(
    experiment: Experiment,
    model: LanguageModel,
    stream: SentenceFeatures,
    params: dict[str, Any],
    store: TokenStore | None,
    interruption: Interruption,
) -> Likelihood | None:
    """Measures a model on the validation text; None where there is no such text, or where it was interrupted.

    Args:
        model: ready for the device; its own trained arrays may be overwritten.
        stream: its features.
        params: its trained arrays, those of the readout among them.
        store: the validation text.
    """
    if store is None:
        return None
    progress = Progress(int(store.lengths.sum()) - len(store))

    def on_progress(nats: float, tokens: int) -> bool:
        progress.show(tokens, f"validation  NLL {nats / tokens:.3f}", final=tokens == progress.total)
        return bool(interruption)

    readout = model.readout_arrays(params)
    return likelihood.of_model(stream, readout, store, experiment.compute, on_progress)


def _is_measured(validation: Likelihood | None, corpus: Corpus) -> bool:
    """Tells whether a validation came to its end, and was not interrupted."""
    return validation is not None or corpus.validation is None


def _log_validation(metrics: Metrics, step: int, epoch: int, validation: Likelihood | None) -> None:
    """Writes the line of metrics of a validation, if there was one."""
    if validation is not None:
        figures = ("nll", "nll_without_eos", "bits_per_byte")
        metrics.write(step=step, epoch=epoch, **{f"val_{name}": getattr(validation, name) for name in figures})
