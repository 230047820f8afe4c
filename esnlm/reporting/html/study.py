"""A study on a page: its own table, and the runs that it stands for."""

import json
from pathlib import Path
from typing import Any

from esnlm.errors import InputError
from esnlm.reporting.html.blocks import Block, block, note, sortable, table


def read(folder: Path) -> dict[str, Any] | None:
    """Returns table.json of a study's folder, with the lines of table.md; None if this is no such folder."""
    file = folder / "table.json"
    if not file.is_file():
        return None
    try:
        tree = json.loads(file.read_bytes())
        if tree["format"] != "esnlm study":
            return None
        lines = (folder / "table.md").read_text("utf-8").splitlines()
        found = [run["run"] for cell in tree["cells"] for run in cell["runs"]]
    except (OSError, KeyError, TypeError, ValueError):
        raise InputError(f"{file}: not as esnlm study writes it; the study's command makes it again") from None
    return tree | {"lines": lines, "runs": [run for run in (folder / "runs" / name for name in found) if run.exists()]}


def render(tree: dict[str, Any]) -> list[Block]:
    """Returns note, table, source and command of a study."""
    lines = [line[2:-2] for line in tree["lines"] if line.startswith("|")]
    (_, *header), _, *rows = [line.replace("&#124;", "|").split(" | ") for line in lines]
    cells = [[name, *map(sortable, figures)] for name, *figures in rows]
    notes = [tree["note"], "NLL is in nats per token; the mean over seeds, and its 95 % interval from three seeds on."]
    notes += [*tree["notes"], tree["reference"]["source"] and f"Published: {tree['reference']['source']}"]
    shown = [table(["", *header], cells, align="llr", tools="cells"), *map(note, filter(None, notes))]
    return shown + ([block("command", what=None, line=tree["command"])] if tree["command"] else [])
