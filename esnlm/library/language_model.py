"""A language model on a reservoir in the hand: fit, predict and score, and saved as a run.

`fit` trains a run in a folder that goes away with that run, by the functions that train any other run: the same arrays,
settings and seed give the same bits as `esnlm train`. `save` keeps that folder.

Example:
    tokenizer = esnlm.tokenizer("words", sentences)
    reservoir = esnlm.Reservoir.draw(512, vocabulary=tokenizer, leak=(0, 1))
    model = esnlm.LanguageModel(reservoir, tokenizer, "ridge").fit(sentences)
    model.score(others)                                # mean log p of a token, nats
    model.run.surprisal(["The cats sleep."])           # all that a restored run can do
    model.save("runs/mine")
"""

import contextlib
import dataclasses
import io
import shutil
import sys
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Sequence, Sized
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from esnlm import config_io, loaded_run
from esnlm.compute import ComputeConfig, in_float32
from esnlm.config import Experiment, TrainingConfig
from esnlm.data.sources.given import GivenData
from esnlm.data.tokenizer import Tokenizer
from esnlm.errors import InputError, require
from esnlm.evaluation.sequences import encode, list_texts
from esnlm.library import parts, text
from esnlm.library.readout import training_rule
from esnlm.library.reservoir import Reservoir
from esnlm.library.train import Callback, require_callbacks, train
from esnlm.loaded_run import Run
from esnlm.models.echo_state import EchoStateConfig
from esnlm.readout.linear import ReadoutConfig
from esnlm.regression.base import Fitter
from esnlm.runs import checkpoint
from esnlm.runs.atomic import NewFolder
from esnlm.runs.directory import RunDirectory
from esnlm.warning import warn_caller


class LanguageModel:
    """A reservoir, a tokenizer and a readout from states to the next token, which `fit` fits.

    Args:
        reservoir: that reads the ids of the tokenizer.
        tokenizer: see `esnlm.tokenizer`.
        readout: how it is fitted: "gradient", "ridge", "rls" or "lms", or an object that says so with its settings, a
            TrainingConfig or a fitter of esnlm/regression.
        rank: r of a readout of low rank, for adamw and ridge; None: full rank.
        dropout: of adamw.
        seed: of the readout and of the order of the sentences.
        compute: how it is computed; None: chosen for the machine.
        settings: of the readout, where it is named, such as epochs=3 or learning_rate=0.003.

    Raises:
        InputError: a setting cannot be used, or the reservoir reads another vocabulary.
    """

    def __init__(
        self,
        reservoir: Reservoir,
        tokenizer: Tokenizer,
        readout: str | TrainingConfig | Fitter = "gradient",
        *,
        rank: int | None = None,
        dropout: float = 0.0,
        seed: int = 0,
        compute: ComputeConfig | None = None,
        **settings: Any,
    ) -> None:
        line = f"reservoir is {reservoir!r}: give one that was made, such as esnlm.Reservoir.draw(512, vocabulary=tokenizer)"
        require(isinstance(reservoir, Reservoir), line)
        require(reservoir.reads_tokens, "this reservoir reads numbers: draw one with vocabulary=...")
        line = f"tokenizer is {tokenizer!r}: give one that was made, such as esnlm.tokenizer('words', sentences)"
        require(isinstance(tokenizer, Tokenizer), line)
        wrong = f"the reservoir reads {reservoir.input_size} token ids, and the tokenizer has {tokenizer.vocab_size}"
        require(reservoir.input_size == tokenizer.vocab_size, f"{wrong}; draw it with vocabulary=tokenizer")
        self.reservoir, self.tokenizer = reservoir, tokenizer
        model = EchoStateConfig(reservoir=reservoir.settings, readout=ReadoutConfig(rank), dropout=dropout)
        named = isinstance(readout, str)
        require(named or not settings, f"{', '.join(settings)}: the readout is given with its settings; set them there")
        training = training_rule(readout, settings) if isinstance(readout, str) else readout
        line = (
            f"readout is {readout!r}: name its rule, adamw, ridge, rls or lms, with the settings after it, such as"
            " LanguageModel(reservoir, tokenizer, 'adamw', rank=64)"
        )
        require(isinstance(training, TrainingConfig | Fitter), line)
        compute = ComputeConfig() if compute is None else compute
        line = f"compute is {compute!r}: give an esnlm.compute.ComputeConfig, such as ComputeConfig(precision='bf16')"
        require(isinstance(compute, ComputeConfig), line)
        # The folder is named in `fit`, and again in `save`.
        self.experiment = Experiment("-", seed, GivenData(), model, training, compute)
        self._run: Run | None = None

    def fit(
        self,
        sentences: Sequence[str],
        validation: Sequence[str] | None = None,
        *,
        callbacks: Sequence[Callback] = (),
        progress: bool = False,
    ) -> "LanguageModel":
        """Fits the readout anew, and returns the model.

        Args:
            sentences: texts to learn from. A readout fit holds out a tenth of them at most, to choose and calibrate by.
            validation: texts to measure it on while it learns.
            callbacks: see `esnlm.train`.
            progress: whether to print what `esnlm train` prints.

        Warns where the training diverged.

        Raises:
            InputError: there are no sentences, or the machine has too little memory.
            KeyboardInterrupt: it was interrupted. Nothing is kept; `esnlm.train` has a run directory that stays.

        Example:
            model.fit(sentences, callbacks=[lambda step, metrics: print(step, metrics)])
        """
        require(sentences is not None, "sentences is None: give a list of texts")
        heard = callbacks if progress else _aloud(callbacks)
        folder = Path(tempfile.mkdtemp(prefix="esnlm-"))
        cleaner = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        experiment = dataclasses.replace(self.experiment, run=str(folder / "run"))
        self._put_frozen(RunDirectory(folder / "run"))
        try:
            with contextlib.nullcontext() if progress else _silent():
                run = train(experiment, heard, sentences=sentences, validation=validation, tokenizer=self.tokenizer)
        except KeyboardInterrupt:
            cleaner()
            raise KeyboardInterrupt(
                "stopped, and nothing is kept; esnlm.train has a run directory, from which the same call goes on"
            ) from None
        except BaseException:
            cleaner()
            raise
        summary = RunDirectory(run.directory).read_summary()
        if summary is not None and summary["status"] == "diverged":
            warn_caller("the training diverged: the model is of no use; fit with a lower learning_rate")
        # The run reads from the folder, and may be kept for longer than this object.
        cleaner.detach()
        weakref.finalize(run, shutil.rmtree, folder, ignore_errors=True)
        self._run = run
        return self

    @property
    def run(self) -> Run:
        """The fitted model as a Run: log_probs, surprisal, states, generate, likelihood and all else that it can do.

        Raises:
            InputError: it is not fitted yet.
        """
        if self._run is None:
            raise InputError("this model is not fitted yet: call fit")
        return self._run

    def log_probs(self, sentences: list[str], scoring: str = "paper") -> np.ndarray:
        """Returns log p of each sentence, (n,) float64 in nats; see `Run.log_probs`."""
        return self.run.log_probs(sentences, scoring)

    @in_float32
    def predict(self, beginnings: Sequence[str]) -> np.ndarray:
        """Returns the id of the most probable token after each text, (n,) int64. `tokenizer.decode` makes text of it.

        Raises:
            InputError: the model is not fitted yet, or it diverged, `beginnings` is no list of texts, or a text is too long
                for the model or for the memory.

        Example:
            tokenizer.decode(model.predict(["The cats"]))
        """
        run = self.run
        return run._next_ids(encode(list_texts(beginnings), self.tokenizer, "no-eos"))

    def score(self, sentences: Sequence[str]) -> float:
        """Returns the mean log p of a token, in nats, EOS among them: the NLL with the other sign, so that more is better.

        Raises:
            InputError: the model is not fitted yet, or there is no sentence.
        """
        return -self.run.likelihood(list_texts(sentences)).nll

    def prefers(self, pairs: Sequence[tuple[str, str]], scoring: str = "paper") -> np.ndarray:
        """Returns of each minimal pair whether the first sentence is more probable than the second, (n,) bool.

        Example:
            model.prefers([("The cats sleep.", "The cats sleeps.")]).mean()     # the accuracy
        """
        require(isinstance(pairs, Iterable), f"pairs is {pairs!r}: give [(good, bad), ...]")
        each = list(pairs)
        require(bool(each), "there are no pairs: give at least one")
        for pair in each:
            two = isinstance(pair, Sized) and not isinstance(pair, str) and len(pair) == 2
            require(two, f"{pair!r} is no pair of texts: give [(good, bad), ...]")
        good, bad = zip(*each, strict=True)
        found = self.run.log_probs([*good, *bad], scoring)
        return found[: len(good)] > found[len(good) :]

    def save(self, folder: str | Path) -> Run:
        """Saves the fitted model as a run directory, whole or not at all, and returns the run there.

        `esnlm.load` restores it, and eval_blimp.py and all `esnlm` commands take it.

        Raises:
            InputError: the model is not fitted, something is there already, or a function of it has no name that
                another program could find.

        Example:
            model.save("runs/mine")
            esnlm.load("runs/mine").log_probs(["The cats sleep."])
        """
        text.require_folder(folder)
        out, run = Path(folder), self.run
        parts.refuse_anonymous(self.reservoir.settings, "saved")
        taken = out.exists() and (not out.is_dir() or any(out.iterdir()))
        require(not taken, f"{out}: exists; name another folder")
        try:
            with NewFolder(out) as new:
                shutil.copytree(run.directory, new.path, dirs_exist_ok=True)
                directory = RunDirectory(new.path)
                begun = config_io.read_begun(directory.config)
                config_io.write(dataclasses.replace(begun, run=str(out)), directory.config)
                directory.manifest.add(directory.config)
                new.commit()
        except OSError as error:
            raise InputError(f"{out}: cannot be written: {error.strerror}; name another folder") from None
        return loaded_run.load(out)

    def _put_frozen(self, directory: RunDirectory) -> None:
        """Saves the reservoir where a run keeps it, so that the training takes it and draws none."""
        directory.claim()
        arrays = self.reservoir.cell.arrays()
        layers = self.reservoir.cell.layers
        nonzeros = sum(sum(layer.nonzeros) + layer.state_size for layer in layers)
        record = {"given": True, "nonzeros": nonzeros, "sha256": checkpoint.digest(arrays)}
        checkpoint.save(directory.frozen, arrays, record)


def _aloud(callbacks: Sequence[Callback]) -> list[Callback]:
    """Returns the same functions, which print where they would if nothing was silent."""
    out, err = sys.stdout, sys.stderr

    def aloud(callback: Callback, step: int, metrics: dict[str, Any]) -> Any:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            return callback(step, metrics)

    return [partial(aloud, callback) for callback in require_callbacks(callbacks)]


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        yield
