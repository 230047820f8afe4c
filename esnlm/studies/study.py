"""A study: a file that describes many runs, which are trained one by one or in parallel and shown
in one table."""

import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock

from esnlm.base.errors import InputError
from esnlm.evaluation import minimal_pairs
from esnlm.studies import table
from esnlm.studies.grid import make_cells, make_runs, take_lists
from esnlm.studies.measures import read_run, require_same
from esnlm.studies.plot import plot_grid
from esnlm.studies.pool import Pool, find_slots
from esnlm.studies.search import run_search
from esnlm.studies.study_file import SearchFile, read_study


def run_study(
    file: Path,
    out: Path | None = None,
    blimp: Path | None = None,
    only_plan: bool = False,
    overrides: Sequence[str] = (),
    command: str = "",
    jobs: str | None = None,
    part: str | None = None,
) -> int:
    """Runs or lists the remaining runs of a study. Checks the whole file before training.

    Args:
        file: the study file.
        out, blimp: folder and minimal pairs, instead of the file's own.
        only_plan: list the runs and their progress.
        overrides: `--section.key value` for all runs; a list replaces the list in a grid's file.
        command: the command, for the table.
        jobs: number of runs to train at the same time, or "auto".
        part: "I/N": train every N-th run only, from run I on, counted from 0.

    Returns:
        0 if all runs are done; 75 if the study was stopped, and the same command resumes it;
        otherwise the largest status of the failed runs. A failed run does not stop the others.
    """
    grid, words = read_study(file), _with_equals(overrides)
    out, grid.blimp = out or grid.out or Path("studies") / file.stem, blimp or grid.blimp
    table.require_own(out, file.stem, grid.kind)
    if isinstance(grid, SearchFile):
        if part:
            raise InputError(
                f"{file}: --cell is for grids only, since a search needs the results of all trials"
            )
        return run_search(grid, file, out, only_plan, words, command, jobs)
    first, step = _parse_part(part)
    others = take_lists(grid, words)
    cells, runs = make_cells(grid, file), make_runs(grid, file, out, others)
    table.require_own(out, file.stem, grid.kind, [cell.name for cell in cells])
    for run in runs:
        require_same(run)
        run.experiment.data.size()  # raises if a token store is not usable
    pairs = None if grid.blimp is None else minimal_pairs.digest(minimal_pairs.load(grid.blimp))
    ours = runs[first::step]
    left = [
        run
        for run in ours
        if not (found := read_run(run, pairs)) or pairs not in (None, found["pairs_sha256"])
    ]
    if only_plan:
        for run in ours:
            print(f"{'to do' if run in left else 'done '}  {run.directory}")
        print(f"{len(ours) - len(left)} of {len(ours)} runs are done")
        return 0

    notes, changed = [], [word for word in others if word.startswith(("--model.", "--training."))]
    if grid.reference.cells and changed:
        notes.append(
            "The published values are for other settings: the command line has"
            f" {' '.join(changed)}."
        )

    def write() -> None:
        with FileLock(out / ".lock"):  # the processes of a SLURM array share one table
            rows, figures = [], [(run.cell, read_run(run, pairs)) for run in runs]
            for cell in cells:
                its = [found for name, found in figures if name == cell.name and found]
                done = (
                    f"{len(its)}"
                    if len(its) == len(grid.seeds)
                    else f"{len(its)} of {len(grid.seeds)}"
                )
                diverged = sum(run["status"] == "diverged" for run in its)
                state = done + (f", {diverged} diverged" if diverged else "")
                rows.append(
                    table.row(
                        cell.name, its, cell.values, state, case=cell.case, settings=cell.settings
                    )
                )
            tree: dict[str, Any] = table.head(grid, file.stem, command, grid.columns) | {
                "seeds": grid.seeds,
                "cells": rows,
                "notes": [*table.notes_on([found for _, found in figures if found]), *notes],
                "reference": grid.reference.model_dump(),
            }
            table.write_cells(out, tree, plot_grid(tree))

    def train(run: Any, slot: dict[str, str]) -> None:
        if pool.run(run.name, run.commands(grid.blimp), slot) == "done":
            write()

    out.mkdir(parents=True, exist_ok=True)
    write()
    pool = Pool(out / "logs", len(ours) - len(left), len(ours))
    status = pool.work(find_slots(jobs), [functools.partial(train, run) for run in left])
    if status == 0:
        print((out / "table.md").read_text("utf-8"), end="")
    return status


def _with_equals(words: Sequence[str]) -> list[str]:
    """Joins the settings of the command line as `--key=value`."""
    found, rest = [], list(words)
    while rest:
        word = rest.pop(0)
        found.append(
            f"{word}={rest.pop(0)}" if word.startswith("--") and "=" not in word and rest else word
        )
    return found


def _parse_part(text: str | None) -> tuple[int, int]:
    """Returns I and N of `--cell I/N`; 0/1 means all runs."""
    match = re.fullmatch(r"(\d+)/(\d+)", text or "0/1", re.ASCII)
    if match is None or int(match[1]) >= int(match[2]):
        raise InputError(
            f"--cell is {text}: give I/N with I from 0 to N - 1, such as 0/8 (sbatch --array=0-7)"
        )
    return int(match[1]), int(match[2])
