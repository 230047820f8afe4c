"""A trained run, brought back: model, tokenizer, configuration, and what one asks of them."""

import dataclasses
import warnings
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import jax
import numpy as np
from flax import nnx

from esnlm import config as configuration
from esnlm.compute import choose_compute
from esnlm.config import Experiment, ImportedData
from esnlm.data.store import npy_header
from esnlm.data.tokenizer import Tokenizer, load_tokenizer
from esnlm.errors import InputError
from esnlm.evaluation import conventions, generation, scoring
from esnlm.models.ngrams import UnigramModel
from esnlm.runs import checkpoint
from esnlm.runs.console import Progress
from esnlm.runs.directory import RunDirectory

STATES = 8 << 30  # bytes, of one sequence: nothing bounds a sentence but this


@dataclass(frozen=True)
class Run:
    """A model restored from a run directory. `load` makes it."""

    directory: Path
    config: Experiment
    step: int  # updates that the readout was trained for
    model: nnx.Module  # of the family's own class, see esnlm/models
    tokenizer: Tokenizer

    @property
    def name(self) -> str:
        return self.directory.resolve().name

    def log_probs(self, sentences: list[str], scoring: str = "paper") -> np.ndarray:
        """log p(s) of each sentence, (n,) float64, natural log.

        Args:
            scoring: the convention, "paper" (BOS .. EOS), "lm-eval" or "babylm"; see evaluation/conventions.py.
        """
        found = conventions.log_probs(sentences, self.tokenizer, scoring, self.token_log_probs_of)
        self._warn_of(found)
        return found

    def token_log_probs(self, sentences: list[str]) -> list[np.ndarray]:
        """log p(w_{t+1} | w_1 .. w_t) of BOS, the sentence's tokens and EOS: one (T - 1,) float32 array a sentence."""
        found = self.token_log_probs_of([self._with_ends(sentence) for sentence in sentences])
        self._warn_of([np.sum(each) for each in found])
        return found

    def token_log_probs_of(self, sequences: list[np.ndarray], progress: bool = False) -> list[np.ndarray]:
        """The same for token ids as they stand: no BOS or EOS is added, and the first id only conditions.

        Args:
            sequences: int arrays.
            progress: show how far it is.
        """
        self._check(sequences)
        bar = Progress(1, unit="sequences")

        def report(done, total):
            bar.total = total
            bar.show(done, f"scoring {done:,}/{total:,}", final=done == total)

        options = (self.config.compute.precision, min(256, self.config.compute.chunk_tokens))
        readout = self.config.model.readout_arrays(self.model.params)
        told = report if progress else lambda *_: None
        return scoring.token_log_probs(
            self._stream, readout, sequences, *options, told, self.config.compute.window_tokens
        )

    def states(self, sentences: list[str]) -> list[np.ndarray]:
        """The states h_1 .. h_T over BOS, the sentence's tokens and EOS: one (T, N) float32 array a sentence."""
        found = []
        for sentence in sentences:
            self._check([self._with_ends(sentence)])
            buffer, rows = self._stream.read([self._with_ends(sentence)])
            found.append(np.asarray(buffer[rows[0]]))
        return found

    def generate(
        self,
        prompt: str = "",
        *,
        count: int = 1,
        length: int = 50,
        temperature: float = 1.0,
        top_k: int | None = None,
        seed: int = 0,
    ) -> list[str]:
        """Continuations of BOS and a prompt, each up to EOS or `length` tokens; the prompt is not repeated.

        Args:
            temperature: the logits are divided by it; 0 takes the most probable token each time.
            top_k: choose among so many of the most probable tokens; None: among all.
        """
        if count < 1 or length < 1 or temperature < 0 or (top_k is not None and top_k < 1):
            raise InputError(
                f"count {count}, length {length}, temperature {temperature}, top_k {top_k}: count, length and top_k must be"
                " at least 1, temperature at least 0"
            )
        ids = np.array([self.tokenizer.bos, *self.tokenizer.encode(prompt)], np.int32)
        longest = self.config.model.longest
        if longest is not None and len(ids) + length > longest:
            raise InputError(
                f"the prompt has {len(ids)} tokens and {length} are asked for: this model reads at most {longest}"
            )
        compute = self.config.compute
        features = self.model.for_device(compute).reader(count, len(ids) + length)
        options = {"count": count, "length": length, "temperature": temperature, "top_k": top_k, "seed": seed}
        readout = self.config.model.readout_arrays(self.model.params)
        found = generation.generate(features, readout, ids, self.tokenizer.eos, **options, precision=compute.precision)
        return [self.tokenizer.decode(ids) for ids in found]

    def arrays(self) -> dict[str, np.ndarray]:
        """Every weight by name, e.g. "readout.a", "reservoir.leak", "reservoir.recurrent.values" and ".indices"."""
        return {name: np.asarray(array) for name, array in configuration.flatten(self.model.arrays()).items()}

    def unigram(self) -> UnigramModel | None:
        """The unigram model of the training text, to score beside this one; None for a model that was imported."""
        if isinstance(self.config.data, ImportedData):
            return None
        directory = RunDirectory(self.directory)
        file = directory.unigram
        directory.require_intact(file)
        head, size = npy_header("<i8", self.tokenizer.vocab_size), self.tokenizer.vocab_size
        data = file.read_bytes() if file.is_file() else b""
        counts = (
            np.frombuffer(data[len(head) :], "<i8")
            if len(data) == len(head) + 8 * size and data.startswith(head)
            else None
        )
        if counts is None or counts.min() < 0 or counts.max() > 1 << 48:
            raise InputError(f"{file}: missing or damaged; restore it from a copy of the run")
        return UnigramModel.from_counts(counts)

    @cached_property
    def _stream(self):
        return self.model.for_device(self.config.compute).stream(self.config.compute)

    def _with_ends(self, sentence: str) -> np.ndarray:
        return np.array([self.tokenizer.bos, *self.tokenizer.encode(sentence), self.tokenizer.eos], np.int32)

    def _check(self, sequences) -> None:
        for i, sequence in enumerate(sequences):
            if len(sequence) and not 0 <= np.min(sequence) <= np.max(sequence) < self.tokenizer.vocab_size:
                raise InputError(f"sequence {i} has an id outside 0 .. {self.tokenizer.vocab_size - 1}")
            longest = self.config.model.longest
            if longest is not None and len(sequence) - 1 > longest:
                raise InputError(
                    f"sequence {i} has {len(sequence)} ids: this model reads at most {longest} + 1; shorten it"
                )
            if (size := 4 * len(sequence) * self.config.model.feature_size) > STATES:
                raise InputError(
                    f"sequence {i} has {len(sequence):,} ids: its states would take {size / 1e9:.1f} GB, and at most"
                    f" {STATES / 1e9:.1f} GB are used; split it"
                )

    def _warn_of(self, log_probs) -> None:
        undefined = int(np.sum(np.isnan(log_probs) | np.isposinf(log_probs)))
        if undefined:
            names = [
                name for name, array in configuration.flatten(self.model.params).items() if not np.isfinite(array).all()
            ]
            cause = f": {', '.join(names)} of step {self.step} has values that are not finite" if names else ""
            line = f"{undefined} of {len(log_probs)} sentences have a log-probability that is not a number{cause}"
            warnings.warn(line, stacklevel=3)


def load(run: str | Path, step: int | None = None, untrained: bool = False) -> Run:
    """Restores a run: its newest checkpoint that verifies, or the one of a step.

    The compute settings are chosen anew for the machine it is loaded on. The precision is kept, but for tf32 on a CPU,
    which has only the finer float32.

    Args:
        run: the run directory.
        step: the update after which the checkpoint was saved.
        untrained: the model as it was before the first update, which needs no checkpoint.

    Raises:
        InputError: not a run directory, or without a good checkpoint.
    """
    directory = RunDirectory(Path(run))
    directory.require_intact(directory.config, directory.tokenizer, warn=partial(warnings.warn, stacklevel=3))
    if not directory.config.exists():
        raise InputError(
            f"{directory.path}: not a run directory: it has no {directory.config.name}; give one that train.py wrote"
        )
    experiment = configuration.read(directory.config)
    tokenizer = load_tokenizer(directory.tokenizer)
    vocab_size = tokenizer.vocab_size
    frozen = {}
    if experiment.model.frozen_bytes(vocab_size):
        if not directory.frozen.exists():
            raise InputError(
                f"{directory.frozen}: missing: without it the reservoir is lost; restore it from a copy of the run"
            )
        frozen, _ = checkpoint.restore(directory.frozen)
    model = experiment.model.initialize(vocab_size, experiment.seed, frozen)
    if untrained:
        return Run(directory.path, _for_this_machine(experiment), 0, model, tokenizer)
    if step is None:
        newest = checkpoint.restore_newest(directory.checkpoints, lambda line: warnings.warn(line, stacklevel=3))
        if newest is None:
            raise InputError(f"{directory.path}: no checkpoint yet; train it with train.py")
        step, arrays, _ = newest
    elif step in checkpoint.steps(directory.checkpoints):
        arrays, _ = checkpoint.restore(directory.checkpoints / str(step))
    else:
        there = ", ".join(map(str, checkpoint.steps(directory.checkpoints))) or "none"
        raise InputError(f"{directory.checkpoints}: no checkpoint of step {step}; there are: {there}")
    expected, found = _shapes(model.params), _shapes(arrays["params"])
    if expected != found:
        name = next(name for name in sorted(expected | found) if expected.get(name) != found.get(name))
        raise InputError(
            f"{directory.path}: step {step} is not of this configuration and tokenizer: {name} has the shape"
            f" {found.get(name, 'none')}, not {expected.get(name, 'none')}; restore the run from a copy"
        )
    return Run(directory.path, _for_this_machine(experiment), step, model.with_params(arrays["params"]), tokenizer)


def _shapes(params: dict) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in configuration.flatten(params).items()}


def _for_this_machine(experiment: Experiment) -> Experiment:
    backend, precision = jax.default_backend(), experiment.compute.precision
    open_again = dataclasses.replace(
        experiment.compute,
        precision="float32" if backend == "cpu" and precision == "tf32" else precision,
        kernel="auto",
        batch_slots=None,
        window_tokens=None,
    )
    compute = choose_compute(open_again, experiment.model, backend)
    return dataclasses.replace(experiment, compute=compute)
