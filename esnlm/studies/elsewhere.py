"""Runs of a study that another machine finished: the tables of that machine tell their figures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from esnlm.errors import InputError, require
from esnlm.io.console import counted, tell
from esnlm.io.json_file import parse_json
from esnlm.studies.comparable import Texts
from esnlm.studies.grid import MEASURES, Grid, GridRun
from esnlm.studies.grid_table import MADE_FROM
from esnlm.training.settings import hash_settings

NO_TABLE = "not the table of a grid, as esnlm study writes it; name the table.json of this study"


def read(tables: Sequence[Path], grid: Grid, runs: Sequence[GridRun]) -> dict[Path, dict[str, Any]]:
    """Returns the figures of those runs of a study that tables of the same study tell, by run directory.

    Args:
        tables: files that `grid_table.write_table` wrote, table.json or copies of it. Of a run that stands in several, the
            first one counts.
        grid: the study.
        runs: all its runs.

    Raises:
        InputError: a file is no such table, or it tells of a run with other settings or text than this study's.
    """
    wanted, found = {(run.cell, run.seed): run for run in runs}, dict[Path, dict[str, Any]]()
    texts = Texts()
    for file in tables:
        of_file, unknown = _read_table(file, grid.name), 0
        for cell, figures in of_file:
            run = wanted.get((cell, figures["seed"]))
            if run is None:
                unknown += 1
                continue
            _require_same(file, cell, figures, run, texts)
            found.setdefault(run.directory, figures)
        if unknown:
            tell(f"{file}: left out, of no cell and seed of this study: {counted(unknown, 'run')}")
    return found


def _read_table(file: Path, study: str) -> list[tuple[str, dict[str, Any]]]:
    """Returns the name of the cell and the figures of each run of a table."""
    try:
        tree = parse_json(file.read_bytes())
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}; name the table.json of a study") from None
    except ValueError:
        raise InputError(f"{file}: no JSON; name the table.json of a study") from None
    try:
        right = tree["format"] == "esnlm study" and isinstance(tree["cells"], list)
        name = tree["study"]
        runs = [(str(cell["cell"]), run) for cell in tree["cells"] for run in cell["runs"]] if right else []
        for _, run in runs:
            # What is not finite is a text in JSON, "inf", and float reads it.
            run |= {measure: None if run[measure] is None else float(run[measure]) for measure in MEASURES}
            int(run["seed"]), str(run["run"]), str(run["status"]), str(run["origin"])
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InputError(f"{file}: {NO_TABLE}") from None
    require(right, f"{file}: {NO_TABLE}")
    require(name == study, f"{file}: a table of the study {name}, and this one is {study}; name a table of this one")
    for cell, run in runs:
        missing = [key for key in MADE_FROM if key not in run]
        message = f"does not tell {missing[0] if missing else ''} of {cell}: an earlier version of esnlm wrote it; leave it out"
        require(not missing and isinstance(run["data_sha256"], dict), f"{file}: {message}")
    return runs


def _require_same(file: Path, cell: str, figures: Mapping[str, Any], run: GridRun, texts: Texts) -> None:
    """Raises InputError where a run was made from something else than it would be made from here."""
    name = f"{file}: {cell}, seed {run.seed}"
    message = "was trained with other settings than the study has here; leave the table out, or give the same settings"
    require(figures["settings_sha256"] == hash_settings(run.experiment), f"{name} {message}")
    other = texts.find_other(figures["data_sha256"], run.experiment.data)
    message = f"was trained with another {other} text than lies here; leave the table out, or name the same stores"
    require(other is None, f"{name} {message}")
