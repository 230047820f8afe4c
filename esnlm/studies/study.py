"""A study: a file that names many runs. They are trained one after the other, and one table shows them."""

import multiprocessing
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from esnlm.config import Experiment
from esnlm.errors import InputError
from esnlm.evaluation import minimal_pairs
from esnlm.process import OUTPUT_LOST, exit_with
from esnlm.reporting import blimp_report
from esnlm.runs.atomic import write_file
from esnlm.runs.console import clock, say
from esnlm.runs.directory import RunDirectory
from esnlm.runs.json_file import parse_json
from esnlm.runs.small_file import read_small
from esnlm.runs.yaml_file import read_tree
from esnlm.studies.grid import Grid, GridRun, make_runs, parse_grid
from esnlm.studies.grid_plot import plot_grid
from esnlm.studies.grid_table import collect_cells, write_table
from esnlm.training import plan
from esnlm.training.settings import require_same
from esnlm.workflows.blimp import evaluate_run
from esnlm.workflows.train import INTERRUPTED, train_run

BOTTLENECK_KINDS = ("alignment", "coordinate_check", "training_curves")  # another program runs such studies
KINDS = ("grid", *BOTTLENECK_KINDS)


def run_study(
    file: Path,
    out: Path | None = None,
    blimp: Path | None = None,
    only_plan: bool = False,
    overrides: Sequence[str] = (),
    command: str = "",
) -> int:
    """Runs what is left of a study, or shows what that is. The whole file is checked before anything is trained.

    Args:
        file: the study file, YAML.
        out: its folder, instead of the file's own.
        blimp: minimal pairs to score with each run, instead of the file's own.
        only_plan: list the runs, what is done, and the time that the rest takes.
        overrides: `--section.key value` for every run.
        command: the command, to stand in the table.

    Returns:
        0 when all is done; 75 when it was stopped and the same command goes on; otherwise the status of the run that
        failed.

    Raises:
        InputError: the file, a configuration, the data or the folder cannot be used.
    """
    tree = read_study(file)
    paths = {key: str(value) for key, value in (("out", out), ("blimp", blimp)) if value}
    grid = parse_grid(tree | paths, file)
    runs = make_runs(grid, overrides)
    _require_own_folder(grid)
    if status := _check_begun(runs):
        return status
    unfinished = _find_unfinished(grid, runs)
    # Computed for all runs: this reads their token stores, and notices here one that cannot be used.
    flops = {run.directory: plan.flops(run.experiment) for run in runs}
    if only_plan:
        _show_plan(runs, unfinished, flops)
        return 0
    try:
        grid.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{grid.out}: cannot be made: {error.strerror}; choose another folder with --out") from None
    table = _write_results(grid, runs, command)
    done, began, finished, lost = 0.0, time.monotonic(), len(runs) - len(unfinished), False
    for number, run in enumerate(unfinished):
        rest = sum(flops[other.directory] for other in unfinished[number:])
        time_left = f", about {clock((time.monotonic() - began) / done * rest)} left" if done else ""
        say(f"run {finished + number + 1} of {len(runs)}: {run.directory.name}{time_left}")
        status = run_in_process(train_and_score, run.experiment, grid.blimp)
        if status == INTERRUPTED:
            say(f"stopped in {run.directory.name}; the same command goes on")
            return INTERRUPTED
        if status == OUTPUT_LOST:  # The run is done all the same.
            lost = True
        elif status:
            if status != 2:  # with status 2 the run has said what was wrong
                say(f"{run.directory} ended with status {status}; the same command tries it again")
            return max(status, 1)  # a negative status is the signal that ended the run
        done += flops[run.directory]
        table = _write_results(grid, runs, command)
    print(table, end="")
    return OUTPUT_LOST if lost else 0


def read_study(file: Path) -> dict[str, Any]:
    """Reads a study file of kind `grid`.

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


def train_and_score(experiment: Experiment, blimp: Path | None) -> int:
    """Makes one run, as train.py and eval_blimp.py do, and returns the exit status."""
    status = train_run(experiment)
    if status == 0 and blimp is not None:
        evaluate_run(experiment.run, [blimp], overwrite=True)  # an old report is of an earlier update
    return status


def run_in_process(function: Callable[..., int | None], *arguments: Any) -> int:
    """Calls a function in a fresh process, so that all of its memory is given back, and returns the exit status.

    SIGINT and SIGTERM are passed on as SIGTERM, which asks a run to stop. (A second one does not insist, because a
    Ctrl-C at a terminal has reached the process already.) The status is then 75. What the function prints as its
    result is not shown: the study's table is.
    """
    process = multiprocessing.get_context("spawn").Process(target=_exit_with_status, args=(function, *arguments))
    asked = False

    def pass_on(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = True
        if process.pid is not None:
            process.terminate()

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        process.start()
        if asked:
            process.terminate()
        process.join()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return INTERRUPTED if asked else process.exitcode or 0


def _exit_with_status(function: Callable[..., int | None], *arguments: Any) -> None:
    with open("/dev/null", "w") as nowhere:
        sys.stdout = nowhere
        sys.exit(exit_with(lambda: function(*arguments)))


def _require_own_folder(grid: Grid) -> None:
    """Raises InputError where the study's folder holds something else."""
    try:
        empty = not grid.out.exists() or not any(grid.out.iterdir())
    except OSError as error:
        raise InputError(f"{grid.out}: cannot be read: {error.strerror}; choose another folder with --out") from None
    if not empty and _read_name(grid.out / "table.json") != grid.name:
        message = f"holds something else than the study {grid.name}; choose another folder with --out"
        raise InputError(f"{grid.out}: {message}")


def _read_name(table: Path) -> str | None:
    """Returns the name of the study that made a table, or None for anything else."""
    try:
        return parse_json(read_small(table))["study"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _check_begun(runs: list[GridRun]) -> int:
    """Returns 2, after a line that says why, where a run was begun with another configuration than the file's now."""
    begun = [run.experiment for run in runs if RunDirectory(run.directory).config.exists()]
    # The check asks for the device, which a process then holds. Each run needs all of it, so another process asks.
    status = run_in_process(require_all_same, begun) if begun else 0
    return 0 if status == OUTPUT_LOST else status


def require_all_same(begun: list[Experiment]) -> None:
    """Raises InputError where a run was begun with another configuration."""
    for experiment in begun:
        require_same(experiment, RunDirectory(Path(experiment.run)))


def _find_unfinished(grid: Grid, runs: list[GridRun]) -> list[GridRun]:
    """Returns the runs that are not done. Raises InputError where one was scored on other minimal pairs."""
    digest = None if grid.blimp is None else minimal_pairs.digest(minimal_pairs.load(grid.blimp))
    unfinished = []
    for run in runs:
        if digest and run.experiment.data.has_minimal_pairs:
            message = "generates its corpus and has minimal pairs of its own; leave --blimp and blimp out"
            raise InputError(f"{grid.blimp}: {run.cell} {message}")
        directory = RunDirectory(run.directory)
        scores = directory.evaluation / "blimp-paper.json"
        scored = blimp_report.read(scores) if digest and scores.exists() else None
        if scored and scored["data"]["sha256"] != digest:
            message = f"is of other minimal pairs than {grid.blimp}: give those, or another folder with --out"
            raise InputError(f"{scores}: {message}")
        summary = directory.read_summary()
        if summary is None or (digest and (scored is None or scored["step"] != summary["step"])):
            unfinished.append(run)
    return unfinished


def _write_results(grid: Grid, runs: list[GridRun], command: str) -> str:
    """Writes table.md, table.json and the plot as they stand now, and returns the table."""
    cells = collect_cells(grid, runs)
    picture = plot_grid(grid, cells)
    if picture is not None:
        write_file(grid.out / "table.png", picture)
    return write_table(grid, cells, command, None if picture is None else "table.png")


def _show_plan(runs: list[GridRun], unfinished: list[GridRun], flops: Mapping[Path, float]) -> None:
    """Prints each run, its state and the least time that it takes."""
    seconds = {
        run.directory: flops[run.directory] / plan.matmul_speed(run.experiment.compute.precision) for run in unfinished
    }
    for run in runs:
        begun = RunDirectory(run.directory).config.exists()
        state = "done" if run.directory not in seconds else "begun" if begun else "to do"
        print(f"{state:6} {clock(seconds[run.directory]) if state != 'done' else '':>10}  {run.directory}")
    total, finished = clock(sum(seconds.values())), len(runs) - len(unfinished)
    print(f"{finished} of {len(runs)} runs are done; the rest takes {total} at best, by the speed of")
    print("matrix products alone; expect half as much again, and the scoring of minimal pairs beside it")
