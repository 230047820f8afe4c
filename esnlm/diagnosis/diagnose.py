"""`python -m esnlm diagnose`: what a reservoir is, and whether it forgets, by theory and on text.

A run's reservoir, that of a configuration, or both side by side. Text runs on over the ends of sentences here, where a
model starts each sentence at the state 0: only so is there time to forget.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import esnlm
from esnlm import config as configuration
from esnlm.config import Experiment, GrammarData, ImportedData
from esnlm.data import grammar
from esnlm.data.sentences import read_lines
from esnlm.data.store import open_store
from esnlm.data.tokenizer import Tokenizer, word_tokenizer
from esnlm.diagnosis import contraction, measures
from esnlm.diagnosis.contraction import DistanceCurve
from esnlm.diagnosis.measures import Text
from esnlm.errors import InputError
from esnlm.reservoir import weights
from esnlm.reservoir.cell import Reservoir, Stack
from esnlm.runs.atomic import write_atomically
from esnlm.runs.console import say
from esnlm.runs.directory import RunDirectory
from esnlm.training.summary import describe_device, versions

SLOTS = 8
STEPS = 300  # of common input
HISTORY = 100  # tokens before it
SENTENCES = 2000  # of the grammar, and lines of a file, as text to read


def diagnose(
    run: str | Path | None = None,
    config: str | Path | None = None,
    overrides: Sequence[str] = (),
    data: Path | None = None,
    out: Path | None = None,
    command: str | None = None,
) -> dict:
    """Diagnoses the reservoir of a run, of a configuration (drawn here; it needs no training), or of both on one text.

    Prints a table and a verdict, and writes diagnostics.json, diagnostics.md and contraction.png.

    Args:
        run: a run directory. Of an ESN+i the newest checkpoint is taken, as its W_in is trained.
        config: a YAML file, with `overrides` from the command line. With `run`, it is drawn for the run's vocabulary.
        data: a text file, one sentence a line; without it the run's or the configuration's own text.
        out: the folder to write to; otherwise diagnostics/ in the run directory.
        command: to be named in the report.

    Returns:
        What is written as JSON; distances and rates per token, in nats.

    Raises:
        InputError: the model has no reservoir, or a file cannot be read or written.
    """
    if run is None and config is None:
        raise InputError("nothing to diagnose: give a run directory (--run), a configuration (--config) or both")
    if config is None and overrides:
        raise InputError(f"{' '.join(overrides)}: settings go with --config; a run has its own")
    drawn = None
    if config is not None:
        drawn = configuration.read(config, overrides)
        _require_reservoir(drawn, config)
    loaded = _load(Path(run)) if run is not None else None
    folder = out or _folder(loaded, drawn)
    source = loaded.config if loaded else drawn
    tokenizer = loaded.tokenizer if loaded else _tokenizer(source)
    text = _text(source, tokenizer, data)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror}; name another folder with --out") from None

    found, curves = [], {}

    def measure(name: str, experiment: Experiment, reservoir: Reservoir | Stack) -> None:
        its_figures, of_these = measures.measure(name, experiment.model, reservoir, text)
        found.append(its_figures | {"seed": experiment.seed})
        curves.update({f"{name}: {what}": curve for what, curve in of_these.items()})

    if loaded:
        measure(loaded.name, loaded.config, loaded.model.reservoir)
    if drawn:
        say(f"{Path(config).name}: drawing the reservoir")
        measure(
            Path(config).name, drawn, weights.draw(drawn.model.reservoir, tokenizer.vocab_size, drawn.seed).reservoir
        )
    result = {
        "reservoirs": found,
        "text": text.name,
        "command": command,
        "versions": versions(),
        "device": describe_device(),
    }
    note = _write(result, curves, folder)
    _show(result)
    print(
        f"written: {folder / 'diagnostics.json'} (and .md{'' if note else ', contraction.png'} beside it){f'; {note}' if note else ''}"
    )
    return result


def _require_reservoir(experiment: Experiment, where) -> None:
    if experiment.model.family == "jaeger":
        raise InputError(
            f"{where}: {experiment.model.title} has output feedback, and the echo state property is defined without it only (definition 1);"
            " diagnose its reservoir in an echo state network"
        )
    if experiment.model.family != "esn":
        raise InputError(f"{where}: {experiment.model.title} has no reservoir; diagnose an echo state network")


def _load(run: Path) -> "esnlm.Run":
    file = RunDirectory(run).config
    if file.exists():
        _require_reservoir(configuration.read(file), run)
    loaded = esnlm.load(run, untrained=True)
    return esnlm.load(run) if loaded.config.model.train_input else loaded


def _folder(loaded, drawn) -> Path:
    if loaded:
        return loaded.directory / "diagnostics"
    if RunDirectory(Path(drawn.run)).config.exists():
        raise InputError(
            f"{drawn.run}: there is a run already: diagnose it with --run, or name another folder with --out"
        )
    return Path(drawn.run) / "diagnostics"


def _tokenizer(experiment: Experiment) -> Tokenizer:
    if isinstance(experiment.data, GrammarData):
        return word_tokenizer(grammar.words())
    if isinstance(experiment.data, ImportedData):
        raise InputError("data.kind is imported, which tells no vocabulary; choose store or grammar")
    return open_store(experiment.data.train, verify=False).tokenizer()


def _text(experiment: Experiment, tokenizer: Tokenizer, data: Path | None) -> Text:
    """Stretches from evenly spaced places of the text, which goes on from its beginning where it ends."""
    sentences = None
    if data is not None:
        name, sentences = str(data), [line for line in read_lines(data) if line][:SENTENCES]
    elif isinstance(experiment.data, GrammarData):
        name, sentences = "the generated grammar", list(grammar.sentences(SENTENCES, experiment.seed))
    else:
        store = open_store(experiment.data.train, verify=False)
        store.require_tokenizer(tokenizer)
        name, ids = str(store.folder), store.tokens
    if sentences is not None:
        ids = np.array(
            [i for line in tokenizer.encode_batch(sentences) for i in (tokenizer.bos, *line, tokenizer.eos)], np.int32
        )
    if len(ids) < STEPS:
        raise InputError(f"{name}: {len(ids)} tokens with the ends of sentences; give a text of at least {STEPS}")

    def stretches(first: int, length: int) -> np.ndarray:
        starts = (first + 3 * np.arange(SLOTS)) * len(ids) // (3 * SLOTS)
        return np.asarray(ids[(starts + np.arange(length)[:, None]) % len(ids)], np.int32)

    return Text(name, stretches(0, STEPS), stretches(1, HISTORY), stretches(2, HISTORY))


def _show(result: dict) -> None:
    found = result["reservoirs"]
    table = Table(box=None, pad_edge=False)
    for heading in ("", *(each["name"] for each in found)):
        table.add_column(heading)
    columns = [measures.table(each) for each in found]
    for name in columns[0]:
        table.add_row(name, *(column[name] for column in columns))
    Console(width=None if Console().is_terminal else 150, highlight=False, markup=False).print(table)
    for each in found:
        print(f"{each['name']}: {each['verdict']}")


def _markdown(result: dict, note: str | None) -> str:
    found = result["reservoirs"]
    columns = [measures.table(each) for each in found]
    lines = [
        "# Reservoir diagnostics",
        "",
        *(f"**{each['name']}** ({each['model']}). {each['verdict']}\n" for each in found),
    ]
    lines += [f"| | {' | '.join(each['name'] for each in found)} |", f"| --- {'| --- ' * len(found)}|"]
    lines += [
        f"| {name.replace('|', '&#124;')} | {' | '.join(column[name] for column in columns)} |" for name in columns[0]
    ]
    lines += ["", note or "![distance of two states against tokens](contraction.png)", ""]
    lines += [
        f"Text: {result['text']}, {SLOTS} stretches of {STEPS} tokens, running on over the ends of sentences. State contraction"
        f" starts from two random states, input forgetting from two histories of {HISTORY} tokens; lines are geometric means over"
        " the stretches, bands their range, dashes what the rates were fitted to. A rate that halves from one range to the next is"
        " no exponential: leaks close to 0 forget by a power of time. Compare memory capacities of one size only.",
        "",
    ]
    return "\n".join([*lines, *([f"`{result['command']}`", ""] if result["command"] else [])])


def _write(result: dict, curves: dict[str, DistanceCurve], folder: Path) -> str | None:
    """Writes the three files; gives a line that says why there is no plot, or None."""
    picture = folder / "contraction.png"
    finite = json.loads(json.dumps(result), parse_constant=lambda name: str(float(name)))  # JSON has no inf and no nan
    try:
        note = contraction.plot_contraction(curves, picture)
        if note:
            picture.unlink(missing_ok=True)  # of an earlier report
        write_atomically(folder / "diagnostics.md", _markdown(result, note))
        write_atomically(folder / "diagnostics.json", json.dumps(finite, indent=1) + "\n")
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror}; name another folder with --out") from None
    return note
