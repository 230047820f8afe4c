"""A study: a file that describes many runs, which are trained and shown in one table."""

import functools
import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from filelock import FileLock

from esnlm.base.errors import InputError
from esnlm.evaluation import minimal_pairs
from esnlm.models.devices import find_machine
from esnlm.runs.directory import RunDirectory
from esnlm.studies import table
from esnlm.studies.pool import Pool, Slot, StudyRun, find_slots
from esnlm.studies.search import run_search
from esnlm.studies.study_file import (
    Axis,
    GridFile,
    SearchFile,
    Seeds,
    check_free,
    find_base,
    format_setting,
    read_experiment,
    read_list,
    read_study,
    short_names,
)
from esnlm.training.settings import MAY_CHANGE, check_same


class GridRow(NamedTuple):
    """A row of the table: runs that differ only in their seed."""

    name: str
    base: Path
    case: str  # "" if the block has no cases
    values: dict[str, Any]  # its point in the grid, by dotted key
    settings: dict[str, Any]  # case and point together


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
    table.check_own(out, file.stem, grid.kind)
    if isinstance(grid, SearchFile):
        if part:
            raise InputError(
                f"{file}: --part is for grids only, since a search needs the results of all trials"
            )
        return run_search(grid, file, out, only_plan, words, command, jobs)
    first, step = _parse_part(part)
    words = take_lists(grid, words)
    cells, runs = make_cells(grid, file), make_runs(grid, file, out, words)
    table.check_own(out, file.stem, grid.kind, [cell.name for cell in cells])
    for run in runs:
        _check_same(run)
        run.experiment.data.size()  # raises if a token store is not usable
    pairs = None if grid.blimp is None else minimal_pairs.digest(minimal_pairs.load(grid.blimp))

    def is_done(run: StudyRun) -> bool:
        figures = table.read_run(run, pairs)
        return figures is not None and pairs in (None, figures["pairs_sha256"])

    share = runs[first::step]
    remaining = [run for run in share if not is_done(run)]
    done = len(share) - len(remaining)
    if only_plan:
        for run in share:
            print(f"{'to do' if run in remaining else 'done '}  {run.directory}")
        print(f"{done} of {len(share)} runs are done")
        return 0

    notes, changed = [], [word for word in words if word.startswith(("--model.", "--training."))]
    if grid.reference.cells and changed:
        notes.append(
            "The published values are for other settings: the command line has"
            f" {' '.join(changed)}."
        )

    def write() -> None:
        with FileLock(out / ".lock"):  # the processes of a SLURM array share one table
            results = [(run.cell, table.read_run(run, pairs)) for run in runs]
            finished = [(cell, figures) for cell, figures in results if figures is not None]
            rows = [_make_row(cell, finished, len(grid.seeds)) for cell in cells]
            tree = table.start_tree(grid, file.stem, command, grid.columns) | {
                "seeds": grid.seeds,
                "cells": rows,
                "notes": [*table.notes_on([figures for _, figures in finished]), *notes],
                "reference": grid.reference.model_dump(),
            }
            table.write_cells(out, tree)

    def train(run: StudyRun, slot: Slot) -> None:
        if pool.run(run.name, run.commands(grid.blimp), slot) == "done":
            write()

    out.mkdir(parents=True, exist_ok=True)
    write()
    pool = Pool(out / "logs", done, len(share))
    status = pool.work(find_slots(jobs), [functools.partial(train, run) for run in remaining])
    if status == 0:
        print((out / "table.md").read_text("utf-8"), end="")
    return status


def take_lists(grid: GridFile, overrides: Sequence[str]) -> list[str]:
    """Replaces seeds and axes by lists such as `--seed=[0, 1]`. Returns the other overrides."""
    others = []
    for word in overrides:
        key, _, text = word.removeprefix("--").partition("=")
        axes = [block.grid for block in grid.runs if key in block.grid]
        if not text.startswith("[") or not (axes or key == "seed"):
            others.append(word)
            continue
        values = yaml.safe_load(text)
        if key == "seed":
            grid.seeds = read_list(Seeds, key, values)
        for axis in axes:
            axis[key] = read_list(Axis, key, values)
    return others


def make_cells(grid: GridFile, file: Path) -> list[GridRow]:
    """Returns the rows of a grid, in file order.

    Raises InputError if two have the same name, or a base is missing.
    """
    cells: dict[str, GridRow] = {}
    for block in grid.runs:
        base, names = find_base(file, block.base or grid.base), short_names(list(block.grid))
        points = list(itertools.product(*block.grid.values()))
        for (case, settings), values in itertools.product(block.cases.items(), points):
            point = dict(zip(block.grid, values, strict=True))
            parts = [case] if case else []
            parts += [f"{names[key]}={format_setting(value)}" for key, value in point.items()]
            # also a folder's name
            name = ",".join(re.sub(r"[^\w.=+^-]+", "_", part) for part in parts) or "base"
            if taken := {"run", "seed"} & {*settings, *point} or {*settings} & {*point}:
                raise InputError(
                    f"{file}: {name}: {min(taken)} is set by seeds and out, or by the block's grid"
                )
            if name in cells:
                raise InputError(f"{file}: two cells have the name {name}: give one its own case")
            cells[name] = GridRow(name, base, case, point, settings | point)
    return list(cells.values())


def make_runs(
    grid: GridFile, file: Path, out: Path, overrides: Sequence[str] = ()
) -> list[StudyRun]:
    """Returns all runs, cell by cell. Raises InputError if a configuration or override is wrong."""
    runs, cells = [], make_cells(grid, file)
    check_free(file, overrides, {"run", "seed"}.union(*(cell.settings for cell in cells)))
    for cell in cells:
        settings = [f"--{key}={format_setting(value)}" for key, value in cell.settings.items()]
        settings += overrides
        for seed in grid.seeds:
            place = [f"--run={out / 'runs' / f'{cell.name}-seed{seed}'}", f"--seed={seed}"]
            experiment = read_experiment(file, cell.name, cell.base, [*settings, *place])
            runs.append(StudyRun(cell.name, experiment, cell.base, settings))
    return runs


def _make_row(cell: GridRow, finished: Sequence[tuple[str, dict]], seeds: int) -> table.Tree:
    """Returns a cell's row of the table, from the cells and figures of all finished runs."""
    runs = [figures for name, figures in finished if name == cell.name]
    state = f"{len(runs)}" if len(runs) == seeds else f"{len(runs)} of {seeds}"
    if diverged := sum(figures["status"] == "diverged" for figures in runs):
        state += f", {diverged} diverged"
    return table.make_row(
        cell.name, runs, cell.values, state, case=cell.case, settings=cell.settings
    )


def _check_same(run: StudyRun) -> None:
    """Raises InputError if the run was begun with other settings or text than the study's."""
    directory, advice = RunDirectory(run.directory), "give the same, or another folder with --out"
    if not directory.config.exists():
        return
    free = [key for key in MAY_CHANGE if "precision" not in key]
    machine = find_machine(run.experiment.model, run.experiment.compute)
    check_same(run.experiment, machine, directory, free, advice)
    known = (directory.read_summary() or {}).get("data_sha256") or {}
    for part, sha256 in (run.experiment.data.text_sha256() or {}).items():
        if known.get(part, sha256) != sha256:
            raise InputError(f"{run.directory}: was begun with another {part} text; {advice}")


def _with_equals(words: Sequence[str]) -> list[str]:
    """Joins the settings of the command line as `--key=value`."""
    joined: list[str] = []
    for word in words:
        is_value = joined and joined[-1].startswith("--") and "=" not in joined[-1]
        if is_value:
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def _parse_part(text: str | None) -> tuple[int, int]:
    """Returns I and N of `--part I/N`; 0/1 means all runs."""
    match = re.fullmatch(r"(\d+)/(\d+)", text or "0/1", re.ASCII)
    if match is None or int(match[1]) >= int(match[2]):
        raise InputError(
            f"--part is {text}: give I/N with I from 0 to N - 1, such as 0/8 (sbatch --array=0-7)"
        )
    return int(match[1]), int(match[2])
