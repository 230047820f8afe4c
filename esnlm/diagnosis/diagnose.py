"""`esnlm diagnose`: what a reservoir is, and whether it forgets, by theory and on text.

The reservoir is that of a run, that of a configuration, or both side by side. The text runs on over the ends of
sentences here, where a model starts each sentence at the state 0: only so is there time to forget.
"""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from esnlm import config_io, loaded_run
from esnlm.compute import backend, in_float32
from esnlm.config import Experiment
from esnlm.data.text_files import read_lines
from esnlm.data.tokenizer import Tokenizer
from esnlm.diagnosis import contraction, measures
from esnlm.diagnosis.contraction import DistanceCurve
from esnlm.diagnosis.measures import Text
from esnlm.errors import InputError
from esnlm.io.atomic import require_writable, write_file, writing
from esnlm.io.console import stage
from esnlm.io.json_file import parse_json, spell_nonfinite, write_json
from esnlm.io.screen import Screen
from esnlm.loaded_run import Run
from esnlm.models.echo_state import EchoStateConfig
from esnlm.reporting.diagnosis_rows import format_rows
from esnlm.reporting.tables import markdown_table
from esnlm.reservoir import weights
from esnlm.runs.directory import RunDirectory
from esnlm.training.summary import describe_device, versions

NAMES = ("diagnostics.json", "diagnostics.md", "contraction.png")  # of the files of a report
SLOTS = 8  # stretches of text that are read side by side
STEPS = 300  # tokens that both states of a pair read
HISTORY = 100  # tokens before them
SENTENCES = 2000  # read from the grammar, or lines from a file


@in_float32
def diagnose(
    run: str | Path | None = None,
    config: str | Path | None = None,
    overrides: Sequence[str] = (),
    data: Path | None = None,
    out: Path | None = None,
    overwrite: bool = False,
    command: str | None = None,
) -> dict[str, Any]:
    """Diagnoses the reservoir of a run, of a configuration (which needs no training), or of both on one text.

    Prints a table and a verdict, and writes diagnostics.json, diagnostics.md and contraction.png.

    Args:
        run: a run directory. The newest checkpoint of an ESN+i is taken, because its W_in is trained.
        config: a YAML file. Given with `run`, its reservoir is initialized for the run's vocabulary.
        overrides: `--section.key value` of the command line, for `config`.
        data: a text file, one sentence a line; without it the run's or the configuration's own text is read.
        out: the folder for the files; otherwise diagnostics/ in the run directory.
        overwrite: whether to replace a report of other reservoirs, or of another text.
        command: the command, to stand in the report.

    Returns:
        What is written as JSON; distances and rates per token, in nats.

    Raises:
        InputError: the model has no reservoir, the folder has something else, or a file cannot be read or written.
    """
    if config is None and overrides:
        raise InputError(f"{' '.join(overrides)}: settings go with --config; a run has its own")
    experiment = None
    if config is not None:
        experiment = config_io.read(config, list(overrides))
        _echo_state_config(experiment, config)
    backend()  # before anything is written
    loaded = _load(Path(run)) if run is not None else None
    source = loaded.config if loaded else experiment
    if source is None:
        raise InputError("nothing to diagnose: give a run directory (--run), a configuration (--config) or both")
    folder = out or _own_folder(source if loaded is None else loaded)
    tokenizer = loaded.tokenizer if loaded else source.data.tokenizer()
    text = _read_text(source, tokenizer, data, loaded)
    described = [_describe(loaded.name, loaded.config, loaded.step)] if loaded else []
    if experiment and config is not None:
        described.append(_describe(Path(config).name, experiment, 0))
    if not overwrite:
        _require_place(folder, described, text)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        require_writable(folder / name)

    reservoirs: list[tuple[str, Experiment, Any]] = []
    if loaded:
        model: Any = loaded.model
        reservoirs.append((loaded.name, loaded.config, model.reservoir))
    if experiment and config is not None:
        name, settings = Path(config).name, _echo_state_config(experiment, config).reservoir
        with stage(f"{name}: initializing the reservoir"):
            initialized = weights.initialize_reservoir(settings, tokenizer.vocab_size, experiment.seed)
        reservoirs.append((name, experiment, initialized.reservoir))
    found: list[dict[str, Any]] = []
    curves: dict[str, DistanceCurve] = {}
    for (name, of, reservoir), description in zip(reservoirs, described, strict=True):
        figures, its_curves = measures.measure(name, _echo_state_config(of, name), reservoir, text)
        found.append(figures | description)
        curves |= {f"{name}: {what}": curve for what, curve in its_curves.items()}
    result = {
        "reservoirs": found,
        "text": text.name,
        "text_sha256": _digest(text),
        "command": command,
        "versions": versions(),
        "device": describe_device(),
    }
    note = _write(result, curves, folder)
    _show(result)
    beside = f".md{'' if note else ', contraction.png'}"
    print(f"written: {folder / NAMES[0]} (and {beside} beside it){f'; {note}' if note else ''}")
    return result


def _echo_state_config(experiment: Experiment, where: str | Path) -> EchoStateConfig:
    """Returns the model's configuration. Raises InputError for a model whose reservoir cannot be diagnosed."""
    model = experiment.model
    if not isinstance(model, EchoStateConfig):
        raise InputError(
            f"{where}: {model.title} is no echo state network without output feedback; diagnose one with the same model.reservoir,"
            " in a configuration with model.family: esn"
        )
    return model


def _load(run: Path) -> Run:
    """Loads a run: untrained, unless its W_in is trained."""
    file = RunDirectory(run).config
    if file.exists():
        _echo_state_config(config_io.read_begun(file), run)
    loaded = loaded_run.load(run, untrained=True)
    return loaded_run.load(run) if _echo_state_config(loaded.config, run).train_input else loaded


def _own_folder(diagnosed: Run | Experiment) -> Path:
    """Returns diagnostics/ of a run, or of the run that an experiment would make, if there is none yet."""
    if isinstance(diagnosed, Run):
        return RunDirectory(diagnosed.directory).diagnostics
    directory = RunDirectory(Path(diagnosed.run))
    if directory.config.exists():
        message = "there is a run already: diagnose it with --run, or name another folder with --out"
        raise InputError(f"{directory.path}: {message}")
    return directory.diagnostics


def _describe(name: str, experiment: Experiment, step: int) -> dict[str, Any]:
    """Returns what identifies a reservoir. That of an ESN+i differs from step to step."""
    settings = asdict(_echo_state_config(experiment, name).reservoir)
    return {"name": name, "seed": experiment.seed, "step": step, "settings": settings}


def _digest(text: Text) -> str:
    """Returns the sha256 of the tokens of a text."""
    return hashlib.sha256(b"".join(ids.tobytes() for ids in (text.tokens, text.history, text.other))).hexdigest()


def _require_place(folder: Path, described: Sequence[dict[str, Any]], text: Text) -> None:
    """Raises InputError if a folder has a report of other reservoirs than these, or of another text."""
    if not any(os.path.lexists(folder / name) for name in NAMES):
        return
    try:
        tree = parse_json((folder / NAMES[0]).read_bytes())
        there = [{key: found[key] for key in described[0]} for found in tree["reservoirs"]]
        same = tree["text_sha256"] == _digest(text) and there == spell_nonfinite(described)
    except (OSError, ValueError, KeyError, TypeError):
        same = False
    if not same:
        raise InputError(
            f"{folder}: has a report of another reservoir or text, or a part of one; name another folder with --out, or give --overwrite"
        )


def _read_text(experiment: Experiment, tokenizer: Tokenizer, data: Path | None, run: Run | None) -> Text:
    """Returns stretches from evenly spaced positions of the text, which goes on from its beginning where it ends."""
    if data is not None:
        sentences = [line for line in read_lines(data) if line][:SENTENCES]
        name, ids = str(data), tokenizer.encode_framed(sentences)
    elif run is not None and experiment.data.is_in_run_only and RunDirectory(run.directory).stores.exists():
        store = run.training_store()
        assert store is not None
        name, ids = str(store.folder), store.tokens
    else:
        name, ids = experiment.data.sample(tokenizer, SENTENCES, experiment.seed)
    if len(ids) < STEPS:
        raise InputError(f"{name}: {len(ids)} tokens with the ends of sentences; give a text of at least {STEPS}")

    def stretches(first: int, length: int) -> np.ndarray:
        starts = (first + 3 * np.arange(SLOTS)) * len(ids) // (3 * SLOTS)
        return np.asarray(ids[(starts + np.arange(length)[:, None]) % len(ids)], np.int32)

    return Text(name, stretches(0, STEPS), stretches(1, HISTORY), stretches(2, HISTORY))


def _show(result: dict[str, Any]) -> None:
    """Prints the table and the verdicts."""
    found = result["reservoirs"]
    screen, columns = Screen(), [format_rows(each) for each in found]
    rows = [[name, *(column[name] for column in columns)] for name in columns[0]]
    screen.table(["", *(each["name"] for each in found)], rows, align="l")
    for each in found:
        screen.line(f"{each['name']}: {each['verdict']}")


def _render(result: dict[str, Any], note: str | None) -> str:
    """Returns the page. `note` is the line that says why there is no plot, or None."""
    found = result["reservoirs"]
    columns = [format_rows(each) for each in found]
    verdicts = [f"**{each['name']}** ({each['model']}). {each['verdict']}\n" for each in found]
    lines = ["# Reservoir diagnostics", "", *verdicts]
    rows = [[name, *(column[name] for column in columns)] for name in columns[0]]
    lines += markdown_table(["", *(each["name"] for each in found)], rows)
    lines += ["", note or "![distance of two states against tokens](contraction.png)", ""]
    lines += [
        f"Text: {result['text']}, {SLOTS} stretches of {STEPS} tokens, running on over the ends of sentences. State"
        f" contraction starts from two random states, input forgetting from two histories of {HISTORY} tokens; lines"
        " are geometric means over the stretches, bands their range, dashes what the rates were fitted to. A rate"
        " that halves from one range to the next is no exponential: leaks close to 0 forget by a power of time."
        " Compare memory capacities of one size only.",
        "",
    ]
    return "\n".join([*lines, *([f"`{result['command']}`", ""] if result["command"] else [])])


def _write(result: dict[str, Any], curves: dict[str, DistanceCurve], folder: Path) -> str | None:
    """Writes the three files, and returns the line that says why there is no plot, or None."""
    figures, page, picture = (folder / name for name in NAMES)
    with writing(folder):
        note = contraction.plot_contraction(curves, picture)
        if note:
            picture.unlink(missing_ok=True)  # it belongs to an earlier report
        write_file(page, _render(result, note))
        write_json(figures, result)
    return note
