"""The results of a study: the figures of its runs, and its files.

table.json has all figures, table.md means and intervals over seeds, and table.png a grid's plot.
"""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from esnlm.base.errors import InputError
from esnlm.evaluation.statistics import mean_over_seeds, runs_by_seed
from esnlm.reports import blimp_report, plots, run_table
from esnlm.reports.figures import FIGURES, format_figure, format_mean, titles
from esnlm.reports.report import Report, markdown_table
from esnlm.runs.directory import RunDirectory
from esnlm.studies.pool import StudyRun
from esnlm.studies.study_file import MEASURES, StudyFile

LEGEND = (
    "Mean over runs that differ only in their seed [95 % interval over seeds by Student's t, for"
    " three or more seeds];\npublished values as printed (standard error). NLL is in nats per"
    " token; train NLL is the mean over the updates of\nthe last epoch. Diverged runs (an NLL that"
    " is not finite or above 10 ln V) are included."
)
MADE_FROM = {
    "words": "words",
    "vocab_size": "vocabulary",
    "epochs": "epochs",
    "learning_rate": "learning rate",
    "seed": "seeds",
}
# in reports on minimal pairs
BASELINES = {"length": "length only", "unigram": "a unigram model of the training text"}
PANELS = ("train_nll", "val_nll", "blimp")  # of the plot
FAR = 100.0  # a larger ratio of losses, as with diverged runs, needs a logarithmic scale

Figures = Mapping[str, Any]  # of a run, from read_run
Tree = dict[str, Any]  # table.json


def read_run(run: StudyRun, pairs: str | None = None) -> dict[str, Any] | None:
    """Returns the figures of a run, with MEASURES as numbers or None; None if it is not finished.

    Args:
        pairs: digest of the minimal pairs to require; None: any pairs.
    """
    directory = RunDirectory(run.directory)
    summary = directory.read_summary()
    if summary is None:
        return None
    known = run_table.loss_figures(summary)
    figures: dict[str, Any] = {name: known.get(name) for name in MEASURES}
    if "train_nll_of" in summary and summary["status"] != "diverged":
        figures["train_nll"] = None  # not the epoch mean of Ueda et al. 2025a
    versions = summary["versions"]
    software = ", ".join(f"{name} {versions[name]}" for name in ("esnlm", "jax", "numpy"))
    has_unigram = directory.unigram.exists()
    figures |= {
        "run": run.name,
        "seed": run.experiment.seed,
        "status": summary["status"],
        "origin": f"{run_table.describe_machine(summary['device'])}; {software}",
        "words": summary.get("words"),
        "vocab_size": len(np.load(directory.unigram, mmap_mode="r")) if has_unigram else None,
        "epochs": summary["epochs"],
        "learning_rate": getattr(run.experiment.training, "learning_rate", None),
        "data_sha256": summary.get("data_sha256"),
        "pairs_sha256": None,
    }
    file = directory.evaluation / "blimp-paper.json"
    report = blimp_report.read(file) if file.exists() else None
    if report and report["step"] == summary["step"] and pairs in (None, report["data"]["sha256"]):
        figures["pairs_sha256"] = report["data"]["sha256"]
        figures["blimp"] = report["overall"]["accuracy"]  # None if the model has collapsed
        for name in BASELINES:
            figures[f"blimp_{name}"] = blimp_report.baseline_accuracy(report, name)
    return figures


def make_row(
    name: str, runs: list[dict[str, Any]], values: dict[str, Any], state: str, **more: Any
) -> Tree:
    """Returns a grid cell's entry: its runs, and the mean over seeds of each measure.

    Raises InputError if two runs have the same seed.
    """
    distinct = runs_by_seed(runs, name).values()
    means = {measure: mean_over_seeds(run[measure] for run in distinct) for measure in MEASURES}
    return {"cell": name, "values": values, "state": state, **more, "runs": runs, "means": means}


def check_own(out: Path, study: str, kind: str, names: Collection[str] | None = None) -> None:
    """Raises InputError if the folder holds another study, or measured cells not in `names`."""
    file = out / "table.json"
    if not file.exists():
        return
    tree = json.loads(file.read_bytes())
    if (tree.get("study"), tree.get("kind")) != (study, kind):
        raise InputError(
            f"{out}: holds other results than the {kind} {study}; choose another folder with --out"
        )
    measured = [cell["cell"] for cell in tree.get("cells", ()) if cell["runs"]]
    if names is not None and (lost := [name for name in measured if name not in names]):
        raise InputError(
            f"{out}: has runs of {lost[0]}, which this grid lacks; choose another folder with --out"
        )


def start_tree(study: StudyFile, name: str, command: str, columns: Sequence[str]) -> Tree:
    """Returns the first keys of table.json."""
    return {
        "format": "esnlm study",
        "kind": study.kind,
        "study": name,
        "note": study.note.strip(),
        "command": command,
        "units": (
            "NLL in nats per token, blimp in percent; se: one standard error over seeds, sd (n - 1)"
            " / sqrt n; interval: 95 %"
        ),
        "columns": list(columns),
    }


def write_cells(out: Path, tree: Tree) -> None:
    """Writes the files of a grid: one row per cell, with published values."""
    cells, published = {cell["cell"]: cell for cell in tree["cells"]}, tree["reference"]["cells"]
    compared = {measure for values in published.values() for measure in values}
    header, rows = ["", "runs"], []
    for name in tree["columns"]:
        title = FIGURES[name].title
        header += [title, f"{title}, published"] if name in compared else [title]
    for name in dict.fromkeys([*cells, *published]):
        cell = cells.get(name, {"state": "published only", "means": {}, "runs": []})
        row = [name, cell["state"]]
        for measure in tree["columns"]:
            row.append(_format_cell(cell, measure))
            if measure in compared:
                row.append(_format_published(published.get(name, {}).get(measure)))
        rows.append(row)
    source = tree["reference"]["source"]
    tree |= {
        "legend": f"{LEGEND} Published: {source}" if source else LEGEND,
        "table": {"header": header, "rows": rows},
    }
    runs = [run for cell in tree["cells"] for run in cell["runs"]]
    picture = plots.render(lambda: draw_grid(tree))[0] if runs else None
    _write(out, tree, runs, picture)


def write_trials(out: Path, tree: Tree) -> None:
    """Writes the files of a search: one row per trial, the best first."""
    rows = []
    for trial in tree["trials"]:
        values, measures = trial["values"], trial["measures"] or {}
        chosen = [
            f"{value:.4g}" if isinstance(value, float) else str(value)
            for value in map(values.get, tree["settings"])
        ]
        measured = [format_figure(name, measures.get(name)) for name in tree["columns"]]
        rows.append([trial["run"], trial["state"], *chosen, *measured])
    header = ["", "state", *tree["settings"].values(), *titles(tree["columns"])]
    legend = "Trials, the best first. NLL is in nats per token."
    tree |= {"legend": legend, "table": {"header": header, "rows": rows}}
    _write(out, tree, [trial["measures"] for trial in tree["trials"] if trial["measures"]])


def _write(out: Path, tree: Tree, runs: Sequence[Figures], picture: bytes | None = None) -> None:
    parts = [
        f"# {tree['study']}",
        tree["note"],
        describe_origin(runs),
        tree["legend"],
        "\n".join(markdown_table(tree["table"]["header"], tree["table"]["rows"], "llr")),
        *tree["notes"],
        "\n".join(dict.fromkeys(f"on {run['origin']}" for run in runs)),
        f"![{tree['study']}](table.png)" if picture else "",
        f"Made by `{tree['command']}`\n",
    ]
    page = "\n\n".join(filter(None, parts))
    Report(out / "table.json", measured=False).write(tree, page, picture)


def describe_origin(runs: Sequence[Figures]) -> str:
    """Returns a sentence about text, vocabulary, epochs, learning rates, seeds and hours."""
    if not runs:
        return ""
    parts = []
    for key, title in MADE_FROM.items():
        values = sorted({run[key] for run in runs if run.get(key) is not None})
        texts = [f"{value:,}" if isinstance(value, int) else f"{value:.10g}" for value in values]
        parts += [f"{title} {', '.join(texts)}"] if texts else []
    hours = sum(float(run["seconds"] or 0) for run in runs) / 3600
    return "; ".join([*parts, f"hours of training {hours:.1f}."]).capitalize()


def notes_on(runs: Sequence[Figures]) -> list[str]:
    """Returns notes on the comparability of runs."""
    baselines = []
    for name, title in BASELINES.items():
        values = [run[f"blimp_{name}"] for run in runs if run.get(f"blimp_{name}") is not None]
        bounds = dict.fromkeys(
            format_figure("accuracy", end(values)) for end in (min, max) if values
        )
        baselines += [f"{title} {' .. '.join(bounds)}"] if bounds else []
    notes = [
        f"{line}."
        for line in run_table.tokenizer_notes(run.get("data_sha256") or {} for run in runs)
    ]
    if baselines:
        text = "Minimal pairs: the convention paper. On the same pairs, in percent:"
        notes.insert(0, f"{text} {', '.join(baselines)}.")
    return notes


def _format_cell(cell: Tree, measure: str) -> str:
    """Formats a mean with its interval, and its number of runs if others have none."""
    mean = cell["means"].get(measure) or mean_over_seeds([])
    fewer = f" of {mean['n']}" if 0 < mean["n"] < len(cell["runs"]) else ""
    return format_mean(measure, mean, as_interval=True) + fewer


def _format_published(value: Sequence[float | None] | None) -> str:
    """Formats a published value as in the study file, with its standard error if it has one."""
    mean, error = value or (None, None)
    if mean is None:
        return ""
    return f"{mean:,}" if error is None else f"{mean:,} ({error:,})"


def draw_grid(tree: Mapping[str, Any]) -> "plots.Figure":
    """Plots losses and accuracies of the cells of table.json, with published values."""
    cells = {cell["cell"]: cell["means"] for cell in tree["cells"]}
    published = tree["reference"]["cells"]
    names = list(dict.fromkeys([*cells, *published]))
    means = {
        key: np.array([_bounds(cells.get(name, {}).get(key)) for name in names]) for key in PANELS
    }
    keys = [key for key in PANELS if np.isfinite(means[key]).any()] or ["val_nll"]
    figure, (axes,) = plots.figure(
        3 + 3.6 * len(keys), 0.26 * len(names) + 1.5, columns=len(keys), sharey=True
    )
    rows = np.arange(len(names))
    for key, panel in zip(keys, axes, strict=True):
        mean, low, high = means[key].T
        style: dict[str, Any] = {"fmt": "o", "color": plots.COLOURS[0], "label": "this study"}
        panel.errorbar(mean, rows, xerr=[mean - low, high - mean], capsize=2, **style)
        if published:
            values = [published.get(name, {}).get(key) or (math.nan, 0) for name in names]
            value, error = np.array(values, float).T
            style = {"fmt": "D", "color": plots.COLOURS[1], "label": "published"}
            style |= {"markerfacecolor": "white", "zorder": 1, "capsize": 2}
            panel.errorbar(value, rows, xerr=np.nan_to_num(error), **style)
        finite = mean[np.isfinite(mean)]
        is_wide = finite.size > 0 and 0 < FAR * finite.min() < finite.max()
        panel.set(xlabel=FIGURES[key].title, xscale="log" if is_wide else "linear")
    axes[0].set_yticks(rows, names)
    axes[0].set_ylim(len(names) - 0.5, -0.5)
    title = f"{tree['study']}: means, with 95 % intervals for three or more seeds"
    plots.add_title(figure, title)
    plots.add_legend(figure, axes[0])
    return figure


def _bounds(mean: Figures | None) -> tuple[float, float, float]:
    """Returns a mean and the bounds of its interval, nan if not finite."""
    if mean is None or mean["mean"] is None or not math.isfinite(mean["mean"]):
        return math.nan, math.nan, math.nan
    return mean["mean"], *(mean["interval"] or (mean["mean"], mean["mean"]))
