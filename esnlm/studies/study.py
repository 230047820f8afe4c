"""A study: a file that names many runs. They are trained one by one or side by side, and one table shows them."""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from esnlm.config import Experiment, as_dict, flatten
from esnlm.errors import InputError, require
from esnlm.evaluation import minimal_pairs
from esnlm.io.atomic import write_file
from esnlm.io.console import clock, counted, say, tell
from esnlm.io.yaml_file import read_tree
from esnlm.memory import free_memory
from esnlm.process import OUTPUT_LOST
from esnlm.reporting import blimp_report
from esnlm.runs.directory import RunDirectory
from esnlm.studies import elsewhere, folder
from esnlm.studies.comparable import require_pairs, require_texts
from esnlm.studies.grid import Grid, GridRun, make_runs, parse_grid
from esnlm.studies.grid_plot import plot_grid
from esnlm.studies.grid_table import collect_cells, known_figures, write_table
from esnlm.studies.jobs import Ended, Job, Pool, run_in_process
from esnlm.studies.lists import replace_lists
from esnlm.studies.one_run import train_and_score
from esnlm.studies.progress import StudyProgress
from esnlm.studies.search_run import run_search
from esnlm.studies.shares import Share, divide, find_devices, memory_needs
from esnlm.training import plan
from esnlm.training.settings import MAY_CHANGE, require_same
from esnlm.workflows.train import INTERRUPTED

# Another program runs such studies.
BOTTLENECK_KINDS = ("alignment", "coordinate_check", "exponents", "training_curves")
KINDS = ("grid", "search", *BOTTLENECK_KINDS)


class Part(NamedTuple):
    """The runs of a study that one of several processes takes: every `step`-th, from number `first` on."""

    first: int
    step: int


def parse_part(text: str | None) -> Part | None:
    """Returns what `--cell I/N` says, or None where it is not given. I is counted from 0, as in `sbatch --array=0-7`.

    Raises:
        InputError: it is no such pair, or I is not below N.
    """
    if text is None:
        return None
    numbers = text.split("/")
    right = len(numbers) == 2 and all(number.isascii() and number.isdigit() for number in numbers)
    require(right and int(numbers[1]) > 0, f"--cell is {text}: give I/N, such as 0/8 for the first of 8 processes")
    part = Part(int(numbers[0]), int(numbers[1]))
    message = f"I is counted from 0 to {part.step - 1} (sbatch --array=0-{part.step - 1})"
    require(part.first < part.step, f"--cell is {text}: {message}")
    return part


def run_study(
    file: Path,
    out: Path | None = None,
    blimp: Path | None = None,
    only_plan: bool = False,
    overrides: Sequence[str] = (),
    command: str = "",
    jobs: int | str | None = None,
    part: Part | None = None,
    finished: Sequence[Path] = (),
) -> int:
    """Runs what is left of a study, or shows what that is. The whole file is checked before anything is trained.

    Args:
        file: the study file, YAML.
        out: its folder, instead of the file's own.
        blimp: minimal pairs to score with each run, instead of the file's own.
        only_plan: list the runs, what is done, and the time that the rest takes.
        overrides: `--section.key value` for every run; a list, for what a grid's file lists, is in place of that list.
        command: the command, to stand in the table.
        jobs: how many runs to train side by side, or "auto"; None trains them one by one and shows what each says.
        part: the runs that are this process's to train, of all; None takes them all.
        finished: tables of the same study, table.json, whose runs count as done here.

    Returns:
        0 when all is done; 75 when it was stopped and the same command goes on; otherwise the status of the run that
        failed. With `jobs` a run that fails does not stop the others.

    Raises:
        InputError: the file, a configuration, the data or the folder cannot be used.
    """
    tree = read_study(file)
    paths = {key: str(value) for key, value in (("out", out), ("blimp", blimp)) if value}
    if tree["kind"] == "search":
        message = f"{file}: a search builds on the results of all its trials: give --jobs in place of --cell"
        require(part is None, message)
        require(not finished, f"{file}: --finished is for grids; a search goes on from its own folder")
        return run_search(tree | paths, file, only_plan, overrides, command, jobs)
    tree, overrides = replace_lists(tree, overrides)
    grid = parse_grid(tree | paths, file)
    runs = make_runs(grid, overrides)
    grid = dataclasses.replace(grid, changed=_find_changed(grid, runs, overrides))
    folder.require_own(grid.out, grid.name)
    ours = runs if part is None else runs[part.first :: part.step]
    if status := _check_begun(runs):  # also those of other processes, since one table has all of them
        return status
    require_texts((run.directory, run.experiment.data) for run in runs)
    digest = None
    if grid.blimp is not None:
        digest = minimal_pairs.digest(minimal_pairs.load(grid.blimp))
        _require_no_own_pairs(runs, grid.blimp)
        require_pairs([run.directory for run in runs], digest, grid.blimp)
    known = {
        directory: figures
        for directory, figures in elsewhere.read(finished, grid, runs).items()
        if digest in (None, figures["pairs_sha256"])
    }
    if digest is None:
        _require_same_pairs(runs, known)
    unfinished = _find_unfinished(ours, digest, known)
    # Computed for all runs: this reads their token stores, and notices here one that cannot be used.
    flops = {run.directory: plan.flops(run.experiment) for run in runs}
    if only_plan:
        _show_plan(ours, unfinished, flops)
        return 0
    folder.make(grid.out)
    _tell_of_others(grid, runs)
    work = _Work(grid, runs, ours, unfinished, flops, command, known)
    _write_results(work)
    status, lost = _run_one_by_one(work) if jobs is None else _run_side_by_side(work, jobs)
    if status:
        return status
    print((grid.out / "table.md").read_text(), end="")
    return OUTPUT_LOST if lost else 0


def read_study(file: Path) -> dict[str, Any]:
    """Reads a study file of kind `grid` or `search`.

    Raises:
        InputError: it is missing or not YAML, a key stands in it twice, or it is of another kind.
    """
    tree = read_tree(file, "name a study file, such as those in configs/studies")
    kind = tree.get("kind") if isinstance(tree, dict) else None
    if kind not in KINDS:
        raise InputError(f"{file}: kind is {kind!r}: a study is one of {', '.join(KINDS)}")
    if kind in BOTTLENECK_KINDS:
        raise InputError(f"{file}: a study of kind {kind} is run by python -m experiments.bottleneck {file}")
    return tree


def _find_changed(grid: Grid, runs: Sequence[GridRun], overrides: Sequence[str]) -> dict[str, str]:
    """Returns the settings of the model and of the training that overrides have changed in a run of the study, and their values."""
    if not any(word.startswith(("--model.", "--training.")) for word in overrides):
        return {}
    found: dict[str, list[str]] = {}
    for run, plain in zip(runs, make_runs(grid), strict=True):
        here, there = (flatten(as_dict(each.experiment)) for each in (run, plain))
        for key, value in here.items():
            decides = key.startswith(("model.", "training.")) and key not in MAY_CHANGE
            if decides and value != there.get(key) and str(value) not in found.setdefault(key, []):
                found[key].append(str(value))
    return {key: " and ".join(values) for key, values in found.items() if values}


class _Work(NamedTuple):
    """What is to be done."""

    grid: Grid
    runs: list[GridRun]  # of the study
    ours: list[GridRun]  # of this process
    unfinished: list[GridRun]  # of ours
    flops: Mapping[Path, float]
    command: str
    known: Mapping[Path, dict[str, Any]]  # the figures of runs that were finished elsewhere


def _run_one_by_one(work: _Work) -> tuple[int, bool]:
    """Trains what is unfinished, up to the first run that fails. Returns the status, and whether output was lost."""
    unfinished, flops = work.unfinished, work.flops
    done, began, finished, lost = 0.0, time.monotonic(), len(work.ours) - len(unfinished), False
    for number, run in enumerate(unfinished):
        rest = sum(flops[other.directory] for other in unfinished[number:])
        time_left = f", about {clock((time.monotonic() - began) / done * rest)} left" if done else ""
        say(f"run {finished + number + 1} of {len(work.ours)}: {run.directory.name}{time_left}")
        status = run_in_process(train_and_score, run.experiment, work.grid.blimp)
        if status == INTERRUPTED:
            tell(f"stopped in {run.directory.name}; the same command goes on")
            return INTERRUPTED, lost
        if status == OUTPUT_LOST:  # The run is done all the same.
            lost = True
        elif status:
            if status != 2:  # with status 2 the run has said what was wrong
                tell(f"{run.directory} ended with status {status}; the same command tries it again")
            return max(status, 1), lost  # a negative status is the signal that ended the run
        done += flops[run.directory]
        _write_results(work)
    return 0, lost


def _run_side_by_side(work: _Work, jobs: int | str) -> tuple[int, bool]:
    """Trains what is unfinished, several runs at once. Returns the status, and whether output was lost."""
    unfinished, flops, shares, needs = work.unfinished, work.flops, [Share()], {}
    if unfinished and jobs != 1:
        devices = find_devices()
        every = memory_needs([run.experiment for run in work.ours], devices)
        needs = {run.directory: need for run, need in zip(work.ours, every, strict=True)}
        shares = divide(jobs, len(work.ours), max(every), devices)
    logs = work.grid.out / "logs"
    if unfinished:
        folder.make(logs)
    waiting = [
        Job(
            name=run.directory.name,
            function=train_and_score,
            arguments=(run.experiment, work.grid.blimp),
            memory=needs.get(run.directory, 0),
            log=logs / f"{run.directory.name}.log",
        )
        for run in unfinished
    ]
    of_name = {run.directory.name: flops[run.directory] for run in unfinished}
    progress, failed, lost, done = StudyProgress(len(work.ours), len(work.ours) - len(unfinished)), [], False, 0.0
    with Pool(shares, free_memory()) as pool:
        while pool.running or (waiting and not pool.asked):
            while (job := next((job for job in waiting if pool.has_room(job.memory)), None)) is not None:
                waiting.remove(job)
                pool.start(job)
            if not pool.asked:  # Of a study that is stopping, the last line says all.
                progress.show(pool.running, done / sum(of_name.values()))
            for ended in pool.wait(1.0):
                if ended.status in (0, OUTPUT_LOST):
                    lost = lost or ended.status == OUTPUT_LOST
                    progress.done += 1
                    done += of_name[ended.job.name]
                    _write_results(work)
                elif not pool.asked:
                    failed.append(ended)
                    progress.failed += 1
                    progress.tell(f"{ended.job.name}: {ended.reason}")
    progress.end()
    return _tell_end(work, pool.asked, failed), lost


def _tell_end(work: _Work, stopped: bool, failed: list[Ended]) -> int:
    """Says what is not done, once more where it scrolled away long ago. Returns the status."""
    if failed:
        tell(f"{len(failed)} of {len(work.ours)} runs failed; the same command tries them again:")
        for ended in failed:
            tell(f"{ended.job.name}: {ended.reason}")
    if stopped:
        tell("stopped; the same command goes on")
        return INTERRUPTED
    return max((max(ended.status, 1) for ended in failed), default=0)


def _check_begun(runs: list[GridRun]) -> int:
    """Returns 2, after a line that says why, where a run was begun with another configuration than the file's now."""
    begun = [run.experiment for run in runs if RunDirectory(run.directory).config.exists()]
    # The check asks for the device, which a process then holds. Each run needs all of it, so another process asks.
    status = run_in_process(require_all_same, begun) if begun else 0
    return 0 if status == OUTPUT_LOST else status


def require_all_same(begun: list[Experiment]) -> None:
    """Raises InputError where a run was begun with another configuration."""
    for experiment in begun:
        advice = "give the same settings and stores, or another folder with --out"
        require_same(experiment, RunDirectory(Path(experiment.run)), advice=advice)


def _require_no_own_pairs(runs: Sequence[GridRun], given: Path) -> None:
    """Raises InputError where minimal pairs are given to a run that has its own."""
    for run in runs:
        message = "generates its corpus and has minimal pairs of its own; leave --blimp and blimp out"
        require(not run.experiment.data.has_minimal_pairs, f"{given}: {run.cell} {message}")


def _require_same_pairs(runs: Sequence[GridRun], known: Mapping[Path, dict[str, Any]]) -> None:
    """Raises InputError where the table would set accuracies on different minimal pairs side by side.

    A corpus that brings pairs of its own, as the grammar does, has other pairs with other settings: that is as it must be.
    """
    first = None
    for run in runs:
        figures = known_figures(run, known)
        if run.experiment.data.has_minimal_pairs or figures is None or figures["pairs_sha256"] is None:
            continue
        first = first or figures
        message = f"was scored on other minimal pairs than {first['run']}"
        advice = "score both on the same ones with esnlm blimp, or give these with --blimp, so that no run of a table with others counts"
        require(figures["pairs_sha256"] == first["pairs_sha256"], f"{run.directory.name} {message}: {advice}")


def _find_unfinished(runs: list[GridRun], digest: str | None, known: Mapping[Path, dict[str, Any]]) -> list[GridRun]:
    """Returns the runs that are not done."""
    unfinished = []
    for run in runs:
        directory = RunDirectory(run.directory)
        scores = directory.evaluation / "blimp-paper.json"
        scored = blimp_report.read(scores) if digest and scores.exists() else None
        summary = directory.read_summary()
        if summary is None and run.directory in known:
            continue
        if summary is None or (digest and (scored is None or scored["step"] != summary["step"])):
            unfinished.append(run)
    return unfinished


def _write_results(work: _Work) -> None:
    """Writes table.md, table.json and the plot as they stand now."""
    grid = work.grid
    with folder.held(grid.out):
        cells = collect_cells(grid, work.runs, work.known)
        # Published values of other settings have a note in the table, and no line in the picture.
        picture = plot_grid(dataclasses.replace(grid, published={}) if grid.changed else grid, cells)
        if picture is not None:
            write_file(grid.out / "table.png", picture)
        write_table(grid, cells, work.command, None if picture is None else "table.png")


def _tell_of_others(grid: Grid, runs: Sequence[GridRun]) -> None:
    """Says which finished runs of the folder the table leaves out, as where the command asks for fewer seeds than before."""
    known = {run.directory.name for run in runs}
    folders = sorted((grid.out / "runs").iterdir()) if (grid.out / "runs").is_dir() else []
    others = [each.name for each in folders if each.name not in known and (each / "summary.json").is_file()]
    if others:
        more = f" and {counted(len(others) - 1, 'more run')}" * (len(others) > 1)
        tell(
            f"{grid.out}: {others[0]}{more}: of no cell and seed that is asked for now, so that the table leaves it out"
        )


def _show_plan(runs: list[GridRun], unfinished: list[GridRun], flops: Mapping[Path, float]) -> None:
    """Prints each run, its state and the least time that it takes."""
    waiting, seconds = {run.directory for run in unfinished}, {}
    for run in runs:
        directory, state, time = RunDirectory(run.directory), "done", ""
        if run.directory in waiting:
            if directory.read_summary() is not None:  # trained, and not scored on the minimal pairs yet
                state, seconds[run.directory] = "score", 0.0
            else:
                state = "begun" if directory.config.exists() else "to do"
                seconds[run.directory] = flops[run.directory] / plan.matmul_speed(run.experiment.compute.precision)
            time = clock(seconds[run.directory])
        print(f"{state:6} {time:>10}  {run.directory}")
    total, finished = clock(sum(seconds.values())), len(runs) - len(unfinished)
    print(f"{finished} of {len(runs)} runs are done; the rest takes {total} at best, by the speed of")
    print("matrix products alone; expect half as much again, and the scoring of minimal pairs beside it")
