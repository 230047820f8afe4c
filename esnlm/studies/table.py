"""Writes a study's table.json with all figures, table.md with means and intervals over seeds, and
table.png."""

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from esnlm.base.errors import InputError
from esnlm.base.files import json_text, write_files
from esnlm.evaluation.statistics import runs_by_seed, seed_interval
from esnlm.reports.tables import markdown_table
from esnlm.studies.measures import BASELINES, MEASURES
from esnlm.studies.study_file import StudyFile

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
}
MADE_FROM |= {"seed": "seeds"}

Figures = Mapping[str, Any]  # of a run, from measures.read_run
Tree = dict[str, Any]  # table.json


def row(
    name: str, runs: list[dict[str, Any]], values: dict[str, Any], state: str, **more: Any
) -> Tree:
    """Returns a grid cell's entry: its runs, and {mean, se, interval, n} of each measure, None if n
    is too small.

    Raises InputError if two runs have the same seed.
    """
    distinct = runs_by_seed(runs, name).values()
    means = {}
    for measure in MEASURES:
        its = [run[measure] for run in distinct if run[measure] is not None]
        # numbers of a diverged run may be infinite
        with np.errstate(invalid="ignore", over="ignore"):
            mean = float(np.mean(its)) if its else None
            error = float(np.std(its, ddof=1) / np.sqrt(len(its))) if len(its) > 1 else None
        means[measure] = {"mean": mean, "se": error, "interval": seed_interval(its), "n": len(its)}
    return {"cell": name, "values": values, "state": state, **more, "runs": runs, "means": means}


def require_own(out: Path, study: str, kind: str, names: Collection[str] | None = None) -> None:
    """Raises InputError if the folder holds another study, or measured cells that are not in
    `names`."""
    file = out / "table.json"
    if file.exists():
        tree = json.loads(file.read_bytes())
        if (tree.get("study"), tree.get("kind")) != (study, kind):
            raise InputError(
                f"{out}: holds other results than the {kind} {study}; choose another folder with"
                " --out"
            )
        measured = [cell["cell"] for cell in tree.get("cells", ()) if cell["runs"]]
        if names is not None and (lost := [name for name in measured if name not in names]):
            raise InputError(
                f"{out}: has runs of {lost[0]}, which this grid lacks; choose another folder with"
                " --out"
            )


def head(study: StudyFile, name: str, command: str, columns: Sequence[str]) -> Tree:
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


def write_cells(out: Path, tree: Tree, picture: bytes | None) -> None:
    """Writes the files of a grid: one row per cell, with published values."""
    cells, published = {cell["cell"]: cell for cell in tree["cells"]}, tree["reference"]["cells"]
    compared = {measure for values in published.values() for measure in values}
    header = ["", "runs"]
    for name in tree["columns"]:
        header += [
            MEASURES[name][0],
            *([f"{MEASURES[name][0]}, published"] if name in compared else []),
        ]
    rows = []
    for name in dict.fromkeys([*cells, *published]):
        cell = cells.get(name, {"state": "published only", "means": {}, "runs": []})
        line = [name, cell["state"]]
        for measure in tree["columns"]:
            line.append(_spell_mean(cell["means"].get(measure), measure, len(cell["runs"])))
            if measure in compared:
                mean, error = published.get(name, {}).get(measure) or (None, None)
                line.append(spell(mean, measure) + (f" ({spell(error, measure)})" if error else ""))
        rows.append(line)
    source = tree["reference"]["source"]
    tree |= {
        "legend": f"{LEGEND} Published: {source}" if source else LEGEND,
        "table": {"header": header, "rows": rows},
    }
    _write(out, tree, [run for cell in tree["cells"] for run in cell["runs"]], picture)


def write_trials(out: Path, tree: Tree) -> None:
    """Writes the files of a search: one row per trial, the best first."""
    rows = []
    for trial in tree["trials"]:
        values = [trial["values"].get(key) for key in tree["settings"]]
        chosen = [f"{value:.4g}" if isinstance(value, float) else str(value) for value in values]
        measured = [spell((trial["measures"] or {}).get(name), name) for name in tree["columns"]]
        rows.append([trial["run"], trial["state"], *chosen, *measured])
    header = [
        "",
        "state",
        *tree["settings"].values(),
        *(MEASURES[name][0] for name in tree["columns"]),
    ]
    legend = "Trials, the best first. NLL is in nats per token."
    tree |= {"legend": legend, "table": {"header": header, "rows": rows}}
    _write(out, tree, [trial["measures"] for trial in tree["trials"] if trial["measures"]])


def _write(out: Path, tree: Tree, runs: Sequence[Figures], picture: bytes | None = None) -> None:
    """Writes table.json and table.md, and the picture as table.png."""
    lines = "\n".join(markdown_table(tree["table"]["header"], tree["table"]["rows"], "llr"))
    origins = "\n".join(dict.fromkeys(f"on {run['origin']}" for run in runs))
    parts = [
        f"# {tree['study']}",
        tree["note"],
        made_from(runs),
        tree["legend"],
        lines,
        *tree["notes"],
        origins,
    ]
    parts += [f"![{tree['study']}](table.png)" if picture else "", f"Made by `{tree['command']}`\n"]
    files: dict[Path, str | bytes | None] = {
        out / "table.json": json_text(tree),
        out / "table.png": picture,
    }
    write_files(files | {out / "table.md": "\n\n".join(filter(None, parts))})


def made_from(runs: Sequence[Figures]) -> str:
    """Returns a sentence about text, vocabulary, epochs, learning rates, seeds and hours; ""
    without runs."""
    told = []
    for key, title in MADE_FROM.items():
        if values := sorted({run[key] for run in runs if run.get(key) is not None}):
            told.append(
                f"{title}"
                f" {', '.join(f'{x:,}' if isinstance(x, int) else f'{x:.10g}' for x in values)}"
            )
    hours = sum(float(run["seconds"] or 0) for run in runs) / 3600
    return "; ".join([*told, f"hours of training {hours:.1f}."]).capitalize() if runs else ""


def notes_on(runs: Sequence[Figures]) -> list[str]:
    """Returns notes on the comparability of runs."""
    found, beside = [], []
    for name, title in BASELINES.items():
        if values := [run[f"blimp_{name}"] for run in runs if run.get(f"blimp_{name}") is not None]:
            beside.append(
                f"{title}"
                f" {' .. '.join(dict.fromkeys(f'{end:.1f}' for end in (min(values), max(values))))}"
            )
    if beside:
        found.append(
            "Minimal pairs: the convention paper. On the same pairs, in percent:"
            f" {', '.join(beside)}."
        )
    if len({(run.get("data_sha256") or {}).get("tokenizer") for run in runs} - {None}) > 1:
        found.append(
            "The rows have different tokenizers: compare bits per byte only, not losses per token."
        )
    return found


def _spell_mean(found: Figures | None, measure: str, runs: int) -> str:
    """Formats a mean with its interval, and its number of runs if the row has more (collapsed runs
    have none)."""
    if found is None or found["mean"] is None:
        return ""
    low, high = found["interval"] or (0, 0)
    # counts are equal in all runs
    interval = f" [{spell(low, measure)}, {spell(high, measure)}]" if low < high else ""
    return (
        spell(found["mean"], measure)
        + interval
        + (f" of {found['n']}" if found["n"] < runs else "")
    )


def spell(value: float | None, measure: str) -> str:
    """Formats a number with the digits of its measure, a very large loss by its magnitude, and None
    as ""."""
    if value is None:
        return ""
    digits = MEASURES[measure][1]
    return f"{value:,.{digits}f}" if digits == 0 or abs(value) < 1e5 else f"{value:.2e}"
