"""Training, from a configuration to a run directory."""

import math
import time
from pathlib import Path

import numpy as np

from esnlm.config import Experiment
from esnlm.evaluation import scoring
from esnlm.reservoir import recurrence
from esnlm.reservoir.stream import StateStream
from esnlm.text.store import TokenStore
from esnlm.training import batches
from esnlm.training.corpus import Corpus, open_corpus, sha256
from esnlm.training.interruption import Interruption, interruptible
from esnlm.training.resolution import require_same, resolve
from esnlm.training.results import show_results
from esnlm.training.run_directory import RunDirectory
from esnlm.training.state import State, open_model, open_state, save_state
from esnlm.training.summary import Likelihood, summarize, write_summary
from esnlm.training.tracking import Metrics, Progress, say
from esnlm.training.update import make_optimizer, make_update

INTERRUPTED = 75


def train(experiment: Experiment) -> int:
    """Runs an experiment, or what is left of it, in its run directory.

    Returns:
        0 when it is done (also when it was before), 75 when it was interrupted and the same call resumes it.

    Raises:
        InputError: the data, the configuration or the run directory cannot be used.
    """
    directory = RunDirectory(Path(experiment.run))
    with directory.locked():
        before = directory.read_summary()
        if before is not None and before["status"] in ("finished", "diverged"):
            require_same(experiment, directory)
            say(f"{directory.path} is {before['status']} (update {before['step']}); nothing to do")
            return 0
        corpus = open_corpus(experiment, directory)
        experiment = resolve(experiment, directory)
        model = open_model(experiment, corpus, directory)
        state = open_state(experiment, corpus, model, directory)
        stream = StateStream(
            recurrence.prepare(model.reservoir, experiment.compute.kernel),
            experiment.model.reservoir.activation,
            experiment.compute.lanes,
            experiment.compute.window_tokens,
        )
        metrics = Metrics(directory.metrics, state.step)
        with interruptible() as interruption:
            validation = _epochs(experiment, corpus, stream, state, metrics, directory, interruption)
        metrics.close()
        if interruption:
            write_summary(directory, {"status": "interrupted", "step": state.step})
            say(f"stopped at update {state.step} and saved; the same command resumes")
            return INTERRUPTED
        summary = summarize(experiment, corpus, model, state, validation)
        show_results(experiment, directory, corpus, summary)
        # Last: a run that was killed while its results were made resumes there.
        write_summary(directory, summary)
        return 0


def _epochs(
    experiment: Experiment,
    corpus: Corpus,
    stream: StateStream,
    state: State,
    metrics: Metrics,
    directory: RunDirectory,
    interruption: Interruption,
) -> Likelihood | None:
    """All epochs that are left, each followed by validation. Returns the last validation."""
    training, compute = experiment.training, experiment.compute
    lengths = corpus.train.lengths
    per_epoch = math.ceil(len(corpus.train) / training.batch_size)
    optimizer = make_optimizer(training, per_epoch * training.epochs)
    update = make_update(optimizer, compute.precision)
    all_tokens = training.epochs * int(lengths.sum() - len(lengths))
    progress = Progress(all_tokens, state.tokens)
    began, validation = time.monotonic() - state.seconds, None
    thresholds = sorted(training.checkpoint_words)
    pending = []  # losses still on the device

    def collect():
        losses = [float(loss) for loss in pending]
        pending.clear()
        state.epoch_loss += float(np.sum(losses, dtype=np.float64))
        state.unlogged += losses
        state.seconds = time.monotonic() - began

    def log(epoch):
        collect()
        loss = float(np.mean(state.unlogged, dtype=np.float64))
        state.unlogged = []
        speed = state.tokens / state.seconds
        metrics.write(
            step=state.step, epoch=epoch + 1, tokens=state.tokens, words=state.words, train_nll=loss, tokens_per_second=speed
        )
        text = f"epoch {epoch + 1}/{training.epochs}  update {state.step}/{per_epoch * training.epochs}  train NLL {loss:.3f}"
        progress.show(state.tokens, text, final=state.step == per_epoch * training.epochs)

    def save(permanent=False):
        collect()
        save_state(state, directory, sha256(corpus.train), training.keep_checkpoints, permanent)

    for epoch in range(training.epochs):
        first = epoch * per_epoch  # of the epoch's updates, counted over all epochs
        if state.step > first + per_epoch:
            continue
        order = batches.epoch_order(len(corpus.train), experiment.seed, epoch)
        updates = batches.split_updates(order, training.batch_size)
        tokens = np.array([int(lengths[batch].sum()) - len(batch) for batch in updates])
        for window in batches.split_windows(tokens, compute.window_tokens):
            if first + window.stop <= state.step:
                continue
            inputs = [corpus.train.sentence(s) for u in window for s in updates[u]]
            buffer, rows = stream.read([sentence[:-1] for sentence in inputs])
            place = 0
            for u in window:
                here = slice(place, place := place + len(updates[u]))
                if first + u < state.step:
                    continue  # a resumed run begins inside a window
                if u == 0:
                    state.epoch_loss = 0.0
                packed = batches.pack(rows[here], [sentence[1:] for sentence in inputs[here]], compute.chunk_tokens)
                state.params, state.optimizer, loss = update(
                    state.params, state.optimizer, buffer, packed.rows, packed.targets, packed.weights
                )
                pending.append(loss)
                words = state.words
                state.step += 1
                state.tokens += int(tokens[u])
                state.words += int(corpus.train.words[updates[u]].sum())
                last = state.step == first + per_epoch
                if state.step % training.log_every == 0 or last:
                    log(epoch)
                crossed = any(words < threshold <= state.words for threshold in thresholds)
                if crossed or last or state.step % training.checkpoint_every == 0 or interruption:
                    save(permanent=crossed)
                if interruption:
                    return None
        validation = _validate(experiment, corpus.validation, stream, state.params, interruption)
        if interruption:
            return None
        if validation is not None:
            metrics.write(step=state.step, epoch=epoch + 1, val_nll=validation.nll, val_bits_per_byte=validation.bits_per_byte)
    return validation


def _validate(experiment, store: TokenStore | None, stream, params, interruption) -> Likelihood | None:
    """NLL over the validation store; None where there is none, or where it was interrupted."""
    if store is None:
        return None
    compute = experiment.compute
    nats = tokens = 0
    progress = Progress(int(store.lengths.sum()) - len(store))
    windows = scoring.total_nll(stream, params, store, compute.precision, compute.window_tokens, compute.chunk_tokens)
    for window_nats, window_tokens in windows:
        nats, tokens = nats + window_nats, tokens + window_tokens
        progress.show(tokens, f"validation  NLL {nats / tokens:.3f}", final=tokens == progress.total)
        if interruption:
            return None
    return Likelihood(nats, tokens, int(store.bytes.sum(dtype=np.int64)), int(store.words.sum(dtype=np.int64)))
