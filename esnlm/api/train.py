"""Trains from Python as `esnlm train` does, also on sentences and tokenizers from Python."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from esnlm import loaded_run
from esnlm.api.reservoir import Reservoir
from esnlm.base.errors import InputError
from esnlm.base.processes import STOPPED
from esnlm.data.corpus import put_sentences
from esnlm.data.encode import write_sentences
from esnlm.data.store import TokenStore
from esnlm.data.tokenizer import WORD_PATTERN, Tokenizer, load_tokenizer, train_bpe, word_tokenizer
from esnlm.evaluation.conventions import list_texts
from esnlm.loaded_run import Run
from esnlm.reports.run_results import show_results
from esnlm.runs import checkpoint
from esnlm.runs.directory import RunDirectory
from esnlm.training import config_io
from esnlm.training.config import Experiment, as_dict
from esnlm.training.run import train_run

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
    """Trains or resumes a run in its run directory, as `esnlm train` does, and returns it.

    If the run is finished, returns it at once. After an interruption, the same call resumes it.

    Args:
        experiment: an Experiment, the same as nested dicts, or a YAML file.
        callbacks: functions of the step and of the metrics logged there, a dict such as {"step":
            20, "train_nll": 6.1, ...} or {"step": 100, "epoch": 1, "val_nll": 5.2, ...}. If one
            returns True, the run stops after the updates in progress and is saved. An exception
            ends the call; the run can be resumed from its last checkpoint.
        sentences: texts to train on, instead of the experiment's data. The run directory keeps them
            as token ids.
        validation: texts to validate on, with `sentences`.
        tokenizer: for the `sentences`: "words", "train:8192", "gpt2", a folder or a tokenizer; see
            `esnlm.tokenizer`.
        reservoir: a reservoir to use instead of drawing one. The experiment gives the rest of the
            model.
        allow_change: settings that may differ from those of the existing run, as for
            `--allow-change`.

    Returns:
        The run, restored from its newest checkpoint.

    Raises:
        InputError: the data, the configuration or the run directory is not usable, or a callback
            stopped a regression, which has no readout before its end.
        KeyboardInterrupt: training was interrupted (in a notebook: the stop button), after saving
            the run.

    Example:
        def patience(step, metrics):
            return metrics.get("train_nll", 9.0) < 3.0        # True stops the run

        settings = {"run": "runs/small", "training": {"epochs": 2}}
        run = esnlm.train(settings, [patience], sentences=texts)
        run.log_probs(["The cats sleep."])
    """
    if validation is not None and sentences is None:
        raise InputError("validation without sentences: give both")
    if isinstance(experiment, str | Path):
        experiment = config_io.read(experiment)
    tree = as_dict(experiment) if isinstance(experiment, Experiment) else dict(experiment)
    if sentences is not None:
        tree["data"] = {"kind": "in_memory"}
    if reservoir is not None:
        tree["model"] = {**tree.get("model", {}), "reservoir": reservoir.settings}
    settings = config_io.from_dict(tree)
    directory = RunDirectory(settings.folder)
    if sentences is not None:
        lines = _texts(sentences)
        held_out = None if validation is None else _texts(validation)
        put_sentences(directory, lines, held_out, make_tokenizer(tokenizer, lines))
    if reservoir is not None and not directory.config.exists():  # a resumed run has its reservoir
        _put_reservoir(directory, reservoir)
    stopped = False

    def call_back(values: dict[str, Any]) -> bool:
        nonlocal stopped
        answers = [callback(values["step"], dict(values)) for callback in callbacks]
        stopped = stopped or any(
            isinstance(answer, bool | np.bool_) and bool(answer) for answer in answers
        )
        return stopped

    status = train_run(
        settings,
        allow_change,
        show_results=show_results,
        listeners=[call_back] if callbacks else (),
        owns_process=False,
    )
    if status == STOPPED and not stopped:
        raise KeyboardInterrupt(f"{settings.run}: stopped; the same call resumes it")
    if status == STOPPED and not checkpoint.all_steps(directory.checkpoints):
        raise InputError(
            f"{settings.run}: a callback stopped it before the readout was fitted; the same call"
            " without it resumes"
        )
    return loaded_run.load(settings.run)


def tokenizer(spec: str | Path | Tokenizer, sentences: Sequence[str] = ()) -> Tokenizer:
    """Loads a tokenizer, or makes one from sentences.

    Args:
        spec: "words": a closed list of the words of the sentences, with the 256 bytes to spell all
            other text; "train:N": a BPE of N ids, trained on the sentences (needs esnlm[text]);
            "gpt2", or a folder or file, as for `esnlm prepare`; or a tokenizer.
        sentences: the texts for "words" and "train:N".

    Raises:
        InputError: the tokenizer does not exist, or there is too little text for N ids.

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
    sentences: Sequence[str],
    out: str | Path,
    *,
    tokenizer: str | Path | Tokenizer,
    overwrite: bool = False,
) -> TokenStore:
    """Writes a token store of sentences, for a run's `data` and for `run.likelihood`.

    Each text is one sentence, kept unchanged however long it is. `esnlm prepare` makes stores from
    files, splits them into sentences, and by default drops those of fewer than 6 tokens and cuts
    those of more than 512.

    Args:
        sentences: texts.
        out: the folder of the store.
        tokenizer: as for the function `tokenizer`.
        overwrite: whether to replace a token store.

    Raises:
        InputError: there are no sentences, or `out` holds other data.

    Example:
        esnlm.prepare(["The cats sleep.", "A dog barks."], "stores/small", tokenizer="words")
    """
    lines = _texts(sentences)
    return write_sentences(Path(out), lines, make_tokenizer(tokenizer, lines), overwrite=overwrite)


make_tokenizer = tokenizer  # for functions with an argument `tokenizer`


def _texts(sentences: Sequence[str]) -> list[str]:
    lines = list_texts(sentences)
    if not lines:
        raise InputError("no sentences; give at least one")
    return lines


def _put_reservoir(directory: RunDirectory, reservoir: Reservoir) -> None:
    """Saves the reservoir in the run directory, so that training uses it instead of drawing one."""
    reservoir.check_named("saved")
    directory.claim()
    arrays, layers = reservoir.cell.arrays(), reservoir.cell.layers
    nonzeros = sum(sum(layer.nonzeros) + layer.state_size for layer in layers)
    record = {"given": True, "nonzeros": nonzeros, "sha256": checkpoint.digest(arrays)}
    checkpoint.save(directory.frozen, arrays, record)
