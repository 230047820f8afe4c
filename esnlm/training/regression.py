"""Training by regression: the readout is fitted onto one-hot targets, on frozen features.

Windows of sentences, in an order drawn from the seed, have their features computed once, and the
fitter (readout/base.py) adds them to its accumulators. After the last window the fitter computes
linear scores, and a rule turns these into log-probabilities (readout/calibration.py). The result is
saved as an ordinary readout.

A sample of the training text is held out of the fit, to choose the regularisation and to fit the
rule. So the validation text stays unseen, as with AdamW.
"""

import dataclasses
import shutil
import time
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from esnlm.base import processes
from esnlm.base.console import Progress, info
from esnlm.base.errors import InputError
from esnlm.base.rng import Stream, generator
from esnlm.data.corpus import unigram_counts
from esnlm.data.sources import CorpusSize
from esnlm.data.store import TokenStore
from esnlm.evaluation import scoring
from esnlm.features.batching import group_by_tokens
from esnlm.features.stream import FeatureStream
from esnlm.machine import mesh as meshes
from esnlm.machine.memory import memory_use
from esnlm.machine.mesh import Placement
from esnlm.models.base import ModelConfig
from esnlm.models.devices import Machine
from esnlm.models.ngrams import NgramModel
from esnlm.readout.base import Fitter, Window
from esnlm.readout.calibration import HeldOut
from esnlm.runs import checkpoint
from esnlm.training import batches
from esnlm.training.state import TrainState, restore_newest, save_state
from esnlm.training.trainer import FLOAT, Monitor, Needs, Session, Trainer

MOST_HELD_OUT = 0.1  # maximum share of the training text


@dataclass(frozen=True)
class RegressionTrainer(Trainer):
    """Fits the readout by ridge regression, recursive least squares or least mean squares."""

    fitter: Fitter
    model: ModelConfig
    size: CorpusSize  # of the training text

    def plan(self, machine: Machine) -> Needs:
        fitter, features = self.fitter, self.model.feature_size
        vocab_size, rank = self.size.vocab_size, self.model.linear_readout.rank
        # The peak of the fit, with the features and scores of held-out text.
        held_out = FLOAT * fitter.held_out_tokens * (2 * features + vocab_size)
        on_host = fitter.memory(features, vocab_size, rank) + held_out
        on_device = fitter.memory_on_device(features, vocab_size)
        readout = FLOAT * self.model.expected_counts(vocab_size).trainable
        return Needs(
            method=fitter.kind,
            work={"readout": fitter.description},
            updates=0,
            trained_bytes=on_host if machine.backend == "cpu" else on_device,
            checkpoint_bytes=fitter.sums_size(features, vocab_size) + readout,
            checkpoints_at_once=2,  # the older one is deleted after the newer one is written
            host_bytes=on_host,
        )

    def open(self, session: Session) -> TrainState:
        directory, params = session.directory, session.model.params
        saved = restore_newest(directory.checkpoints, directory.sums)
        if saved is None:
            accumulators = self.fitter.start(self.model.feature_size, self.size.vocab_size)
            size = sum(array.nbytes for array in jax.tree.leaves((accumulators, params)))
            checkpoint.check_free_space(directory.path, 2 * size)
            return TrainState(params=params, accumulators=accumulators)
        arrays, counters = saved
        if "sums" not in arrays:
            return TrainState(params=jax.tree.map(jnp.asarray, arrays["params"]), **counters)
        accumulators = {
            name: np.require(array, requirements=["C", "W"])
            for name, array in arrays["sums"].items()
        }
        return TrainState(params=params, accumulators=accumulators, **counters)

    def run(self, session: Session, state: TrainState, monitor: Monitor) -> bool:
        compute, placement = session.settings.compute, session.placement
        model = session.model.for_device(compute)
        if placement.mesh is None:  # A regression pads nothing.
            placement = dataclasses.replace(placement, rows=placement.vocab_size)
        stream = model.stream(compute, placement)
        assert isinstance(stream, FeatureStream), (
            "`Experiment` accepts regressions on frozen features only"
        )
        if not state.regression:
            Fit(self.fitter, session, state, monitor, stream, placement).run()
        if monitor.interruption:
            return False
        readout = placement.mask_padding_logits(model.readout_arrays(placement.shard(state.params)))
        return monitor.validate(session, stream, readout, state.step, self.fitter.epochs)

    def describe(self, state: TrainState) -> dict[str, Any]:
        return {"regression": state.regression}


@dataclass(frozen=True)
class Fit:
    """The fit of a run's readout, which `run` continues from a state."""

    fitter: Fitter
    session: Session
    state: TrainState
    monitor: Monitor
    stream: FeatureStream
    placement: Placement  # without padding

    def run(self) -> None:
        """Does the rest of the fit and saves the result: the readout, or the sums if stopped."""
        fitter, state, session = self.fitter, self.state, self.session
        store = session.corpus.train
        learned, held_out = split_held_out(store, session.settings.seed, fitter.held_out_tokens)
        if len(learned) == 0:
            raise InputError(
                f"{store.folder}: the fit holds out whole sentences, and none of its {len(store)}"
                " is left to learn from; give more text, or training.kind gradient, which holds"
                " out none"
            )
        if not self._accumulate(learned):
            return
        began = time.monotonic() - state.seconds
        info(f"{fitter.kind}: making the readout")
        state.step += fitter.finish(state.accumulators, session.settings.compute.precision)
        readout, state.regression = self._solve(held_out)
        state.params, state.accumulators = {"readout": jax.tree.map(jnp.asarray, readout)}, {}
        state.step += 1
        state.train_nll_sum, state.train_nll_count = self._sampled_nll(readout, learned)
        state.seconds = time.monotonic() - began
        speed = state.tokens / state.seconds  # includes the time to make the readout
        figures = {"train_nll": state.train_nll, "tokens_per_second": speed} | state.regression
        self.monitor.metrics.write(step=state.step, tokens=state.tokens, **figures)
        save_state(state, self.placement, session.directory, keep=1)
        if processes.is_rank0():
            shutil.rmtree(session.directory.sums, ignore_errors=True)

    def _accumulate(self, learned: np.ndarray) -> bool:
        """Adds the remaining windows. Returns whether all are done, and not interrupted.

        A window without a complete update (readout/lms.py) is neither logged nor saved; a resumed
        run rereads it.
        """
        fitter, state, settings = self.fitter, self.state, self.session.settings
        store = self.session.corpus.train
        lengths = store.lengths - 1  # predictions of each sentence
        progress = Progress(fitter.epochs * int(lengths[learned].sum()), state.tokens)
        began = time.monotonic() - state.seconds
        seen, number, saved = 0, 0, state.step
        for epoch in range(fitter.epochs):
            order = generator(settings.seed, Stream.SENTENCE_ORDER, epoch).permutation(learned)
            for window in group_by_tokens(lengths[order], settings.compute.window_tokens):
                sentences, number = order[window.start : window.stop], number + 1
                ends = seen + np.cumsum(lengths[sentences])
                seen = int(ends[-1])
                # Skip sentences taken in before a stop, even if the windows were different then.
                sentences = sentences[ends > state.tokens]
                if len(sentences) == 0:
                    continue
                updates = fitter.accumulate(
                    state.accumulators, self._read(sentences), settings.compute.precision
                )
                state.step += updates
                state.tokens = seen
                state.words += int(store.words[sentences].sum(dtype=np.int64))
                state.seconds = time.monotonic() - began
                memory = memory_use()
                if updates:
                    figures = {"tokens_per_second": seen / state.seconds} | memory.values
                    self.monitor.metrics.write(
                        step=state.step, epoch=epoch + 1, tokens=seen, words=state.words, **figures
                    )
                line = f"epoch {epoch + 1}/{fitter.epochs}  update {state.step}  {memory}"
                progress.show(seen, line, final=seen == progress.total)
                stops = bool(self.monitor.interruption)
                if state.step > saved and (stops or number % fitter.checkpoint_every == 0):
                    self._save_sums()
                    saved = state.step
                if stops:
                    return False
        return True

    def _solve(self, held_out: np.ndarray) -> tuple[dict[str, np.ndarray], dict]:
        """Returns the readout and its record; the sentences `held_out` choose and calibrate."""
        corpus, settings = self.session.corpus, self.session.settings
        features, targets = [], []
        lengths = corpus.train.lengths[held_out] - 1
        for sentences in group_by_tokens(lengths, settings.compute.window_tokens):
            window = self._read(held_out[sentences.start : sentences.stop])
            features.append(np.asarray(window.features)[np.concatenate(window.rows)])
            targets.append(window.targets)
        unseen = HeldOut(np.concatenate(features), np.concatenate(targets))
        counts = unigram_counts(corpus.train, corpus.tokenizer)
        counts -= np.bincount(unseen.targets, minlength=len(counts))
        rank = settings.model.linear_readout.rank
        log_p = NgramModel.from_counts(counts).log_p
        return self.fitter.solve(self.state.accumulators, rank, unseen, log_p)

    def _sampled_nll(
        self, readout: dict[str, np.ndarray], learned: np.ndarray
    ) -> tuple[float, int]:
        """Returns the NLL of a sample of the training text, in nats, and its tokens."""
        store, compute = self.session.corpus.train, self.session.settings.compute
        numbers = _sample(store, learned, self.session.settings.seed, self.fitter.held_out_tokens)
        sample = [store.sentence(number) for number in numbers]
        placed = self.placement.shard({"readout": readout})["readout"]
        params = self.placement.mask_padding_logits(placed)
        nats, tokens = 0.0, 0
        for window in scoring.sentence_windows(self.stream, sample, compute.window_tokens):
            log_probs = scoring.window_log_probs(window, params, compute)
            nats, tokens = nats - float(log_probs.sum(dtype=np.float64)), tokens + len(log_probs)
            del window
        return nats, tokens

    def _read(self, sentences: np.ndarray) -> Window:
        """Computes the features of sentences, by number."""
        texts = batches.read_sentences(self.session.corpus.train, sentences)
        features, rows = self.stream.read(texts.inputs)
        # The delta rule runs on the device and diverges on such states like training by gradients.
        if self.fitter.computed_by_host and not bool(jnp.isfinite(features).all()):
            raise InputError(
                f"training.kind is {self.fitter.kind}: the states of some sentences are not finite;"
                " lower model.reservoir.spectral_radius or input_scale, or choose gradient"
            )
        if processes.count() > 1:  # every process fits the whole readout
            features = jnp.asarray(meshes.gather(features))
        return Window(features, rows, np.concatenate(texts.targets))

    def _save_sums(self) -> None:
        """Saves sums/STEP and deletes older ones."""
        state, sums = self.state, self.session.directory.sums
        state.note_memory()
        with processes.written_by_first() as is_writer:
            if is_writer:
                folder = sums / str(state.step)
                checkpoint.save(folder, {"sums": state.accumulators}, state.counters())
                checkpoint.prune(sums, keep=1)


def split_held_out(store: TokenStore, seed: int, tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """Splits the sentences into those to learn from, and about `tokens` predictions to hold out."""
    sentences = np.arange(len(store))
    most = MOST_HELD_OUT * int((store.lengths - 1).sum())
    held_out = _sample(store, sentences, seed, min(tokens, most))
    return np.setdiff1d(sentences, held_out), held_out


def _sample(store: TokenStore, sentences: np.ndarray, seed: int, tokens: float) -> np.ndarray:
    """Draws as few sentences as have `tokens` predictions, or all of them."""
    order = generator(seed, Stream.HELD_OUT).permutation(sentences)
    return order[: 1 + int(np.searchsorted(np.cumsum(store.lengths[order] - 1), tokens))]
