"""A study: a file that names many runs. They are trained one by one or side by side, and one table shows them."""

import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock

from esnlm.errors import InputError
from esnlm.evaluation import minimal_pairs
from esnlm.io.console import clock
from esnlm.io.json_file import parse_json
from esnlm.io.yaml_file import read_tree
from esnlm.runs.directory import RunDirectory
from esnlm.studies import table
from esnlm.studies.grid import GridFile, make_cells, make_runs, take_lists
from esnlm.studies.measures import MEASURES, Run, find_difference, read_run, require_same
from esnlm.studies.plot import plot_grid
from esnlm.studies.pool import Pool, Slot, find_slots
from esnlm.studies.search import SearchFile, run_search
from esnlm.studies.study_file import one_line
from esnlm.training import plan


def run_study(
    file: Path,
    out: Path | None = None,
    blimp: Path | None = None,
    only_plan: bool = False,
    overrides: Sequence[str] = (),
    command: str = "",
    jobs: str | None = None,
    part: str | None = None,
    finished: Sequence[Path] = (),
) -> int:
    """Runs what is left of a study, or lists it. The whole file is checked before anything is trained.

    Args:
        file: the study file.
        out, blimp: folder and minimal pairs, instead of the file's own.
        only_plan: list the runs, what is done, and the time that the rest takes.
        overrides: `--section.key value` for every run; a list replaces what a grid's file lists.
        command: the command, to stand in the table.
        jobs: how many runs to train side by side, or "auto".
        part: "I/N": train every N-th run only, from run I on, counted from 0.
        finished: table.json of this study from other machines; the runs in them count as done.

    Returns:
        0 when all is done; 75 when it was stopped and the same command goes on; otherwise the largest status of the
        runs that failed. One that fails does not stop the others.

    Raises:
        InputError: the file, a configuration, the data or the folder cannot be used.
    """
    grid, words = read_study(file), _with_equals(overrides)
    out, grid.blimp = out or grid.out or Path("studies") / file.stem, blimp or grid.blimp
    if isinstance(grid, SearchFile):
        if part or finished:
            raise InputError(f"{file}: a search uses the results of all its trials: no --cell and no --finished")
        return run_search(grid, file, out, only_plan, words, command, jobs)
    first, step = _parse_part(part)
    others = take_lists(grid, file, words)
    runs = make_runs(grid, file, out, others)
    ours = runs[first::step]
    table.require_own(out, file.stem, "grid")
    for run in runs:
        require_same(run)
    pairs = None if grid.blimp is None else minimal_pairs.digest(minimal_pairs.load(grid.blimp))
    elsewhere = {
        name: row
        for name, row in _read_finished(finished, file.stem, runs).items()
        if pairs in (None, row["pairs_sha256"])
    }
    flops = {run.name: float(plan.flops(run.experiment)) for run in runs}  # finds a store that cannot be used

    def figures(run: Run) -> dict[str, Any] | None:
        return read_run(run, pairs) or elsewhere.get(run.name)

    left = [run for run in ours if not (found := figures(run)) or pairs not in (None, found["pairs_sha256"])]
    if only_plan:
        return _show_plan(ours, left, flops)

    def write() -> None:
        with FileLock(out / ".lock"):  # the processes of a SLURM array write one table
            cells = []
            for cell in make_cells(grid, file):
                its = [found for run in runs if run.cell == cell.name and (found := figures(run))]
                done = f"{len(its)}" if len(its) == len(grid.seeds) else f"{len(its)} of {len(grid.seeds)}"
                diverged = sum(run["status"] == "diverged" for run in its)
                state = done + (f", {diverged} diverged" if diverged else "")
                cells.append(table.row(cell.name, its, cell.values, state, case=cell.case, settings=cell.settings))
            made = _tabulate(grid, file.stem, out, command, cells, others)
            table.write(made, out, plot_grid(made), seeds=grid.seeds)

    def train(run: Run, slot: Slot) -> None:
        if pool.run(run.name, run.commands(grid.blimp), slot, flops[run.name]) == "done":
            write()

    out.mkdir(parents=True, exist_ok=True)
    write()
    pool = Pool(out / "logs", len(ours) - len(left), len(ours), work=sum(flops[run.name] for run in left))
    tasks = iter([functools.partial(train, run) for run in left])
    status = pool.work(find_slots(jobs), lambda: next(tasks, None)) if left else 0
    if status == 0:
        print((out / "table.md").read_text(), end="")
    return status


def read_study(file: Path) -> GridFile | SearchFile:
    """Reads a study file. Raises InputError if it is missing, not YAML or of another kind, or a key of it is wrong."""
    tree = read_tree(file, "name a study file, such as those in configs/studies")
    kind = tree.get("kind") if isinstance(tree, dict) else None
    if kind not in ("grid", "search"):
        raise InputError(
            f"{file}: kind is {kind!r}: choose grid or search (python -m experiments.bottleneck has others)"
        )
    with one_line(file):
        return GridFile(**tree) if kind == "grid" else SearchFile(**tree)


def _tabulate(
    grid: GridFile, name: str, out: Path, command: str, cells: list[dict[str, Any]], overrides: Sequence[str]
) -> table.Table:
    notes = table.notes_on(cells)
    changed = [word.removeprefix("--") for word in overrides if word.startswith(("--model.", "--training."))]
    if grid.reference.cells and changed:
        notes.append(f"The published values are of other settings: the command line sets {', '.join(changed)}.")
    title = table.title(name, out)
    return table.Table(
        name, title, grid.note, command, grid.columns, cells, notes, grid.reference.source, grid.published
    )


def _with_equals(words: Sequence[str]) -> list[str]:
    """Returns settings of the command line as `--key=value` each."""
    found, rest = [], list(words)
    while rest:
        word = rest.pop(0)
        found.append(f"{word}={rest.pop(0)}" if word.startswith("--") and "=" not in word and rest else word)
    return found


def _parse_part(text: str | None) -> tuple[int, int]:
    """Returns I and N of `--cell I/N`; 0/1 stands for all runs."""
    match = re.fullmatch(r"(\d+)/(\d+)", text or "0/1", re.ASCII)
    if match is None or int(match[1]) >= int(match[2]):
        raise InputError(f"--cell is {text}: give I/N with I from 0 to N - 1, such as 0/8 (sbatch --array=0-7)")
    return int(match[1]), int(match[2])


def _read_finished(files: Sequence[Path], study: str, runs: Sequence[Run]) -> dict[str, dict[str, Any]]:
    """Returns the figures of those runs that tables of other machines have, by the name of the run."""
    found: dict[str, dict[str, Any]] = {}
    wanted = {run.name: run for run in runs}
    for file in files:
        try:
            tree = parse_json(file.read_bytes())
            rows = [
                row for cell in tree["cells"] for row in cell["runs"] if tree["study"] == study and row["run"] in wanted
            ]
            for row in rows:
                row |= {name: None if row[name] is None else float(row[name]) for name in MEASURES}  # "inf" is a text
                settings, data = row["settings_sha256"], row["data_sha256"]
                if other := find_difference(wanted[row["run"]].experiment, settings, data):
                    raise InputError(f"{file}: {row['run']}: was begun with another {other} than the study has here")
        except OSError as error:
            raise InputError(f"{file}: {error.strerror}") from None
        except (KeyError, TypeError):
            rows = []
        if not rows:
            raise InputError(f"{file}: has no run of the study {study}; name a table.json of it")
        found = {row["run"]: row for row in rows} | found
    return found


def _show_plan(runs: Sequence[Run], left: Sequence[Run], flops: dict[str, float]) -> int:
    """Prints each run, its state and the least time that it takes."""
    total = 0.0
    for run in runs:
        begun, trained = RunDirectory(run.directory).config.exists(), read_run(run) is not None
        state = "done" if run not in left else "score" if trained else "begun" if begun else "to do"
        if state in ("begun", "to do"):
            seconds = flops[run.name] / plan.matmul_speed(run.experiment.compute.precision)
            total += seconds
        print(f"{state:6} {clock(seconds) if state in ('begun', 'to do') else '':>10}  {run.directory}")
    print(
        f"{len(runs) - len(left)} of {len(runs)} runs are done; the rest takes {clock(total)} at best, by the speed of matrix"
    )
    print("products alone; expect half as much again, and the scoring of minimal pairs")
    return 0
