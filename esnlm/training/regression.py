"""Runs whose readout is a regression onto one-hot targets: ridge, RLS or LMS, on features that are computed ahead.

1. A window of sentences, in the order of the seed: its features, once.
2. The method takes them in (regression/ridge.py, rls.py, lms.py): its sums are all that a stopped run needs to go on.
3. After the last window it makes linear scores of them, and one rule makes these logits (regression/calibration.py). What
   is saved is an ordinary readout, so that nothing else knows how it came about.

Held-out text, on which the regularisation is chosen and the rule fitted, is a sample of the training text, which is not
learned from. So the validation text is as new to a regression as it is to AdamW, and their figures can stand side by side.
"""

import os
import shutil
import time

import jax
import numpy as np

from esnlm.config import Experiment
from esnlm.data.corpus import Corpus, unigram_counts
from esnlm.data.store import TokenStore
from esnlm.errors import InputError
from esnlm.evaluation import scoring
from esnlm.features.stream import FeatureStream
from esnlm.models.ngrams import UnigramModel
from esnlm.regression import lms, ridge, rls
from esnlm.regression.calibration import HeldOut
from esnlm.rng import Stream, generator
from esnlm.runs import checkpoint
from esnlm.runs.console import Progress, say, warn
from esnlm.runs.directory import RunDirectory
from esnlm.runs.metrics import Metrics
from esnlm.training import batches
from esnlm.training.interruption import Interruption
from esnlm.training.state import COUNTERS, State, save_state

METHODS = {"ridge": ridge, "rls": rls, "lms": lms}

MOST_HELD_OUT = 0.1  # of the training text


def require_memory(experiment: Experiment, vocab_size: int) -> None:
    """Raises InputError where a regression needs more memory than the machine has."""
    needed, there = memory(experiment, vocab_size), os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > there:
        raise InputError(
            f"training.kind is {experiment.training.kind}: at {experiment.model.feature_size:,} features and {vocab_size:,} tokens it"
            f" needs {needed / 1e9:,.1f} GB of memory and this machine has {there / 1e9:,.1f} GB; choose a smaller"
            " model.reservoir.state_size, or training.kind adamw"
        )


def memory(experiment: Experiment, vocab_size: int) -> int:
    """Bytes of the method at its peak, with the features and scores of held-out text."""
    training, model = experiment.training, experiment.model
    method = METHODS[training.kind].memory(model.feature_size, vocab_size, model.readout.rank)
    return method + 4 * training.held_out_tokens * (2 * model.feature_size + vocab_size)


def open_state(experiment: Experiment, corpus: Corpus, model, directory: RunDirectory) -> State:
    """The state of a finished fit, or the newest good sums, or none yet; `optimizer` holds the sums.

    Raises:
        InputError: no checkpoint is good, or the disk is too full.
    """
    newest = checkpoint.restore_newest(directory.checkpoints, warn) or checkpoint.restore_newest(directory.sums, warn)
    if newest is None:
        method, vocab_size = METHODS[experiment.training.kind], corpus.tokenizer.vocab_size
        sums = method.start(experiment.training, experiment.model.feature_size, vocab_size)
        size = sum(array.nbytes for array in jax.tree.leaves((sums, model.params)))
        checkpoint.require_free_space(directory.path, 2 * size)
        return State(model.params, sums)
    step, arrays, metadata = newest
    say(f"resuming at update {step}")
    counters = {name: metadata[name] for name in COUNTERS if name in metadata}
    if "sums" in arrays:
        return State(
            model.params,
            {name: np.require(array, requirements="CW") for name, array in arrays["sums"].items()},
            **counters,
        )
    return State(jax.tree.map(jax.numpy.asarray, arrays["params"]), (), **counters)


def fit(
    experiment: Experiment,
    corpus: Corpus,
    stream: FeatureStream,
    state: State,
    metrics: Metrics,
    directory: RunDirectory,
    interruption: Interruption,
) -> None:
    """What is left of a regression: then the readout is in state.params and saved, or a stopped run's sums are."""
    training, compute = experiment.training, experiment.compute
    if state.regression:
        return  # only what follows was cut short
    learned, held_out = split(corpus.train, experiment.seed, training.held_out_tokens)
    _take_in(experiment, corpus.train, learned, stream, state, metrics, directory, interruption)
    if interruption:
        return
    began = time.monotonic() - state.seconds
    say(f"{training.kind}: making the readout")
    held_out = HeldOut(*_features(stream, corpus.train, held_out, compute.window_tokens))
    counts = unigram_counts(corpus.train, corpus.tokenizer)
    log_p = UnigramModel.from_counts(counts - np.bincount(held_out.targets, minlength=len(counts))).log_p
    readout, record = METHODS[training.kind].make(
        training, experiment.model.readout.rank, state.optimizer, held_out, log_p
    )
    state.params, state.optimizer = {"readout": jax.tree.map(jax.numpy.asarray, readout)}, ()
    state.step += 1
    sample = _sample(corpus.train, learned, experiment.seed, training.held_out_tokens)
    windows = scoring.total_nll(
        stream,
        readout,
        [corpus.train.sentence(s) for s in sample],
        compute.precision,
        compute.window_tokens,
        compute.chunk_tokens,
    )
    for nats, tokens in windows:  # the train NLL is that of a sample, under the readout as it is at the end
        state.epoch_loss += nats
        state.epoch_updates += tokens
    state.seconds, state.regression = time.monotonic() - began, record
    metrics.write(step=state.step, tokens=state.tokens, train_nll=state.epoch_loss / state.epoch_updates, **record)
    state.metrics_sha256 = metrics.sha256
    save_state(state, directory, keep=1, permanent=False)
    shutil.rmtree(directory.sums, ignore_errors=True)


def _take_in(experiment, text, learned, stream, state, metrics, directory, interruption):
    """Every window that is left, or those up to an interruption."""
    training, compute, method = experiment.training, experiment.compute, METHODS[experiment.training.kind]
    lengths = text.lengths - 1  # predictions of each sentence
    progress, began = (
        Progress(training.epochs * int(lengths[learned].sum()), state.tokens),
        time.monotonic() - state.seconds,
    )
    seen = number = 0
    for epoch in range(training.epochs):
        order = generator(experiment.seed, Stream.SENTENCE_ORDER, epoch).permutation(learned)
        for window in batches.split_windows(lengths[order], compute.window_tokens):
            sentences = order[window.start : window.stop]
            seen, number = seen + int(lengths[sentences].sum()), number + 1
            if seen <= state.tokens:
                continue
            some = batches.sentences(text, sentences)
            buffer, rows = stream.read(some.inputs)
            targets = np.concatenate(some.targets)
            if training.kind == "lms":
                state.step += method.add(training, state.optimizer, buffer, rows, targets, compute.precision)
            else:
                state.step += method.add(training, state.optimizer, np.asarray(buffer), np.concatenate(rows), targets)
            state.tokens, state.words = seen, state.words + int(text.words[sentences].sum(dtype=np.int64))
            state.seconds = time.monotonic() - began
            speed = seen / state.seconds
            metrics.write(step=state.step, epoch=epoch + 1, tokens=seen, words=state.words, tokens_per_second=speed)
            progress.show(
                seen, f"epoch {epoch + 1}/{training.epochs}  update {state.step}", final=seen == progress.total
            )
            if interruption or number % training.checkpoint_every == 0:
                state.metrics_sha256 = metrics.sha256
                metadata = {name: getattr(state, name) for name in COUNTERS}
                checkpoint.save(directory.sums / str(state.step), {"sums": state.optimizer}, metadata)
                checkpoint.prune(directory.sums, keep=1)
            if interruption:
                return


def split(text: TokenStore, seed: int, tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """The sentences to learn from, by number, and those of about so many predictions that are held out."""
    everything = np.arange(len(text))
    held_out = _sample(text, everything, seed, min(tokens, MOST_HELD_OUT * int((text.lengths - 1).sum())))
    return np.setdiff1d(everything, held_out), held_out


def _sample(store: TokenStore, sentences: np.ndarray, seed: int, tokens: float) -> np.ndarray:
    """Some of the sentences, drawn from the seed: as few as have so many predictions, or all."""
    order = generator(seed, Stream.HELD_OUT).permutation(sentences)
    return order[: 1 + int(np.searchsorted(np.cumsum(store.lengths[order] - 1), tokens))]


def _features(stream, store, sentences, window_tokens):
    """Features (n, N) and targets (n,) of sentences of a store, by number."""
    features, targets = [], []
    for window in batches.split_windows(store.lengths[sentences] - 1, window_tokens):
        some = batches.sentences(store, sentences[window.start : window.stop])
        buffer, rows = stream.read(some.inputs)
        features.append(np.asarray(buffer)[np.concatenate(rows)])
        targets += some.targets
    return np.concatenate(features), np.concatenate(targets)
