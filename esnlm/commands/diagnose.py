"""Diagnoses a reservoir: does it forget its initial state, and what does it remember?

It takes the reservoir of a run, of a configuration (which needs no training), or both side by side.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from esnlm.base.console import spinner
from esnlm.base.errors import InputError
from esnlm.commands.arguments import OVERWRITE, AnySetting, Argument, find_config, local_path

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure

    from esnlm.data.tokenizer import Tokenizer
    from esnlm.diagnosis.contraction import DistanceCurve
    from esnlm.diagnosis.measures import Text
    from esnlm.loaded_run import Run
    from esnlm.models.echo_state import EchoStateConfig
    from esnlm.training.config import Experiment

SLOTS = 8  # stretches of text read side by side
STEPS = 300  # tokens that both states of a pair read
HISTORY = 100  # tokens before them
SENTENCES = 2000  # read from the grammar, or lines from a file

ARGUMENTS = [
    Argument("--run", metavar="DIR", help="the run directory"),
    Argument(
        "--config",
        type=find_config,
        metavar="FILE",
        help="configuration file, in place of a run; --section.key value overrides it",
    ),
    Argument(
        "--text",
        type=Path,
        metavar="FILE",
        help="input text, one sentence per line (default: the run's own)",
    ),
    Argument(
        "--out",
        type=local_path,
        metavar="DIR",
        help="folder for the report (default: diagnostics/ in the run directory)",
    ),
    OVERWRITE,
    AnySetting(),
]


def run(args: argparse.Namespace) -> None:
    """Measures the reservoirs, writes the figures and the plot, and prints a table and a verdict.

    Unlike in a model, the state is not reset at the ends of sentences: only a long text gives time
    to forget. Rates are in nats per token.
    """
    from esnlm import loaded_run
    from esnlm.base.screen import Screen
    from esnlm.diagnosis import measures
    from esnlm.machine.compute import backend
    from esnlm.reports import plots
    from esnlm.reports.figures import diagnosis_rows
    from esnlm.reports.report import Report
    from esnlm.reservoir import weights
    from esnlm.runs.directory import RunDirectory
    from esnlm.training import config_io

    if args.config is None and args.overrides:
        raise InputError(f"{' '.join(args.overrides)}: settings need --config; a run has its own")
    backend()  # before anything is written
    experiment = None if args.config is None else config_io.read(args.config, args.overrides)
    loaded = None
    if args.run is not None:
        loaded = loaded_run.load(args.run, untrained=True)
        if _echo_state_config(loaded.config, args.run).train_input:
            loaded = loaded_run.load(args.run)
    source = loaded.config if loaded else experiment
    if source is None:
        raise InputError(
            "nothing to diagnose: give a run directory (--run), a configuration (--config) or both"
        )
    tokenizer = loaded.tokenizer if loaded else source.data.tokenizer()
    text = _read_text(source, tokenizer, args.text, loaded)
    folder = loaded.directory if loaded else args.out or source.run
    if not folder:
        raise InputError(f"{args.config}: names no run directory: name a folder with --out")
    directory = RunDirectory(Path(folder))
    if loaded is None and args.out is None and directory.config.exists():
        raise InputError(
            f"{directory.path}: there is a run already: diagnose it with --run, or name a folder"
            " with --out"
        )
    subjects: list[tuple[str, Experiment, int, Any]] = []  # name, experiment, step, reservoir
    if loaded:
        model: Any = loaded.model
        subjects.append((loaded.name, loaded.config, loaded.step, model.reservoir))
    if experiment is not None:
        # With --run, the reservoir is initialized for the run's vocabulary.
        name, settings = args.config.name, _echo_state_config(experiment, args.config).reservoir
        with spinner(f"{name}: initializing the reservoir", announce=True):
            new = weights.initialize_reservoir(settings, tokenizer.vocab_size, experiment.seed)
        subjects.append((name, experiment, 0, new.reservoir))
    report = Report((args.out or directory.diagnostics) / "diagnostics.json", args.command)
    report.check(args.overwrite)

    reservoirs: list[dict[str, Any]] = []
    curves: dict[str, DistanceCurve] = {}
    for name, settings_of, step, reservoir in subjects:
        echo_state = _echo_state_config(settings_of, name)
        figures, measured = measures.measure(name, echo_state, reservoir, text)
        reservoirs.append(figures | {"seed": settings_of.seed, "step": step})
        curves |= {f"{name}: {measure}": curve for measure, curve in measured.items()}
    result = {"reservoirs": reservoirs, "text": text.name, "command": args.command}
    picture, note = plots.render(lambda: _plot(curves))
    written = report.write(result, others={report.file.with_name("contraction.png"): picture})
    screen, columns = Screen(), [diagnosis_rows(figures) for figures in reservoirs]
    rows = [[row, *(column[row] for column in columns)] for row in columns[0]]
    screen.table(["", *(figures["name"] for figures in reservoirs)], rows, align="l")
    for figures in reservoirs:
        screen.line(f"{figures['name']}: {figures['verdict']}")
    print("; ".join(filter(None, [written, note])))


def _echo_state_config(experiment: "Experiment", where: str | Path) -> "EchoStateConfig":
    """Returns the model's configuration. Raises InputError if it is no echo state network."""
    from esnlm.models.echo_state import EchoStateConfig

    model = experiment.model
    if not isinstance(model, EchoStateConfig):
        raise InputError(f"{where}: {model.title} is not an echo state network (model.family: esn)")
    return model


def _read_text(
    experiment: "Experiment", tokenizer: "Tokenizer", data: Path | None, run: "Run | None"
) -> "Text":
    """Returns stretches from evenly spaced positions of the text, which repeats at its end."""
    import numpy as np

    from esnlm.data.text_files import read_lines
    from esnlm.diagnosis.measures import Text
    from esnlm.runs.directory import RunDirectory

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

    def stretches(first: int, length: int) -> "np.ndarray":
        starts = (first + 3 * np.arange(SLOTS)) * len(ids) // (3 * SLOTS)
        return np.asarray(ids[(starts + np.arange(length)[:, None]) % len(ids)], np.int32)

    return Text(name, stretches(0, STEPS), stretches(1, HISTORY), stretches(2, HISTORY))


def _plot(curves: "dict[str, DistanceCurve]") -> "Figure":
    """Plots positive distances against time steps: the geometric mean over slots, and the range."""
    import numpy as np

    from esnlm.reports import plots

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
