"""The table of a study: of a grid the mean and standard error of each cell's runs, of a search its trials."""

from pathlib import Path
from typing import Any

from esnlm.errors import InputError
from esnlm.io.json_file import parse_json
from esnlm.reporting.html.blocks import Block, Cell, block, note, table
from esnlm.reporting.mean_text import format_mean, format_runs


def read(folder: Path) -> dict[str, Any] | None:
    """Returns table.json of a study's folder, or None if this is no such folder."""
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
        raise InputError(f"{file}: not as esnlm study writes it; the study's command makes it again") from None


def runs(folder: Path, tree: dict[str, Any]) -> list[Path]:
    """Returns the directories of the study's finished runs that are here, of a search the best first."""
    if is_search(tree):
        names = [trial["run"] for trial in tree["trials"] if _is_finished(trial)]
    else:
        names = [run["run"] for cell in tree["cells"] for run in cell["runs"]]
    return [run for run in (folder / "runs" / name for name in names) if run.exists()]


def render(tree: dict[str, Any]) -> list[Block]:
    """Returns note, table, source and command of a study."""
    shown = [note(tree["note"])] if tree["note"] else []
    shown += _search(tree) if is_search(tree) else _grid(tree)
    return shown + ([block("command", what=None, line=tree["command"])] if tree["command"] else [])


def is_search(tree: dict[str, Any]) -> bool:
    """Returns whether a study is a search, whose runs are trials and not seeds of cells."""
    return bool(tree.get("kind") == "search")


def _grid(tree: dict[str, Any]) -> list[Block]:
    columns, published = tree["columns"], tree["reference"]["cells"]
    compared = [name for name in columns if any(name in values for values in published.values())]
    header = ["cell", "runs"]
    for name, column in columns.items():
        header += [column["title"], *([f"{column['title']}, published"] if name in compared else [])]
    cells = {cell["cell"]: cell for cell in tree["cells"]}
    rows = []
    for name in dict.fromkeys([*cells, *published]):
        own = cells.get(name, {"runs": [], "means": {}})
        done = len(own["runs"])
        asked = len(tree["seeds"]) if "seeds" in tree else done
        row = [name, Cell(format_runs(own["runs"], asked), done) if name in cells else "published"]
        for key, column in columns.items():
            row.append(_cell(own["means"].get(key, {}), column["digits"], done))
            if key in compared:
                mean, error = published.get(name, {}).get(key) or (None, None)
                row.append(_cell({"mean": mean, "se": error}, column["digits"]))
        rows.append(row)
    source = tree["reference"]["source"]
    notes = ["Mean over runs that differ in their seed (one standard error).", *tree.get("notes", [])]
    return [table(header, rows, tools="cells"), *map(note, notes), *([note(f"Published: {source}")] if source else [])]


def _search(tree: dict[str, Any]) -> list[Block]:
    """Returns a row for each trial, the best first."""
    columns, objective = tree["columns"], tree["objective"]
    order = [objective, *(name for name in columns if name != objective)]
    titles = [columns[name]["title"] for name in order]
    rows = []
    for trial in tree["trials"]:
        measures = (trial["measures"] or {}) if _is_finished(trial) else {}
        best, *others = (_cell({"mean": measures.get(name)}, columns[name]["digits"]) for name in order)
        settings = [trial["values"].get(key) for key in tree["settings"]]
        chosen = [
            Cell(f"{each:.4g}", each) if isinstance(each, float) else "" if each is None else str(each)
            for each in settings
        ]
        rows.append([trial["run"], trial["state_in_words"], best, *chosen, *others])
    header = ["trial", "state", titles[0], *tree["settings"].values(), *titles[1:]]
    text = f"Trials by {titles[0]}, the best first. NLL is in nats per token."
    return [table(header, rows, align="llr", tools="trials"), note(text)]


def _is_finished(trial: dict[str, Any]) -> bool:
    return bool(trial["state"] == "complete" and (trial["measures"] or {}).get("status"))


def _cell(found: dict[str, Any], digits: int, runs: int = 0) -> Cell:
    """Returns a mean with its standard error, and of how many runs it is if a cell has more."""
    mean, error = found.get("mean"), found.get("se")
    if mean is None:
        return Cell("", None)
    text = format_mean(float(mean), None if error is None else float(error), digits)
    fewer = f" of {found['n']}" if 0 < found.get("n", runs) < runs else ""
    return Cell(text + fewer, float(mean))
