"""Training, from a configuration to a run directory."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from esnlm.config import Experiment
from esnlm.data.store import TokenStore
from esnlm.evaluation import scoring
from esnlm.reporting.run_results import references, show_results
from esnlm.runs import checkpoint
from esnlm.runs.console import Progress, say, warn
from esnlm.runs.directory import RunDirectory
from esnlm.runs.metrics import Metrics
from esnlm.training import batches, regression
from esnlm.training.corpus import Corpus, open_corpus
from esnlm.training.end_to_end import EndToEndUpdates
from esnlm.training.interruption import Interruption, interruptible
from esnlm.training.log import Ledger
from esnlm.training.precomputed import PrecomputedUpdates
from esnlm.training.resume import require_same, resolve
from esnlm.training.state import State, note_changes, open_model, open_state, save_state, warn_of_damage
from esnlm.training.summary import Likelihood, summarize, write_summary

INTERRUPTED = 75


def train(experiment: Experiment, allowed: Sequence[str] = ()) -> int:
    """Runs an experiment, or what is left of it, in its run directory.

    Args:
        allowed: settings that may differ from those that the run was begun with (training/resume.py).

    Returns:
        0 when it is done (also when it was before), 75 when it was interrupted and the same call resumes it.

    Raises:
        InputError: the data, the configuration or the run directory cannot be used.
    """
    directory = RunDirectory(Path(experiment.run))
    try:
        with interruptible() as interruption, directory.locked():
            return _train(experiment, directory, interruption, allowed)
    except KeyboardInterrupt:  # while nothing was to be saved
        say("stopped; the same command resumes")
        return INTERRUPTED


def _train(experiment: Experiment, directory: RunDirectory, interruption: Interruption, allowed: Sequence[str]) -> int:
    directory.require_intact(*directory.fixed_files, warn=warn)
    if (before := directory.read_summary(warn)) is not None:
        require_same(experiment, directory, allowed)
        warn_of_damage(directory, before["step"])
        say(f"{directory.path} is {before['status']} (update {before['step']}); nothing to do")
        return 0
    with directory.rollback_on_error():
        experiment, changes = resolve(experiment, directory, allowed)
        corpus = open_corpus(experiment, directory)
        is_regression = experiment.training.kind in regression.METHODS
        if is_regression:
            regression.require_memory(experiment, corpus.tokenizer.vocab_size)
        model = open_model(experiment, corpus, directory)
        state = (regression.open_state if is_regression else open_state)(experiment, corpus, model, directory)
        if not directory.manifest.exists():
            directory.update_manifest(
                *directory.fixed_files, frozen_sha256=checkpoint.metadata(directory.frozen).get("sha256")
            )
    note_changes(state, changes)
    ready = model.for_device(experiment.compute)
    with Metrics(directory.metrics, state.step, state.metrics_sha256) as metrics, interruption.awaited():
        train_readout = _regression if is_regression else _epochs
        validation = train_readout(experiment, corpus, ready, state, metrics, directory, interruption)
    if interruption:
        write_summary(directory, {"status": "interrupted", "step": state.step})
        say(f"stopped at update {state.step} and saved; the same command resumes")
        return INTERRUPTED
    summary = summarize(experiment, corpus, model, state, validation)
    summary["references"] = references(experiment, corpus)
    show_results(experiment, directory, corpus, summary)
    # Last: a run that was killed while its results were made resumes there.
    write_summary(directory, summary)
    directory.update_manifest(directory.metrics, directory.summary)
    return 0


def _epochs(
    experiment: Experiment,
    corpus: Corpus,
    model,
    state: State,
    metrics: Metrics,
    directory: RunDirectory,
    interruption: Interruption,
) -> Likelihood | None:
    """All epochs that are left, each followed by validation. Returns the last validation."""
    training, compute, text = experiment.training, experiment.compute, corpus.train
    plan = partial(batches.plan_epoch, text.lengths, experiment.seed)
    epochs = [plan(epoch, training.batch_size, compute.window_tokens) for epoch in range(training.epochs)]
    per_epoch = len(epochs[0].updates)
    if experiment.model.features_are_frozen:
        updates = PrecomputedUpdates(experiment, model.stream(compute), text, epochs)
    else:
        updates = EndToEndUpdates(experiment, model, text, epochs)
    ledger = Ledger(state, metrics, training.epochs, per_epoch, sum(int(epoch.tokens.sum()) for epoch in epochs))
    all_words, validation = int(text.words.sum(dtype=np.int64)), None

    def validate() -> Likelihood | None:
        return _validate(experiment, corpus.validation, updates.features_with(state.params), state.params, interruption)

    def broken() -> bool:
        return training.on_nonfinite == "stop" and state.skipped > 0

    if broken():  # it had stopped, and was interrupted before its end was on record
        return validate()
    for number, epoch in enumerate(epochs):
        begin = number * per_epoch  # steps are counted over all epochs
        if state.step > begin + per_epoch:
            continue
        words = np.array([text.words[update].sum(dtype=np.int64) for update in epoch.updates])
        passed = all_words * number + np.cumsum(words)
        keep = {
            begin + 1 + int(np.searchsorted(passed, count))
            for count in training.checkpoint_words
            if all_words * number < count <= passed[-1]
        }

        def due(step: int, every: int) -> bool:
            return step % every == 0 or step == begin + per_epoch

        for window in epoch.windows:
            if begin + window.stop <= state.step:
                continue
            updates.load(number, epoch, window)
            while state.step < begin + window.stop:  # a resumed run begins inside a window
                first = last = state.step - begin
                # Where the first update that is not finite ends the run, none may be under way beside it.
                at_once = 1 if training.on_nonfinite == "stop" else ledger.updates_per_call
                while last < min(window.stop, first + at_once):
                    last += 1
                    if (
                        due(begin + last, training.log_every)
                        or due(begin + last, training.checkpoint_every)
                        or begin + last in keep
                    ):
                        break
                inside = first - window.start, last - window.start
                state.params, state.optimizer, losses, applied = updates.run(state.params, state.optimizer, *inside)
                state.step = begin + last
                state.tokens += int(epoch.tokens[first:last].sum())
                state.words += int(words[first:last].sum())
                ledger.enter(losses, applied, *inside, due(state.step, training.log_every), updates.fault)
                stop = bool(interruption)
                if (
                    due(state.step, training.checkpoint_every)
                    or state.step in keep
                    or stop
                    or training.on_nonfinite == "stop"
                ):
                    ledger.settle()
                if due(state.step, training.checkpoint_every) or state.step in keep or stop or broken():
                    save_state(state, directory, training.keep_checkpoints, permanent=state.step in keep)
                if stop:
                    return None
                if broken():
                    return validate()
        with ledger.paused():
            validation = validate()
        if interruption:
            return None
        if validation is not None:
            nll, bits = validation.nll, validation.bits_per_byte
            metrics.write(step=state.step, epoch=number + 1, val_nll=nll, val_bits_per_byte=bits)
    return validation


def _regression(experiment, corpus, model, state, metrics, directory, interruption) -> Likelihood | None:
    """What is left of a regression, then validation."""
    stream = model.stream(experiment.compute)
    regression.fit(experiment, corpus, stream, state, metrics, directory, interruption)
    validation = None if interruption else _validate(experiment, corpus.validation, stream, state.params, interruption)
    if validation is not None:
        epoch, nll, bits = experiment.training.epochs, validation.nll, validation.bits_per_byte
        metrics.write(step=state.step, epoch=epoch, val_nll=nll, val_bits_per_byte=bits)
    return validation


def _validate(experiment, store: TokenStore | None, stream, params, interruption) -> Likelihood | None:
    """NLL over the validation store; None where there is none, or where it was interrupted."""
    if store is None:
        return None
    compute = experiment.compute
    nats = tokens = 0
    progress = Progress(int(store.lengths.sum()) - len(store))
    readout = experiment.model.readout_arrays(params)
    windows = scoring.total_nll(stream, readout, store, compute.precision, compute.window_tokens, compute.chunk_tokens)
    for window_nats, window_tokens in windows:
        nats, tokens = nats + window_nats, tokens + window_tokens
        progress.show(tokens, f"validation  NLL {nats / tokens:.3f}", final=tokens == progress.total)
        if interruption:
            return None
    return Likelihood(nats, tokens, int(store.bytes.sum(dtype=np.int64)), int(store.words.sum(dtype=np.int64)))
