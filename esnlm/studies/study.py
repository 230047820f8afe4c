"""A study: a file that names many runs, trained one after the other into one table."""

import multiprocessing
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from esnlm.commands.base import exit_with
from esnlm.config import Experiment, GrammarData
from esnlm.errors import InputError, require
from esnlm.evaluation import minimal_pairs
from esnlm.reporting import blimp_report
from esnlm.runs.atomic import parse_json, write_atomically
from esnlm.runs.console import clock, say
from esnlm.runs.directory import RunDirectory
from esnlm.runs.yaml_file import read_tree
from esnlm.studies import grid as grids
from esnlm.studies import grid_plot, grid_table
from esnlm.studies.grid import Grid, Run
from esnlm.training import loop, plan
from esnlm.training.loop import INTERRUPTED
from esnlm.training.resume import require_same

BOTTLENECK_KINDS = ("alignment", "coordinate_check", "training_curves")  # of studies outside of the package


def study(
    file: Path,
    out: Path | None = None,
    blimp: Path | None = None,
    only_plan: bool = False,
    overrides: Sequence[str] = (),
    command: str = "",
) -> int:
    """Runs what is left of a study, or shows what that is. Nothing is trained before all of its file is checked.

    Args:
        file: the study file, YAML.
        out: its folder, instead of the file's own.
        blimp: minimal pairs to score with each run, instead of the file's own.
        only_plan: list the runs, what is done, and the time that the rest takes.
        overrides: `--section.key value` for every run.
        command: to be named in the table.

    Returns:
        0 when all is done; 75 when it was stopped and the same command goes on; otherwise the status of the run that failed.

    Raises:
        InputError: the file, a configuration, the data or the folder cannot be used.
    """
    tree = read(file)
    paths = {key: str(value) for key, value in (("out", out), ("blimp", blimp)) if value}
    grid = grids.parse(tree | paths, file)
    runs = grids.runs_of(grid, overrides)
    _require_own(grid)
    if status := _check_begun(runs):
        return status
    left = _left(grid, runs)
    flops = {
        run.directory: plan.flops(run.experiment) for run in runs
    }  # a token store that cannot be used is noticed here
    if only_plan:
        return _show_plan(runs, left, flops)
    try:
        grid.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{grid.out}: cannot be made: {error.strerror}; choose another folder with --out") from None
    table = _write(grid, runs, command)
    done, began, at_once = 0.0, time.monotonic(), len(runs) - len(left)
    for number, run in enumerate(left):
        rest = sum(flops[other.directory] for other in left[number:])
        time_left = f", about {clock((time.monotonic() - began) / done * rest)} left" if done else ""
        say(f"run {at_once + number + 1} of {len(runs)}: {run.directory.name}{time_left}")
        status = in_a_process_of_its_own(train_and_score, run.experiment, grid.blimp)
        if status == INTERRUPTED:
            say(f"stopped in {run.directory.name}; the same command goes on")
            return INTERRUPTED
        if status:
            if status != 2:  # which has said what was wrong
                say(f"{run.directory} ended with status {status}; the same command tries it again")
            return max(status, 1)  # negative: the signal that ended it
        done += flops[run.directory]
        table = _write(grid, runs, command)
    print(table, end="")
    return 0


def read(file: Path) -> dict:
    """The tree of a study file, `kind` in it.

    Raises:
        InputError: it is missing or not YAML, a key stands in it twice, or its kind is unknown.
    """
    tree = read_tree(file, "name a study file, such as those in configs/studies")
    kind = tree.get("kind") if isinstance(tree, dict) else None
    if kind in BOTTLENECK_KINDS:
        raise InputError(f"{file}: kind is {kind!r}: such a study is run by python -m experiments.bottleneck {file}")
    require(kind == "grid", f"{file}: kind is {kind!r}: a study is of kind grid")
    return tree


def train_and_score(experiment: Experiment, blimp: Path | None) -> int:
    """One run as train.py and eval_blimp.py make it; returns the exit status."""
    status = loop.train(experiment)
    if status == 0 and blimp is not None:
        blimp_report.evaluate_run(experiment.run, [blimp], overwrite=True)  # what is there is of an earlier update
    return status


def in_a_process_of_its_own(call, *arguments) -> int:
    """Calls in a fresh process, whose memory goes back with it, and returns its exit status; 75 where one was asked to stop.

    SIGINT and SIGTERM are passed on as SIGTERM, which asks and, asked twice, does not insist: a Ctrl-C at a terminal has
    reached the process already. What it prints as its result is not shown: the table is.
    """
    process = multiprocessing.get_context("spawn").Process(target=_exit_with, args=(call, *arguments))
    asked = False

    def pass_on(number, frame):
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
    return INTERRUPTED if asked else process.exitcode


def _exit_with(call, *arguments) -> None:
    with open("/dev/null", "w") as nowhere:
        sys.stdout = nowhere
        sys.exit(exit_with(lambda: call(*arguments)))


def _check_begun(runs: list[Run]) -> int:
    """2, after the line that says so, where a run was begun with another configuration than the study file's now."""
    begun = [run.experiment for run in runs if RunDirectory(run.directory).config.exists()]
    # Elsewhere, as it asks for the device, which is then held: each run needs all of it.
    return in_a_process_of_its_own(require_all_same, begun) if begun else 0


def require_all_same(begun: list[Experiment]) -> None:
    """Raises InputError where a run was begun with another configuration."""
    for experiment in begun:
        require_same(experiment, RunDirectory(Path(experiment.run)))


def _left(grid: Grid, runs: list[Run]) -> list[Run]:
    """The runs that are not done. InputError where one was scored on other minimal pairs."""
    digest = None if grid.blimp is None else minimal_pairs.digest(minimal_pairs.load(grid.blimp))
    left = []
    for run in runs:
        if digest and isinstance(run.experiment.data, GrammarData):
            raise InputError(
                f"{grid.blimp}: {run.cell} generates its corpus and has minimal pairs of its own; leave --blimp and blimp out"
            )
        scores = run.directory / "evaluation" / "blimp-paper.json"
        scored = blimp_report.read(scores) if digest and scores.exists() else None
        if scored and scored["data"]["sha256"] != digest:
            raise InputError(
                f"{scores}: is of other minimal pairs than {grid.blimp}: give those, or another folder with --out"
            )
        summary = grid_table.finished(run.directory)
        if summary is None or (digest and (scored is None or scored["step"] != summary["step"])):
            left.append(run)
    return left


def _require_own(grid: Grid) -> None:
    """Raises InputError where the study's folder holds something else."""
    try:
        empty = not grid.out.exists() or not any(grid.out.iterdir())
    except OSError as error:
        raise InputError(f"{grid.out}: cannot be read: {error.strerror}; choose another folder with --out") from None
    if not empty and _name_of(grid.out / "table.json") != grid.name:
        raise InputError(
            f"{grid.out}: holds something else than the study {grid.name}; choose another folder with --out"
        )


def _name_of(table: Path) -> str | None:
    try:
        return parse_json(table.read_text())["study"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(grid: Grid, runs: list[Run], command: str) -> str:
    """Writes table.md, table.json and the plot as they stand, and returns the table."""
    cells = grid_table.collect(grid, runs)
    picture = grid_plot.draw(grid, cells)
    if picture is not None:
        write_atomically(grid.out / "table.png", picture)
    return grid_table.write(grid, cells, command, None if picture is None else "table.png")


def _show_plan(runs: list[Run], left: list[Run], flops: dict[Path, float]) -> int:
    seconds = {
        run.directory: flops[run.directory] / plan.matmul_speed(run.experiment.compute.precision) for run in left
    }
    for run in runs:
        begun = RunDirectory(run.directory).config.exists()
        state = "done" if run.directory not in seconds else "begun" if begun else "to do"
        print(f"{state:6} {clock(seconds[run.directory]) if state != 'done' else '':>10}  {run.directory}")
    print(
        f"{len(runs) - len(left)} of {len(runs)} runs are done; the rest takes {clock(sum(seconds.values()))} at best, by the speed of"
    )
    print("matrix products alone; expect half as much again, and the scoring of minimal pairs beside it")
    return 0
