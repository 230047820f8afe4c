"""What a study has found so far, as its table.json says it."""

from pathlib import Path
from typing import Any, NamedTuple

from esnlm.errors import InputError
from esnlm.io.json_file import parse_json
from esnlm.reporting.html import study
from esnlm.studies.grid import MEASURES
from esnlm.studies.grid_lines import to_number

SLOPES = "alignment.json"  # of a study of alignment, which experiments/bottleneck runs


class Cell(NamedTuple):
    """Runs that differ in their seed only."""

    name: str
    case: str
    values: dict[str, Any]  # its point in the grid, by dotted key
    runs: list[dict[str, Any]]  # the finished ones, with the measures of grid.MEASURES

    def measured(self, measure: str) -> dict[int, float]:
        """Returns {seed: value} for the runs that have the measure."""
        return {run["seed"]: float(run[measure]) for run in self.runs if run.get(measure) is not None}

    def on_axis(self, axis: str) -> float | None:
        """Returns its number on an axis, named by its dotted key or the last part of it; None where it has none.

        YAML reads 1e-3 as a text, which is a number here.
        """
        return to_number(next((value for key, value in self.values.items() if is_named(axis, key)), None))

    def off_axis(self, axis: str) -> dict[str, Any]:
        """Returns its values on all other axes, by dotted key."""
        return {key: value for key, value in self.values.items() if not is_named(axis, key)}


class Slope(NamedTuple):
    """The slope of a layer's alignment against width, with its 95 % interval over seeds."""

    slope: float
    low: float
    high: float


class Outcome(NamedTuple):
    """A study."""

    name: str  # of its folder
    note: str
    command: str
    cells: dict[str, Cell]  # by name; empty in a study of alignment
    slopes: dict[str, list[Slope]]  # by case: one a layer; empty in any other study
    seeds: int | None  # of a study of alignment

    def runs(self) -> list[dict[str, Any]]:
        return [run for cell in self.cells.values() for run in cell.runs]


def read(folder: Path) -> Outcome | None:
    """Returns what the folder of a study holds, or None where there is none.

    Raises:
        InputError: its table is damaged.
    """
    if (folder / SLOPES).is_file():
        return _read_slopes(folder)
    tree = study.read(folder)
    if tree is None:
        return None
    if study.is_search(tree):
        raise InputError(f"{folder}: a search; claims are about grids, so move it elsewhere or name another folder")
    try:
        cells = [Cell(cell["cell"], cell["case"], cell["values"], cell["runs"]) for cell in tree["cells"]]
        for cell in cells:  # What a damaged table lacks shows here.
            (
                cell.values.items(),
                [float(run["seconds"]) for run in cell.runs],
                [cell.measured(name) for name in MEASURES],
            )
    except (AttributeError, KeyError, TypeError, ValueError):
        raise _damaged(folder / "table.json") from None
    return Outcome(folder.name, tree["note"], tree["command"], {cell.name: cell for cell in cells}, {}, None)


def is_named(axis: str, key: str) -> bool:
    """Returns whether an axis is a setting by its dotted key, or by the last part of it."""
    return axis in (key, key.rpartition(".")[2])


def _read_slopes(folder: Path) -> Outcome | None:
    """Returns a study of alignment; None where it has not come to its end."""
    file = folder / SLOPES
    try:
        tree = parse_json(file.read_bytes())
        if "report" not in tree:
            return None
        slopes = {
            case: [Slope(*(float(layer[key]) for key in Slope._fields)) for layer in measures["alignment"]]
            for case, measures in tree["report"].items()
        }
        note = tree["study"]["note"] + ("" if tree["study"]["images"]["folder"] else " The images are generated.")
        return Outcome(folder.name, note, tree["command"], {}, slopes, int(tree["study"]["seeds"]))
    except (AttributeError, KeyError, OSError, TypeError, ValueError):
        raise _damaged(file) from None


def _damaged(file: Path) -> InputError:
    return InputError(f"{file}: not as a study writes it now; the study's command makes it again")
