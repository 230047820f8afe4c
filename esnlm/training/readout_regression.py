"""Runs whose readout is a regression onto one-hot targets, on precomputed features.

Windows of sentences, in an order drawn from the seed, have their features computed once, and the
fitter (regression/) adds them to its accumulators. After the last window the fitter computes linear
scores, and a rule turns these into log-probabilities (regression/calibration.py). The result is
saved as an ordinary readout.

A sample of the training text is held out of the fit, to choose the regularisation and to fit the
rule. So the validation text stays unseen, as with AdamW.
"""

import shutil
import time
from dataclasses import dataclass

import jax
import numpy as np

from esnlm.base import processes
from esnlm.base.console import Progress, say
from esnlm.base.errors import InputError
from esnlm.base.rng import Stream, generator
from esnlm.data.store import TokenStore
from esnlm.evaluation import scoring
from esnlm.features.stream import FeatureStream
from esnlm.machine import mesh as meshes
from esnlm.machine.compute import ResolvedCompute
from esnlm.machine.memory import memory_use
from esnlm.models.ngrams import UnigramModel
from esnlm.readout.base import Accumulators, Fitter, Window
from esnlm.readout.calibration import HeldOut
from esnlm.runs import checkpoint
from esnlm.runs.directory import RunDirectory
from esnlm.runs.trackers import Metrics
from esnlm.training import batches
from esnlm.training.interruption import Interruption
from esnlm.training.state import State, counters_of, restore_newest, save_state

MOST_HELD_OUT = 0.1  # maximum share of the training text


def memory(fitter: Fitter, features: int, vocab_size: int, rank: int | None) -> int:
    """Returns the peak bytes of a fit, with the features and scores of held-out text."""
    return fitter.memory(features, vocab_size, rank) + 4 * fitter.held_out_tokens * (
        2 * features + vocab_size
    )


def open_state(
    fitter: Fitter, params: dict, features: int, vocab_size: int, directory: RunDirectory
) -> State:
    """Restores a finished fit, else the newest intact accumulators, else starts from the
    initialized `params`.

    Raises InputError if all checkpoints are damaged, or the disk is too full.
    """
    newest = restore_newest(directory.checkpoints, directory.sums)
    if newest is None:
        accumulators = fitter.start(features, vocab_size)
        size = sum(array.nbytes for array in jax.tree.leaves((accumulators, params)))
        checkpoint.check_free_space(directory.path, 2 * size)
        return State(params=params, accumulators=accumulators)
    step, arrays, metadata = newest
    say(f"resuming at update {step}")
    if "sums" in arrays:
        accumulators = {
            name: np.require(array, requirements=["C", "W"])
            for name, array in arrays["sums"].items()
        }
        return State(params=params, accumulators=accumulators, **counters_of(metadata))
    return State(params=jax.tree.map(jax.numpy.asarray, arrays["params"]), **counters_of(metadata))


@dataclass(frozen=True)
class ReadoutRegression:
    """The regression of a run's readout, with its fixed inputs."""

    fitter: Fitter
    rank: int | None  # rank of the readout; None: full
    seed: int  # seed of the run
    store: TokenStore  # the training text
    counts: np.ndarray  # (V,), count of each token as a target
    stream: FeatureStream
    compute: ResolvedCompute
    metrics: Metrics
    directory: RunDirectory
    interruption: Interruption

    def run(self, state: State) -> None:
        """Does the rest of the fit and saves the result: the readout in state.params, or
        accumulators if stopped."""
        if state.regression:
            return  # the fit itself was complete
        learned, held_out = split_held_out(self.store, self.seed, self.fitter.held_out_tokens)
        if len(learned) == 0:
            raise InputError(
                f"{self.store.folder}: the fit holds out whole sentences, and none of its"
                f" {len(self.store)} is left to learn from; give more text, or training.kind"
                " gradient, which holds out none"
            )
        if not self._accumulate(learned, state):
            return
        began = time.monotonic() - state.seconds
        say(f"{self.fitter.kind}: making the readout")
        state.step += self.fitter.finish(state.accumulators, self.compute.precision)
        readout, state.regression = self._solve(state.accumulators, held_out)
        state.params, state.accumulators = {"readout": jax.tree.map(jax.numpy.asarray, readout)}, {}
        state.step += 1
        state.train_nll_sum, state.train_nll_count = self._sampled_nll(readout, learned)
        state.seconds = time.monotonic() - began
        speed = state.tokens / state.seconds  # includes the time to make the readout
        figures = {"train_nll": state.train_nll, "tokens_per_second": speed} | state.regression
        self.metrics.write(step=state.step, tokens=state.tokens, **figures)
        state.note_memory()
        save_state(state, self.directory, keep=1, permanent=False)
        if processes.writes():
            shutil.rmtree(self.directory.sums, ignore_errors=True)

    def _accumulate(self, learned: np.ndarray, state: State) -> bool:
        """Adds the remaining windows of the sentences `learned`, up to an interruption. Returns
        whether all are done.

        A window without a complete update (regression/lms.py) is neither logged nor saved; a
        resumed run rereads it.
        """
        fitter, store = self.fitter, self.store
        lengths = store.lengths - 1  # predictions of each sentence
        progress = Progress(fitter.epochs * int(lengths[learned].sum()), state.tokens)
        began = time.monotonic() - state.seconds
        seen, number, saved = 0, 0, state.step
        for epoch in range(fitter.epochs):
            order = generator(self.seed, Stream.SENTENCE_ORDER, epoch).permutation(learned)
            for window in batches.split_windows(lengths[order], self.compute.window_tokens):
                sentences, number = order[window.start : window.stop], number + 1
                ends = seen + np.cumsum(lengths[sentences])
                seen = int(ends[-1])
                # Skip sentences taken in before a stop, even if the windows were different then.
                sentences = sentences[ends > state.tokens]
                if len(sentences) == 0:
                    continue
                updates = fitter.accumulate(
                    state.accumulators, self._read(sentences), self.compute.precision
                )
                state.step += updates
                state.tokens, state.words = (
                    seen,
                    state.words + int(store.words[sentences].sum(dtype=np.int64)),
                )
                state.seconds = time.monotonic() - began
                memory = memory_use()
                if updates:
                    figures = {"tokens_per_second": seen / state.seconds} | memory.values
                    self.metrics.write(
                        step=state.step, epoch=epoch + 1, tokens=seen, words=state.words, **figures
                    )
                done = f"epoch {epoch + 1}/{fitter.epochs}  update {state.step}  {memory}"
                progress.show(seen, done, final=seen == progress.total)
                stops = bool(self.interruption)
                if state.step > saved and (stops or number % fitter.checkpoint_every == 0):
                    self._save_accumulators(state)
                    saved = state.step
                if stops:
                    return False
        return True

    def _solve(
        self, accumulators: Accumulators, held_out: np.ndarray
    ) -> tuple[dict[str, np.ndarray], dict]:
        """Returns the readout and its record; the sentences `held_out` choose and calibrate."""
        features, targets = [], []
        for window in batches.split_windows(
            self.store.lengths[held_out] - 1, self.compute.window_tokens
        ):
            given = self._read(held_out[window.start : window.stop])
            features.append(np.asarray(given.features)[np.concatenate(given.rows)])
            targets.append(given.targets)
        unseen = HeldOut(np.concatenate(features), np.concatenate(targets))
        learned_counts = self.counts - np.bincount(unseen.targets, minlength=len(self.counts))
        return self.fitter.solve(
            accumulators, self.rank, unseen, UnigramModel.from_counts(learned_counts).log_p
        )

    def _sampled_nll(
        self, readout: dict[str, np.ndarray], learned: np.ndarray
    ) -> tuple[float, int]:
        """Returns the NLL of a sample of the training text under the final readout, in nats, and
        its tokens."""
        sample = [
            self.store.sentence(s)
            for s in _sample(self.store, learned, self.seed, self.fitter.held_out_tokens)
        ]
        compute, placement = self.compute, self.stream.placement
        if placement is not None:
            readout = placement.masked(placement.place({"readout": readout})["readout"])
        settings = compute.precision, compute.window_tokens, compute.chunk_tokens
        nats, tokens = 0.0, 0
        for window in scoring.total_nll(self.stream, readout, sample, *settings):
            nats, tokens = nats + window.nats, tokens + window.tokens
        return nats, tokens

    def _read(self, sentences: np.ndarray) -> Window:
        """Computes the features of sentences, by number."""
        given = batches.read_sentences(self.store, sentences)
        features, rows = self.stream.read(given.inputs)
        # The delta rule runs on the device and diverges on such states like training by gradients.
        if self.fitter.computed_by_host and not bool(jax.numpy.isfinite(features).all()):
            raise InputError(
                f"training.kind is {self.fitter.kind}: the states of some sentences are not finite;"
                " lower model.reservoir.spectral_radius or input_scale, or choose gradient"
            )
        if processes.count() > 1:  # every process fits the whole readout
            features = jax.numpy.asarray(meshes.fetch(features))
        return Window(features, rows, np.concatenate(given.targets))

    def _save_accumulators(self, state: State) -> None:
        """Saves sums/STEP and deletes older ones."""
        state.note_memory()
        with processes.written_by_first() as writes:
            if writes:
                sums = self.directory.sums
                checkpoint.save(
                    sums / str(state.step), {"sums": state.accumulators}, state.counters()
                )
                checkpoint.prune(sums, keep=1)


def split_held_out(store: TokenStore, seed: int, tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the indices of sentences to learn from, and of sentences to hold out with about
    `tokens` predictions."""
    everything = np.arange(len(store))
    held_out = _sample(
        store, everything, seed, min(tokens, MOST_HELD_OUT * int((store.lengths - 1).sum()))
    )
    return np.setdiff1d(everything, held_out), held_out


def _sample(store: TokenStore, sentences: np.ndarray, seed: int, tokens: float) -> np.ndarray:
    """Draws as few sentences as have `tokens` predictions, or all of them."""
    order = generator(seed, Stream.HELD_OUT).permutation(sentences)
    return order[: 1 + int(np.searchsorted(np.cumsum(store.lengths[order] - 1), tokens))]
