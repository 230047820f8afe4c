"""A study of kind `search`: Optuna proposes each run, a trial, from the results of earlier ones."""

import dataclasses
import importlib.util
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from filelock import FileLock, Timeout

from esnlm.base.console import notice
from esnlm.base.errors import InputError
from esnlm.base.files import write_file
from esnlm.evaluation import minimal_pairs
from esnlm.models.devices import find_machine
from esnlm.runs.directory import RunDirectory
from esnlm.studies import study_file, table
from esnlm.studies.pool import Pool, Slot, StudyRun, find_slots
from esnlm.studies.study_file import Place, SearchFile, format_setting
from esnlm.studies.table import read_run
from esnlm.training import config_io, plan
from esnlm.training.config import as_dict, flatten, hash_settings

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial, Trial

STORAGE = "trials.log"
# in the table after the objective
COLUMNS = ("train_nll", "val_nll", "val_bits_per_byte", "blimp", "trainable_params", "seconds")
# no trial is given up in the first quarter of its updates: low learning rates start slowly [ours]
SLOWEST_START = 4


def run_search(
    study: SearchFile,
    file: Path,
    out: Path,
    only_plan: bool,
    overrides: Sequence[str],
    command: str,
    jobs: str | None,
) -> int:
    """Runs or lists the remaining trials of a search, as `study.run_study` does."""
    if importlib.util.find_spec("optuna") is None:
        raise InputError("a study of kind search needs Optuna: pip install 'esnlm[search]'")
    search = _Search(study, file, out, overrides, command)
    if only_plan:
        done = search.open().count_done() if (out / STORAGE).exists() else 0
        print(f"{done} of {study.trials} trials are done")
        return 0
    out.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(out / ".lock", timeout=0):
            return search.open().run(jobs)
    except Timeout:
        raise InputError(
            f"{out}: another process works on this search; wait for it, or choose another --out"
        ) from None


class _Search:
    """A running search. Optuna's data is in the study's folder."""

    optuna_study: "Study"
    waiting: "list[Trial]"  # begun, without a result
    pool: Pool

    def __init__(
        self, study: SearchFile, file: Path, out: Path, overrides: Sequence[str], command: str
    ) -> None:
        """Checks the file and the bounds of all ranges."""
        self.study, self.file, self.out = study, file, out
        self.overrides, self.command = list(overrides), command
        self.base = study_file.find_base(file, study.base)
        for key in study.search:
            if key in ("run", "seed") or key.startswith("data.validation"):
                raise InputError(
                    f"{file}: search.{key}: it would make losses incomparable: leave it out"
                )
        study_file.check_free(file, self.overrides, {"run", *study.search})
        self.experiment = self.make_run(0, {}).experiment
        data = self.experiment.data
        data.size()  # raises if a token store is not usable
        self.pairs = (
            None if study.blimp is None else minimal_pairs.digest(minimal_pairs.load(study.blimp))
        )
        if study.objective == "blimp" and not (self.pairs or data.has_minimal_pairs):
            raise InputError(f"{file}: objective is blimp: name minimal pairs with blimp")
        has_validation = getattr(data, "validation", "made with the corpus")
        if study.objective not in ("blimp", "train_nll") and not has_validation:
            raise InputError(
                f"{file}: objective is {study.objective}: name a text with data.validation"
            )
        # factor that makes lower values better
        self.sign = -1.0 if study.objective == "blimp" else 1.0
        bounds = {
            key: place.choices or [place.low, place.high] for key, place in study.search.items()
        }
        first = {key: values[0] for key, values in bounds.items()}
        for key, values in bounds.items():
            for value in values:
                self.make_run(0, first | {key: value})

    def make_run(self, number: int, values: dict[str, Any]) -> StudyRun:
        """Returns the run of a trial. Raises InputError if its settings are incompatible."""
        name = f"trial-{number:04}"
        chosen = [f"--{key}={format_setting(value)}" for key, value in values.items()]
        settings = [*chosen, *self.overrides]
        words = [*settings, f"--run={self.out / 'runs' / name}"]
        experiment = study_file.read_experiment(self.file, ", ".join(chosen), self.base, words)
        return StudyRun(name, experiment, self.base, settings)

    def open(self) -> "_Search":
        """Opens Optuna's study. Raises InputError if it was begun with another definition."""
        import optuna
        from optuna.storages.journal import JournalFileBackend

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        machine = find_machine(self.experiment.model, self.experiment.compute)
        needs = plan.trainer_of(self.experiment, self.experiment.data.size()).plan(machine)
        median = optuna.pruners.MedianPruner(n_warmup_steps=needs.updates // SLOWEST_START)
        self.optuna_study = optuna.create_study(
            storage=optuna.storages.JournalStorage(JournalFileBackend(str(self.out / STORAGE))),
            study_name=self.file.stem,
            direction="minimize" if self.sign > 0 else "maximize",
            pruner=median if self.study.pruner == "median" else optuna.pruners.NopPruner(),
            load_if_exists=True,
        )
        keys = {"search", "objective", "sampler", "seed", "prune_by"}
        definition = self.study.model_dump(include=keys) | {
            "base": hash_settings(self.experiment),
            "text": self.experiment.data.text_sha256() or {},
            "pairs": self.pairs,
        }
        begun = self.optuna_study.user_attrs.get("definition", definition)
        for key, value in definition.items():
            if begun.get(key) != value:
                raise InputError(
                    f"{self.out}: the search was begun with another {key}; choose another folder"
                    " with --out"
                )
        self.optuna_study.set_user_attr("definition", definition)
        return self

    def count_done(self) -> int:
        return sum(
            trial.state.is_finished() for trial in self.optuna_study.get_trials(deepcopy=False)
        )

    def run(self, jobs: str | None) -> int:
        """Runs the remaining trials and returns the exit status."""
        import optuna

        begun = self.optuna_study.get_trials(states=(optuna.trial.TrialState.RUNNING,))
        self.waiting = [optuna.trial.Trial(self.optuna_study, trial._trial_id) for trial in begun]
        done = self.count_done()
        self.pool = Pool(self.out / "logs", done, self.study.trials)
        self.write()
        tasks = [self.try_out] * (self.study.trials - done)
        status = self.pool.work(find_slots(jobs), tasks)
        if status == 0:
            print((self.out / "table.md").read_text("utf-8"), end="")
        return status

    def next_trial(self) -> "Trial":
        """Returns a trial without a result, or else a new one, proposed from the results so far."""
        import optuna

        if self.waiting:
            return self.waiting.pop(0)
        known = flatten(as_dict(self.experiment))
        samplers = {"tpe": optuna.samplers.TPESampler, "random": optuna.samplers.RandomSampler}
        # seeded by number, so that a resumed search proposes the trials of an uninterrupted one
        number = len(self.optuna_study.trials)
        seed = np.random.SeedSequence([self.study.seed, number]).generate_state(1)[0]
        self.optuna_study.sampler = samplers[self.study.sampler](seed=int(seed))
        return self.optuna_study.ask(
            {key: distribution(place, known.get(key)) for key, place in self.study.search.items()}
        )

    def try_out(self, slot: Slot) -> None:
        """Runs a trial and reports its outcome to Optuna.

        The next command continues a stopped or failed trial.
        """
        from optuna.trial import TrialState

        with self.pool.lock:
            trial = self.next_trial()
        try:
            run = self.make_run(trial.number, trial.params)
        except InputError as error:  # incompatible settings
            notice(str(error))
            trial.set_user_attr("error", str(error))
            self.optuna_study.tell(trial, state=TrialState.FAIL)
            return
        metrics = RunDirectory(run.directory).metrics
        known = set(self.optuna_study.trials[trial.number].intermediate_values)

        def is_hopeless() -> bool:
            """Reports the run's new measurements to Optuna, and asks its pruner."""
            if self.study.pruner == "none" or not metrics.exists():
                return False
            text, name = metrics.read_text("utf-8", errors="replace"), self.study.prune_by
            lines = [json.loads(line) for line in text.split("\n")[:-1]]
            values = {int(line["step"]): float(line[name]) for line in lines if name in line}
            new = sorted(values.keys() - known)
            for step in new:
                # Optuna compares reports in the objective's direction
                trial.report(self.sign * values[step], step)
            known.update(new)
            return bool(new) and trial.should_prune()

        outcome = self.pool.run(run.name, run.commands(self.study.blimp), slot, is_hopeless)
        is_hopeless()  # reports the last values
        with self.pool.lock:
            figures = read_run(run, self.pairs) if outcome == "done" else None
            if figures is not None:
                value = figures[self.study.objective]
                # a diverged model may have a figure by chance, a collapsed one has none
                bad = value is None or math.isnan(value) or figures["status"] == "diverged"
                self.optuna_study.tell(trial, self.sign * math.inf if bad else value)
            elif outcome == "given up":
                self.optuna_study.tell(trial, state=TrialState.PRUNED)
            elif outcome == "failed":
                trial.set_user_attr("error", self.pool.reason(run.name))
            self.write()

    def write(self) -> None:
        """Writes the table, the best trial first, and best.yaml."""
        trials = sorted(self.optuna_study.get_trials(deepcopy=False), key=self._rank)
        entries = [self._describe(trial) for trial in trials]
        runs = [entry["measures"] for entry in entries if entry["measures"]]
        objective = self.study.objective
        columns = dict.fromkeys((objective, *COLUMNS))
        measured = [name for name in columns if any(run[name] is not None for run in runs)]
        notes = table.notes_on(runs)
        if runs and math.isfinite(trials[0].value or 0):
            experiment = self.make_run(trials[0].number, trials[0].params).experiment
            best = dataclasses.replace(experiment, run=str(self.out / "best"))
            line = f"# {self.file.stem}: {entries[0]['run']}, {objective} {trials[0].value!r}\n"
            write_file(self.out / "best.yaml", line + config_io.dump(best))
            notes.append(
                f"The best one's configuration: `esnlm train --config {self.out / 'best.yaml'}`"
            )
        tree = table.start_tree(self.study, self.file.stem, self.command, measured) | {
            "objective": objective,
            "settings": study_file.short_names(list(self.study.search)),
            "trials": entries,
            "notes": notes,
        }
        table.write_trials(self.out, tree)

    def _describe(self, trial: "FrozenTrial") -> dict[str, Any]:
        """Returns the entry of a trial in table.json."""
        error, figures = trial.user_attrs.get("error"), None
        state = "failed" if error else "under way"
        if trial.state.name == "PRUNED":
            state = f"given up after update {trial.last_step or 0}"
        if trial.state.name == "COMPLETE":
            figures = read_run(self.make_run(trial.number, trial.params), self.pairs)
            state = figures["status"] if figures else "finished"
        return {
            "run": f"trial-{trial.number:04}",
            "number": trial.number,
            "state": state,
            "values": trial.params,
            "measures": figures,
            "error": error,
        }

    def _rank(self, trial: "FrozenTrial") -> tuple[int, float, int]:
        place = {"COMPLETE": 0, "PRUNED": 1}.get(trial.state.name, 2)
        return (
            place,
            self.sign * trial.value if place == 0 and trial.value is not None else 0.0,
            trial.number,
        )


def distribution(place: Place, known: Any) -> "BaseDistribution":
    """Converts a range for Optuna.

    It has whole numbers if the base's value or, if that is null, both bounds are whole.
    """
    from optuna import distributions

    if place.low is None or place.high is None:
        return distributions.CategoricalDistribution(place.choices or [])
    bounds = [place.low, place.high] if known is None else [known]
    if all(isinstance(value, int) for value in bounds):
        return distributions.IntDistribution(int(place.low), int(place.high), log=place.log)
    return distributions.FloatDistribution(place.low, place.high, log=place.log)
