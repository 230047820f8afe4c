"""The table of a study: the mean of each row's runs with its interval over seeds, beside published values."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from esnlm.errors import InputError
from esnlm.evaluation.statistics import seed_interval
from esnlm.io.atomic import write_files
from esnlm.io.json_file import json_text, parse_json
from esnlm.reporting.tables import markdown_table
from esnlm.studies.measures import BASELINES, MEASURES

LEGEND = (
    "Mean over runs that differ in their seed [95 % interval over seeds by Student's t, from three seeds on]; published values as\n"
    "printed (standard error). NLL is in nats per token; train NLL is the mean over the updates of the last epoch. Diverged runs (an\n"
    "NLL that is not finite or above 10 ln V) count like all others."
)
MADE_FROM = {
    "words": "words",
    "vocab_size": "vocabulary",
    "epochs": "epochs",
    "learning_rate": "learning rate",
    "seed": "seeds",
}


class Table(NamedTuple):
    """What is known of a study so far."""

    study: str  # its name
    title: str
    note: str
    command: str
    columns: Sequence[str]  # of MEASURES
    cells: list[dict[str, Any]]  # from `row`
    notes: Sequence[str] = ()
    source: str = ""  # of published values
    published: Mapping[str, Mapping[str, Any]] = {}  # by cell and measure
    settings: Mapping[str, str] = {}  # settings that have a column, and their titles


def row(name: str, runs: list[dict[str, Any]], values: dict[str, Any], state: str, **more: Any) -> dict[str, Any]:
    """Returns a row of a table: its runs, and {mean, se, interval, n} of each measure, None if n is too small.

    Args:
        runs: figures from `measures.read_run`.
        values: settings by dotted key.
        state: how many runs are done, or of a trial how it ended.
    """
    means = {}
    for measure in MEASURES:
        its = [run[measure] for run in runs if run[measure] is not None]
        with np.errstate(invalid="ignore", over="ignore"):  # a diverged run may have any number
            mean = float(np.mean(its)) if its else None
            error = float(np.std(its, ddof=1) / np.sqrt(len(its))) if len(its) > 1 else None
        means[measure] = {"mean": mean, "se": error, "interval": seed_interval(its), "n": len(its)}
    return {"cell": name, "values": values, "state": state, **more, "runs": runs, "means": means}


def title(study: str, out: Path) -> str:
    """Returns the name of a study, and that of its folder if it is another one."""
    folder = out.resolve().name
    return study if folder == study else f"{study} ({folder})"


def require_own(out: Path, study: str, kind: str) -> None:
    """Raises InputError if the folder of a study holds another study, or something else."""
    file = out / "table.json"
    try:
        # before its first table a study makes hidden files only
        own = not out.exists() or all(path.name.startswith(".") for path in out.iterdir())
        if file.exists():
            tree = parse_json(file.read_bytes())
            own = (tree["study"], tree.get("kind", "grid")) == (study, kind)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        own = False
    if not own:
        raise InputError(f"{out}: holds something else than the {kind} {study}; choose another folder with --out")


def write(table: Table, out: Path, picture: bytes | None, **more: Any) -> None:
    """Writes table.json and table.md, and the picture as table.png; `more` goes into table.json."""
    tree: dict[str, Any] = {
        "format": "esnlm study",
        "study": table.study,
        "note": table.note,
        "command": table.command,
        "units": "NLL in nats per token, blimp in percent; se: one standard error over seeds, sd (n - 1) / sqrt n; interval: 95 %",
        "columns": {name: dict(zip(("title", "digits"), MEASURES[name], strict=True)) for name in table.columns},
        **more,
        "cells": table.cells,
        "notes": table.notes,
        "reference": {"source": table.source, "cells": table.published},
    }
    files: dict[Path, str | bytes | None] = {
        out / "table.json": json_text(tree),  # first: it says whose folder this is
        out / "table.md": _page(table, picture is not None),
    }
    write_files(files if picture is None else files | {out / "table.png": picture})


def _page(table: Table, plotted: bool) -> str:
    cells = {cell["cell"]: cell for cell in table.cells}
    compared = {measure for values in table.published.values() for measure in values}
    header = ["", "state" if table.settings else "runs", *table.settings.values()]
    for name in table.columns:
        header += [MEASURES[name][0], *([f"{MEASURES[name][0]}, published"] if name in compared else [])]
    rows = []
    for name in [*cells, *(name for name in table.published if name not in cells)]:
        cell = cells.get(name, {"state": "published only", "values": {}, "means": {}, "runs": []})
        line = [name, cell["state"], *(_spell_setting(cell["values"].get(key)) for key in table.settings)]
        for measure in table.columns:
            line.append(_spell(cell["means"].get(measure), measure, len(cell["runs"])))
            if measure in compared:
                mean, error = table.published.get(name, {}).get(measure) or (None, None)
                line.append(
                    "" if mean is None else spell(mean, measure) + (f" ({spell(error, measure)})" if error else "")
                )
        rows.append(line)
    every = [run for cell in table.cells for run in cell["runs"]]
    legend = LEGEND if not table.settings else "Trials from the best to the worst. NLL is in nats per token."
    made_by = "\n".join([f"Made by `{table.command}`", *dict.fromkeys(f"on {run['origin']}" for run in every)])
    parts = [
        f"# {table.title}",
        table.note.strip(),
        made_from(every),
        legend,
        "\n".join(markdown_table(header, rows, "llr")),
    ]
    parts += [*table.notes, f"![{table.title}](table.png)" * plotted, f"Published: {table.source}" * bool(table.source)]
    return "\n\n".join([*filter(None, parts), made_by]) + "\n"


def made_from(runs: Sequence[Mapping[str, Any]]) -> str:
    """Returns a sentence on text, vocabulary, epochs, learning rates, seeds and hours; "" if there is no run."""
    told = []
    for key, title in MADE_FROM.items():
        values = sorted({run[key] for run in runs if run.get(key) is not None})
        told.append(
            f"{title} {', '.join(f'{x:,}' if isinstance(x, int) else f'{x:.10g}' for x in values)}" if values else ""
        )
    hours = sum(float(run["seconds"] or 0) for run in runs) / 3600
    return "; ".join(filter(None, [*told, f"hours of training {hours:.1f}."])).capitalize() if runs else ""


def notes_on(cells: list[dict[str, Any]]) -> list[str]:
    """Returns what a reader must know to compare the rows with each other."""
    found, beside, runs = [], [], [run for cell in cells for run in cell["runs"]]
    for name, title in BASELINES.items():
        if values := [run[f"blimp_{name}"] for run in runs if run.get(f"blimp_{name}") is not None]:
            beside.append(f"{title} {' .. '.join(dict.fromkeys(f'{end:.1f}' for end in (min(values), max(values))))}")
    if beside:
        found.append(f"Minimal pairs: the convention paper. On the same pairs, in percent: {', '.join(beside)}.")
    if _differ(runs, lambda run: (run.get("data_sha256") or {}).get("tokenizer")):
        found.append("The rows have different tokenizers: compare bits per byte only, not losses per token.")
    elif _differ(runs, lambda run: (run.get("data_sha256") or {}).get("validation")):
        found.append("The rows are validated on different text, or on text that is cut differently.")
    if _differ(runs, lambda run: run.get("pairs_sha256")):
        found.append("The rows are scored on different minimal pairs: their accuracies cannot be compared.")
    return found


def _differ(runs: Sequence[Mapping[str, Any]], key: Any) -> bool:
    """Returns whether runs of one seed differ in something. What is generated follows the seed."""
    known: dict[int, set[str]] = {}
    for run in runs:
        known.setdefault(run["seed"], set()).update({key(run)} - {None})
    return any(len(found) > 1 for found in known.values())


def _spell(found: Mapping[str, Any] | None, measure: str, runs: int) -> str:
    """Returns a mean with its interval, and the number of its runs if the row has more: a collapsed model has no accuracy."""
    if found is None or found["mean"] is None:
        return ""
    low, high = found["interval"] or (0, 0)
    interval = (
        f" [{spell(low, measure)}, {spell(high, measure)}]" if low < high else ""
    )  # counts are the same in every run
    return spell(found["mean"], measure) + interval + (f" of {found['n']}" if found["n"] < runs else "")


def spell(value: float, measure: str) -> str:
    """Returns a number with the digits of its measure, and a very large loss by its order."""
    digits = MEASURES[measure][1]
    return f"{value:,.{digits}f}" if digits == 0 or abs(value) < 1e5 else f"{value:.2e}"


def _spell_setting(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
