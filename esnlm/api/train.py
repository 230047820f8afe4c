"""Training from Python: the run that `esnlm train` trains, with functions that watch it, and sentences and tokenizers for it."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from esnlm import config_io, loaded_run
from esnlm.api.reservoir import Reservoir
from esnlm.config import Experiment, as_dict
from esnlm.data.encode import write_sentences
from esnlm.data.sources.given import put_sentences
from esnlm.data.store import TokenStore
from esnlm.data.tokenizer import WORD_PATTERN, Tokenizer, load_tokenizer, train_bpe, word_tokenizer
from esnlm.errors import InputError
from esnlm.evaluation.sequences import list_texts
from esnlm.loaded_run import Run
from esnlm.regression.base import Fitter
from esnlm.runs import checkpoint
from esnlm.runs.directory import RunDirectory
from esnlm.workflows.train import INTERRUPTED, train_run

Callback = Callable[[int, dict[str, Any]], Any]


def train(
    experiment: Experiment | dict[str, Any] | str | Path,
    callbacks: Sequence[Callback] = (),
    *,
    sentences: Sequence[str] | None = None,
    validation: Sequence[str] | None = None,
    tokenizer: str | Path | Tokenizer = "words",
    reservoir: Reservoir | None = None,
    allow_change: Sequence[str] = (),
) -> Run:
    """Trains a run, or what is left of it, in its run directory, and returns it. It is what `esnlm train` does.

    A second call with a finished run returns it at once. A call that was interrupted is resumed by the same call.

    Args:
        experiment: an Experiment, the same as nested dicts, or a YAML file.
        callbacks: functions of the step and of the metrics logged there, a dict such as {"step": 20, "train_nll": 6.1, ...}
            or {"step": 100, "epoch": 1, "val_nll": 5.2, ...}. If one returns True, the run stops after the updates under
            way and is saved. What one raises ends the call; the run can be resumed from its last checkpoint.
        sentences: texts to train on, instead of the experiment's data. The run directory keeps them as token ids.
        validation: texts to validate on, beside `sentences`.
        tokenizer: of the `sentences`: "words", "train:8192", "gpt2", a folder or a tokenizer; see `esnlm.tokenizer`.
        reservoir: a reservoir in the hand, instead of one that is drawn. The experiment says all else of the model.
        allow_change: settings that may differ from those that the run was begun with, as `--allow-change` names them.

    Returns:
        The run, restored from its newest checkpoint.

    Raises:
        InputError: the data, the configuration or the run directory cannot be used, or a callback stopped a regression,
            which has no readout before its end.
        KeyboardInterrupt: it was interrupted (in a notebook: the stop button). The run is saved by then.

    Example:
        def patience(step, metrics):
            return metrics.get("train_nll", 9.0) < 3.0        # True stops the run

        run = esnlm.train({"run": "runs/small", "training": {"epochs": 2}}, [patience], sentences=texts)
        run.log_probs(["The cats sleep."])
    """
    if validation is not None and sentences is None:
        raise InputError("validation is given without sentences: give both")
    given = config_io.read(experiment) if isinstance(experiment, str | Path) else experiment
    tree = as_dict(given) if isinstance(given, Experiment) else dict(given)
    if sentences is not None:
        tree["data"] = {"kind": "given"}
    if reservoir is not None:
        tree["model"] = {**tree.get("model", {}), "reservoir": reservoir.settings}
    read = config_io.from_dict(tree)
    directory = RunDirectory(Path(read.run))
    if sentences is not None:
        lines, held = _texts(sentences), None if validation is None else _texts(validation)
        put_sentences(directory, lines, held, make_tokenizer(tokenizer, lines))
    if reservoir is not None and not directory.config.exists():  # a run that has begun has its reservoir
        _put_reservoir(directory, reservoir)
    stopped = False

    def tell(values: dict[str, Any]) -> bool:
        nonlocal stopped
        answers = [callback(values["step"], dict(values)) for callback in callbacks]
        stopped = stopped or any(isinstance(answer, bool | np.bool_) and bool(answer) for answer in answers)
        return stopped

    status = train_run(read, allow_change, listeners=[tell] if callbacks else (), ends_process=False)
    if status == INTERRUPTED and not stopped:
        raise KeyboardInterrupt(f"{read.run}: stopped; the same call resumes it")
    if status == INTERRUPTED and isinstance(read.training, Fitter) and not checkpoint.all_steps(directory.checkpoints):
        line = "a callback stopped it before the readout was made; the same call without it goes on"
        raise InputError(f"{read.run}: {line}")
    return loaded_run.load(read.run)


def tokenizer(spec: str | Path | Tokenizer, sentences: Sequence[str] = ()) -> Tokenizer:
    """Returns a tokenizer: one that is there, or one made of sentences.

    Args:
        spec: "words": a closed list of the words of the sentences, which with the 256 bytes spell any other text;
            "train:N": a BPE of N ids, trained on the sentences (it needs esnlm[text]); "gpt2", or a folder or file, as
            `esnlm prepare` takes them; or a tokenizer.
        sentences: of which it is made.

    Raises:
        InputError: there is no such tokenizer, or too little text for N ids.

    Example:
        tokenizer = esnlm.tokenizer("words", ["the cats sleep.", "a dog barks."])
        tokenizer.vocab_size, tokenizer.encode("the dog")
    """
    if isinstance(spec, Tokenizer):
        return spec
    if spec == "words":
        pieces = {piece for line in _texts(sentences) for piece in re.findall(WORD_PATTERN, line)}
        return word_tokenizer(sorted(piece for piece in pieces if not piece.isspace()))
    kind, _, number = str(spec).partition(":")
    if kind == "train" and number.isdecimal():
        return train_bpe(_texts(sentences), int(number))
    return load_tokenizer(spec)


def prepare(
    sentences: Sequence[str], out: str | Path, *, tokenizer: str | Path | Tokenizer, overwrite: bool = False
) -> TokenStore:
    """Writes a token store of sentences, which `data: {kind: store, train: OUT}` and `run.likelihood` read.

    Each text is a sentence, kept as it is. `esnlm prepare` makes stores of files, and splits them into sentences.

    Args:
        sentences: texts.
        out: the folder of the store.
        tokenizer: as the function `tokenizer` takes it.
        overwrite: whether to replace a token store.

    Raises:
        InputError: there are no sentences, or something is there that is not to be lost.

    Example:
        esnlm.prepare(["The cats sleep.", "A dog barks."], "stores/small", tokenizer="words")
    """
    lines = _texts(sentences)
    return write_sentences(Path(out), lines, make_tokenizer(tokenizer, lines), overwrite=overwrite)


make_tokenizer = tokenizer  # for functions that have an argument of the same name


def _texts(sentences: Sequence[str]) -> list[str]:
    lines = list_texts(sentences)
    if not lines:
        raise InputError("there are no sentences: give at least one")
    return lines


def _put_reservoir(directory: RunDirectory, reservoir: Reservoir) -> None:
    """Saves the reservoir where a run keeps it, so that the training takes it and draws none."""
    reservoir.require_named("saved")
    directory.claim()
    arrays, layers = reservoir.cell.arrays(), reservoir.cell.layers
    nonzeros = sum(sum(layer.nonzeros) + layer.state_size for layer in layers)
    checkpoint.save(
        directory.frozen, arrays, {"given": True, "nonzeros": nonzeros, "sha256": checkpoint.digest(arrays)}
    )
