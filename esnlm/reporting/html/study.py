"""The table of a study: of a grid the mean and standard error of each cell's runs, of a search its trials."""

from pathlib import Path
from typing import Any

from esnlm.errors import InputError
from esnlm.io.json_file import parse_json
from esnlm.reporting.html.markup import Cell, Html, command, join, note, table
from esnlm.reporting.mean_text import format_mean, format_runs


def read(folder: Path) -> dict[str, Any] | None:
    """Returns table.json of a study's folder, or None where this is no such folder.

    Raises:
        InputError: the table is damaged, or of a version that did not say its columns.
    """
    file = folder / "table.json"
    if not file.is_file():
        return None
    try:
        tree = parse_json(file.read_bytes())
        if tree["format"] != "esnlm study":
            return None
        render(tree), runs(folder, tree)
        return tree
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InputError(f"{file}: not as esnlm study writes it now; the study's command makes it again") from None


def runs(folder: Path, tree: dict[str, Any]) -> list[Path]:
    """Returns the directories of the study's finished runs, of a search the best first.

    A run that another machine finished has none here (studies/elsewhere.py), and is left out, and so is a trial whose
    directory was deleted.
    """
    if is_search(tree):
        names = [trial["run"] for trial in tree["trials"] if _is_finished(trial)]
    else:
        names = [run["run"] for cell in tree["cells"] for run in cell["runs"]]
    return [run for run in (folder / "runs" / name for name in names) if run.exists()]


def render(tree: dict[str, Any]) -> Html:
    """Returns note, table, source and command of a study."""
    return _search(tree) if is_search(tree) else _grid(tree)


def _grid(tree: dict[str, Any]) -> Html:
    columns, published = tree["columns"], tree["reference"]["cells"]
    compared = [name for name in columns if any(name in values for values in published.values())]
    header = ["cell", "runs"]
    for name, column in columns.items():
        header += [column["title"], *([f"{column['title']}, published"] if name in compared else [])]
    cells = {cell["cell"]: cell for cell in tree["cells"]}
    rows = []
    for cell in [*cells, *(name for name in published if name not in cells)]:
        row: list[Any] = [cell, _runs(cells[cell], tree) if cell in cells else "published"]
        for name, column in columns.items():
            its_runs = len(cells[cell]["runs"]) if cell in cells else 0
            row.append(_cell(cells[cell]["means"][name] if cell in cells else {}, column["digits"], its_runs))
            if name in compared:
                mean, error = published.get(cell, {}).get(name) or (None, None)
                row.append(_cell({"mean": mean, "se": error}, column["digits"]))
        rows.append(row)
    source = tree["reference"]["source"]
    return join(
        note(tree["note"]) if tree["note"] else None,
        table(header, rows, align="lr", tools="cells"),
        note("Mean over runs that differ in their seed (one standard error)."),
        [note(line) for line in tree.get("notes", [])],
        note(f"Published: {source}") if source else None,
        command(tree["command"]) if tree["command"] else None,
    )


def _runs(cell: dict[str, Any], tree: dict[str, Any]) -> Cell:
    """Returns the runs of a cell as table.md tells of them. Tables of earlier versions do not say how many were asked for."""
    done = len(cell["runs"])
    return Cell(format_runs(cell["runs"], len(tree["seeds"]) if "seeds" in tree else done), done)


def _search(tree: dict[str, Any]) -> Html:
    """Returns a row for each trial, the best first."""
    columns, objective = tree["columns"], tree["objective"]
    header = ["trial", "state", columns[objective]["title"], *tree["settings"].values()]
    header += [column["title"] for name, column in columns.items() if name != objective]
    rows = []
    for trial in tree["trials"]:
        measured = (trial["measures"] or {}) if _is_finished(trial) else {}
        shown = {name: _cell({"mean": measured.get(name)}, column["digits"]) for name, column in columns.items()}
        row = [trial["run"], trial["state_in_words"], shown.pop(objective)]
        rows.append([*row, *(_setting(trial["values"].get(key)) for key in tree["settings"]), *shown.values()])
    return join(
        note(tree["note"]) if tree["note"] else None,
        table(header, rows, align="llr", tools="trials"),
        note(f"Trials by {columns[objective]['title']}, the best first. NLL is in nats per token."),
        command(tree["command"]) if tree["command"] else None,
    )


def is_search(tree: dict[str, Any]) -> bool:
    """Returns whether a study is a search, whose runs are trials and not seeds of cells."""
    return bool(tree.get("kind") == "search")


def _is_finished(trial: dict[str, Any]) -> bool:
    return bool(trial["state"] == "complete" and (trial["measures"] or {}).get("status"))


def _setting(value: Any) -> Cell:
    """Returns the value of a setting as it was chosen."""
    if isinstance(value, float):
        return Cell(f"{value:.4g}", value)
    return Cell("" if value is None else str(value), None)


def _cell(found: dict[str, Any], digits: int, runs: int = 0) -> Cell:
    """Returns a mean with its standard error, and of how many runs it is where a cell has more: a collapsed model has no accuracy."""
    mean, error = found.get("mean"), found.get("se")
    if mean is None:
        return Cell("", None)
    text = format_mean(float(mean), None if error is None else float(error), digits)
    fewer = f" of {found['n']}" if 0 < found.get("n", runs) < runs else ""
    return Cell(text + fewer, float(mean))
