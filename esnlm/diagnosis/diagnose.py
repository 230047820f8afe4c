"""`esnlm diagnose`: properties of a reservoir, and whether it forgets, by theory and on text.

It takes the reservoir of a run, of a configuration, or both side by side. Unlike in a model, the
state is not reset at the ends of sentences: only a long text gives time to forget.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from esnlm import loaded_run
from esnlm.base.console import stage
from esnlm.base.errors import InputError
from esnlm.base.screen import Screen
from esnlm.data.text_files import read_lines
from esnlm.data.tokenizer import Tokenizer
from esnlm.diagnosis import contraction, measures
from esnlm.diagnosis.contraction import DistanceCurve
from esnlm.diagnosis.measures import Text
from esnlm.loaded_run import Run
from esnlm.machine.compute import backend, in_float32
from esnlm.models.echo_state import EchoStateConfig
from esnlm.reports import plots
from esnlm.reports.figures import diagnosis_rows
from esnlm.reports.report import Report
from esnlm.reservoir import weights
from esnlm.runs.directory import RunDirectory
from esnlm.training import config_io
from esnlm.training.config import Experiment
from esnlm.training.summary import describe_device, versions

SLOTS = 8  # stretches of text read side by side
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
    """Diagnoses the reservoir of a run, of a configuration (which needs no training), or of both on
    one text.

    Prints a table and a verdict, writes diagnostics.json and contraction.png, and returns the
    content of the former. Rates are in nats per token.

    Args:
        run: a run directory. For an ESN+i the newest checkpoint is used, because its W_in is
            trained.
        config, overrides: a YAML file, and `--section.key value` for it. With `run` its reservoir
            is initialized for the run's vocabulary.
        data: a text file with one sentence per line; None: the run's or the configuration's own
            text.
        out: folder for the files; None: diagnostics/ in the run directory.
        overwrite: whether to replace a report.
        command: the command, for the report.
    """
    if config is None and overrides:
        raise InputError(f"{' '.join(overrides)}: settings need --config; a run has its own")
    backend()  # before anything is written
    experiment = None if config is None else config_io.read(config, list(overrides))
    loaded = None if run is None else _load(run)
    source = loaded.config if loaded else experiment
    if source is None:
        raise InputError(
            "nothing to diagnose: give a run directory (--run), a configuration (--config) or both"
        )
    tokenizer = loaded.tokenizer if loaded else source.data.tokenizer()
    text = _read_text(source, tokenizer, data, loaded)
    directory = RunDirectory(loaded.directory if loaded else Path(source.run))
    if loaded is None and out is None and directory.config.exists():
        raise InputError(
            f"{directory.path}: there is a run already: diagnose it with --run, or name a folder"
            " with --out"
        )
    diagnosed: list[tuple[str, Experiment, int, Any]] = []  # name, experiment, step, reservoir
    if loaded:
        model: Any = loaded.model
        diagnosed.append((loaded.name, loaded.config, loaded.step, model.reservoir))
    if experiment and config is not None:
        name, settings = Path(config).name, _echo_state_config(experiment, config).reservoir
        with stage(f"{name}: initializing the reservoir"):
            initialized = weights.initialize_reservoir(
                settings, tokenizer.vocab_size, experiment.seed
            )
        diagnosed.append((name, experiment, 0, initialized.reservoir))
    report = Report((out or directory.diagnostics) / "diagnostics.json", command)
    report.check(overwrite)

    found: list[dict[str, Any]] = []
    curves: dict[str, DistanceCurve] = {}
    for name, its, step, reservoir in diagnosed:
        figures, its_curves = measures.measure(name, _echo_state_config(its, name), reservoir, text)
        found.append(figures | {"seed": its.seed, "step": step})
        curves |= {f"{name}: {what}": curve for what, curve in its_curves.items()}
    result = {
        "reservoirs": found,
        "text": text.name,
        "command": command,
        "versions": versions(),
        "device": describe_device(),
    }
    picture, note = plots.render(lambda: contraction.plot_contraction(curves))
    written = report.write(result, others={report.file.with_name("contraction.png"): picture})
    screen, columns = Screen(), [diagnosis_rows(each) for each in found]
    rows = [[row, *(column[row] for column in columns)] for row in columns[0]]
    screen.table(["", *(each["name"] for each in found)], rows, align="l")
    for each in found:
        screen.line(f"{each['name']}: {each['verdict']}")
    print("; ".join(filter(None, [written, note])))
    return result


def _echo_state_config(experiment: Experiment, where: str | Path) -> EchoStateConfig:
    """Returns the model's configuration. Raises InputError for a model whose reservoir cannot be
    diagnosed."""
    model = experiment.model
    if not isinstance(model, EchoStateConfig):
        raise InputError(f"{where}: {model.title} is not an echo state network (model.family: esn)")
    return model


def _load(run: str | Path) -> Run:
    """Loads a run: untrained, unless its W_in is trained."""
    loaded = loaded_run.load(run, untrained=True)
    return loaded_run.load(run) if _echo_state_config(loaded.config, run).train_input else loaded


def _read_text(
    experiment: Experiment, tokenizer: Tokenizer, data: Path | None, run: Run | None
) -> Text:
    """Returns stretches from evenly spaced positions of the text, continuing from its beginning at
    its end."""
    if data is not None:
        sentences = [line for line in read_lines(data) if line][:SENTENCES]
        name, ids = str(data), tokenizer.encode_framed(sentences)
    elif (
        run is not None
        and experiment.data.is_in_run_only
        and RunDirectory(run.directory).stores.exists()
    ):
        store = run.training_store()
        assert store is not None
        name, ids = str(store.folder), store.tokens
    else:
        name, ids = experiment.data.sample(tokenizer, SENTENCES, experiment.seed)
    if len(ids) < STEPS:
        raise InputError(
            f"{name}: {len(ids)} tokens, ends of sentences included; give a text of at least"
            f" {STEPS}"
        )

    def stretches(first: int, length: int) -> np.ndarray:
        starts = (first + 3 * np.arange(SLOTS)) * len(ids) // (3 * SLOTS)
        return np.asarray(ids[(starts + np.arange(length)[:, None]) % len(ids)], np.int32)

    return Text(name, stretches(0, STEPS), stretches(1, HISTORY), stretches(2, HISTORY))
