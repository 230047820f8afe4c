"""`esnlm diagnose`: properties of a reservoir, and whether it forgets, by theory and on text.

It takes the reservoir of a run, of a configuration, or both side by side. Unlike in a model, the
state is not reset at the ends of sentences: only a long text gives time to forget.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from esnlm import loaded_run
from esnlm.base.console import stage
from esnlm.base.errors import InputError
from esnlm.base.screen import Screen
from esnlm.data.text_files import read_lines
from esnlm.data.tokenizer import Tokenizer
from esnlm.diagnosis import measures
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

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    """Diagnoses the reservoir of a run, of a configuration (which needs no training), or of both.

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
    subjects: list[tuple[str, Experiment, int, Any]] = []  # name, experiment, step, reservoir
    if loaded:
        model: Any = loaded.model
        subjects.append((loaded.name, loaded.config, loaded.step, model.reservoir))
    if experiment and config is not None:
        name, settings = Path(config).name, _echo_state_config(experiment, config).reservoir
        with stage(f"{name}: initializing the reservoir"):
            new = weights.initialize_reservoir(settings, tokenizer.vocab_size, experiment.seed)
        subjects.append((name, experiment, 0, new.reservoir))
    report = Report((out or directory.diagnostics) / "diagnostics.json", command)
    report.check(overwrite)

    reservoirs: list[dict[str, Any]] = []
    curves: dict[str, DistanceCurve] = {}
    for name, settings_of, step, reservoir in subjects:
        echo_state = _echo_state_config(settings_of, name)
        figures, measured = measures.measure(name, echo_state, reservoir, text)
        reservoirs.append(figures | {"seed": settings_of.seed, "step": step})
        curves |= {f"{name}: {measure}": curve for measure, curve in measured.items()}
    result = {
        "reservoirs": reservoirs,
        "text": text.name,
        "command": command,
        "versions": versions(),
        "device": describe_device(),
    }
    picture, note = plots.render(lambda: _plot(curves))
    written = report.write(result, others={report.file.with_name("contraction.png"): picture})
    screen, columns = Screen(), [diagnosis_rows(figures) for figures in reservoirs]
    rows = [[row, *(column[row] for column in columns)] for row in columns[0]]
    screen.table(["", *(figures["name"] for figures in reservoirs)], rows, align="l")
    for figures in reservoirs:
        screen.line(f"{figures['name']}: {figures['verdict']}")
    print("; ".join(filter(None, [written, note])))
    return result


def _echo_state_config(experiment: Experiment, where: str | Path) -> EchoStateConfig:
    """Returns the model's configuration. Raises InputError if it is no echo state network."""
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
    """Returns stretches from evenly spaced positions of the text, which repeats at its end."""
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


def _plot(curves: dict[str, DistanceCurve]) -> "Figure":
    """Plots positive distances against time steps: the geometric mean over slots, and the range."""
    figure, ((axes,),) = plots.figure(8, 5, subplot_kw={"yscale": "log"})
    for i, (name, curve) in enumerate(curves.items()):
        is_visible = (np.isfinite(curve.distance) & (curve.distance > 0)).all(axis=1)
        distance = curve.distance[: int(np.argmin([*is_visible, False]))]
        steps, colour = np.arange(len(distance)), f"C{i}"
        mean = np.exp(np.log(distance).mean(axis=1))
        first, last = curve.fitted
        label = f"{name}: {curve.rate:+.3g} nats per step (steps {first} to {last})"
        axes.plot(steps, mean, color=colour, linewidth=1.6, label=label)
        low, high = distance.min(axis=1), distance.max(axis=1)
        axes.fill_between(steps, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.set(xlabel="steps of common input", ylabel="distance of the two states")
    figure.legend(loc="outside lower center", frameon=False, fontsize=9)
    return figure
