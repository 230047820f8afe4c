"""Runs a search: trials side by side or one by one, given up where they promise nothing, and one table of them."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from esnlm import config_io
from esnlm.errors import InputError
from esnlm.evaluation import minimal_pairs
from esnlm.io.console import clock, counted, say, tell
from esnlm.memory import free_memory
from esnlm.process import OUTPUT_LOST
from esnlm.runs.directory import RunDirectory
from esnlm.studies import folder
from esnlm.studies.comparable import require_pairs, require_texts
from esnlm.studies.jobs import Job, Pool
from esnlm.studies.one_run import train_and_score
from esnlm.studies.progress import StudyProgress
from esnlm.studies.search import Search, last_step, parse_search
from esnlm.studies.search_table import measure, write_results
from esnlm.studies.search_trials import STORAGE, Trials, require_optuna
from esnlm.studies.shares import Devices, Share, divide, find_devices, memory_needs
from esnlm.training import plan
from esnlm.workflows.train import INTERRUPTED

SECONDS = 1.0  # between two looks at what the runs have measured
# Trials that fail one after the other, side by side, after which no further one is begun. One by one, the first ends the search.
FAILURES_IN_A_ROW = 3


def run_search(
    tree: dict[str, Any],
    file: Path,
    only_plan: bool = False,
    overrides: Sequence[str] = (),
    command: str = "",
    jobs: int | str | None = None,
) -> int:
    """Runs what is left of a search, or shows what that is. The file is checked before anything is trained.

    Args:
        tree: the content of the study file, with the command line's `out` and `blimp`.
        file: the study file.
        only_plan: tell how many trials are done, and what one takes.
        overrides: `--section.key value` for every trial.
        command: the command, to stand in the table.
        jobs: how many trials to run side by side, or "auto"; None runs them one by one and shows what each says.

    Returns:
        The exit status, as `study.run_study` does.

    Raises:
        InputError: the file, a configuration, the data or the folder cannot be used, or Optuna is not installed.
    """
    search = parse_search(tree, file, overrides)
    require_optuna()
    if search.blimp is not None and search.experiment.data.has_minimal_pairs:
        message = "the base generates its corpus and has minimal pairs of its own; leave --blimp and blimp out"
        raise InputError(f"{search.blimp}: {message}")
    folder.require_own(search.out, search.name, kind="search")
    begun = [trial for trial in sorted((search.out / "runs").glob("trial-*")) if RunDirectory(trial).config.exists()]
    require_texts((trial, config_io.read_begun(RunDirectory(trial).config).data) for trial in begun)
    if search.blimp is not None:
        require_pairs(begun, minimal_pairs.digest(minimal_pairs.load(search.blimp)), search.blimp)
    flops = plan.flops(search.experiment)  # It reads the token store, and notices here one that cannot be used.
    if only_plan:
        _show_plan(search, flops)
        return 0
    folder.make(search.out)
    with folder.held_alone(search.out):
        if not (search.out / STORAGE).exists():
            write_results(search, [], command)  # It names the study that the folder belongs to.
        with Trials(search) as trials:
            return _Run(search, trials, command, jobs).run()


class _Run:
    """The work of one process on a search."""

    def __init__(self, search: Search, trials: Trials, command: str, jobs: int | str | None) -> None:
        self.search, self.trials, self.command = search, trials, command
        self.logs = None if jobs is None else search.out / "logs"
        if self.logs:
            folder.make(self.logs)
        self.devices, self.shares = Devices("none", 1), [Share()]
        if jobs not in (None, 1):
            self.devices = find_devices()
            [need] = memory_needs([search.experiment], self.devices)
            self.shares = divide(jobs or 1, search.trials, need, self.devices)
        self.number_of: dict[str, int] = {}  # of each trial that this process has begun, by its name
        self.last_step_of: dict[str, int | None] = {}
        self.pruned: set[str] = set()
        self.failed: list[str] = []
        self.status = 0  # the largest of the trials that failed
        # The names of new trials. One that failed before may always fail, and says nothing of others.
        self.asked_for: set[str] = set()
        self.in_a_row = 0  # new trials that failed one after the other, as on a full disk
        self.lost = False

    def run(self) -> int:
        """Runs what is left of the trials and returns the exit status."""
        search, trials = self.search, self.trials
        waiting, begun = [self._job(number) for number in trials.reopen()], len(trials.all())
        finished = sum(trial.state != "running" for trial in trials.all())
        progress = StudyProgress(search.trials, finished)
        write_results(search, trials.all(), self.command)
        with Pool(self.shares, free_memory()) as pool:
            while not pool.asked or pool.running:
                while pool.has_room(0) and self._has_more(waiting, begun):
                    if not waiting:
                        # Asked for as late as possible: a proposal builds on the results that are there.
                        begun += 1
                        number = trials.ask()
                        self.asked_for.add(search.directory(number).name)
                        waiting.append(self._job(number))
                    if waiting[0] is not None and not pool.has_room(waiting[0].memory):
                        break
                    if (job := waiting.pop(0)) is not None:
                        pool.start(job)
                    else:  # It cannot be used, which is told.
                        progress.done += 1
                if not pool.running:
                    break
                if self.logs:
                    progress.show(pool.running, max(0, progress.done - finished) / max(1, search.trials - finished))
                ended = pool.wait(SECONDS)
                for name in pool.running:
                    self._prune_if_hopeless(pool, name)
                for each in ended:
                    self._prune_if_hopeless(None, each.job.name)  # for the reports
                    if self._tell(each.job.name, each.status, each.reason, pool.asked, progress):
                        progress.done += 1
                        write_results(search, trials.all(), self.command)
        progress.end()
        write_results(search, trials.all(), self.command)
        return self._end(pool.asked)

    def _has_more(self, waiting: Sequence[Job | None], begun: int) -> bool:
        """Returns whether there is a trial to start.

        After several new ones that failed there is none: they teach nothing, and all settings would be proposed without a result.
        """
        return not self._stopped_by_failures and (bool(waiting) or begun < self.search.trials)

    @property
    def _stopped_by_failures(self) -> bool:
        return self.in_a_row >= (1 if self.logs is None else FAILURES_IN_A_ROW)

    def _job(self, number: int) -> Job | None:
        """Returns the job of a trial; None where its settings cannot be used together, which its trial then tells."""
        directory = self.search.directory(number)
        try:
            experiment = self.search.make_experiment(self.trials.values(number), directory)
        except InputError as error:
            tell(f"{directory.name}: {error}")
            self.trials.fail(number, str(error), for_good=True)
            return None
        self.number_of[directory.name] = number
        self.last_step_of[directory.name] = last_step(experiment)
        need = memory_needs([experiment], self.devices)[0] if len(self.shares) > 1 else 0
        log = self.logs / f"{directory.name}.log" if self.logs else None
        if log is None:
            say(f"{directory.name} of {self.search.trials}: {_spell_point(self.search, self.trials.values(number))}")
        return Job(directory.name, train_and_score, (experiment, self.search.blimp), need, log)

    def _prune_if_hopeless(self, pool: Pool | None, name: str) -> None:
        """Tells Optuna what a trial has measured, and stops it where Optuna gives it up. Its end is always awaited."""
        step = self.trials.report(self.number_of[name])
        last = self.last_step_of[name]
        if pool is not None and step is not None and last is not None and step < last and name not in self.pruned:
            self.pruned.add(name)
            pool.stop(name)

    def _tell(self, name: str, status: int, reason: str, asked: bool, progress: StudyProgress) -> bool:
        """Tells Optuna how a trial ended, and returns whether it needs nothing more."""
        number = self.number_of[name]
        if status in (0, OUTPUT_LOST):
            self.in_a_row = 0
            self.lost = self.lost or status == OUTPUT_LOST
            value = measure(self.search, number)[self.search.objective]
            summary = RunDirectory(self.search.directory(number)).read_summary()
            # A model that has diverged may have a figure by chance. One that has collapsed, and answers all pairs alike, has no accuracy.
            diverged = summary is not None and summary["status"] == "diverged"
            if diverged or (value is None and self.search.objective == "blimp"):
                self.trials.complete(number, math.nan)
                return True
            if value is not None:
                self.trials.complete(number, value)
                return True
            reason = f"the run has no {self.search.objective}: give it validation text, or choose another objective"
            self.trials.fail(number, reason, for_good=True)
            self.failed.append(f"{name}: {reason}")
            self.status = max(self.status, 1)
            progress.tell(self.failed[-1])
            return True
        if name in self.pruned:
            self.in_a_row = 0
            self.trials.prune(number)
            progress.tell(f"{name}: given up after update {max(self._reports(number), default=0)}")
            return True
        if not asked:
            self.trials.fail(number, reason, for_good=False)
            self.failed.append(f"{name}: {reason}")
            self.status = max(self.status, status, 1)
            self.in_a_row += name in self.asked_for
            progress.failed += 1
            progress.tell(self.failed[-1])
        return False

    def _reports(self, number: int) -> dict[int, float]:
        return self.trials.all()[number].reports

    def _end(self, stopped: bool) -> int:
        """Says what is not done and returns the status."""
        if self.failed:
            tell(f"{len(self.failed)} of {self.search.trials} trials failed; the same command goes on:")
            for line in self.failed:
                tell(line)
        if self._stopped_by_failures and not stopped:
            tell(
                f"no further trial was begun after {counted(self.in_a_row, 'failure')} in a row: see what failed first"
            )
        if stopped:
            tell("stopped; the same command goes on")
            return INTERRUPTED
        if self.failed:
            return self.status
        print((self.search.out / "table.md").read_text(), end="")
        return OUTPUT_LOST if self.lost else 0


def _spell_point(search: Search, values: dict[str, Any]) -> str:
    return ", ".join(
        f"{search.names[key]} {value:.4g}" if isinstance(value, float) else f"{search.names[key]} {value}"
        for key, value in values.items()
    )


def _show_plan(search: Search, flops: float) -> None:
    """Prints what is done, and the least time that the rest takes."""
    known = []
    if (search.out / STORAGE).exists():
        with Trials(search) as trials:
            known = trials.all()
    left = search.trials - sum(trial.state != "running" for trial in known)
    seconds = flops / plan.matmul_speed(search.experiment.compute.precision)
    print(
        f"{search.trials - left} of {search.trials} trials are done; one takes {clock(seconds)} at best with the settings"
    )
    print(f"of the base, and the rest {clock(left * seconds)}, by the speed of matrix products alone")
