"""The trials of a search, as Optuna keeps them in a SQLite file: proposed, measured on the way, and told the result.

Only the process that runs the study opens the file. The runs themselves know nothing of it: what they measure on the way is
read from their metrics.jsonl.
"""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from esnlm.errors import InputError
from esnlm.io.json_file import parse_json, spell_nonfinite
from esnlm.studies.search import Choices, Range, Search, last_step

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.trial import Trial as OptunaTrial

STORAGE = "search.db"
SQLITE = b"SQLite format 3\0"  # what such a file begins with
SLOWEST_START = 4  # No trial is given up in this part of its updates: a low learning rate starts slowly [ours].
NO_OPTUNA = "a study of kind search needs Optuna: pip install 'esnlm[search]'"


@dataclass(frozen=True)
class Trial:
    """What is known of a trial."""

    number: int
    state: str  # running, complete, pruned or fail, as Optuna has it
    values: dict[str, Any]  # of the searched settings, by dotted key
    objective: float | None  # of a pruned one, the last value that it was pruned by
    reports: dict[int, float] = field(default_factory=dict)  # what it was measured at on the way, by update
    error: str | None = None  # why it failed, the last time


class Trials:
    """The trials of one search. Leaving a `with` block closes the storage."""

    def __init__(self, search: Search) -> None:
        """Opens the storage in the study's folder, or makes it.

        Raises:
            InputError: Optuna is not installed, or what is there is of another search.
        """
        require_optuna()
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.search = search
        # Optuna takes what is measured on the way for the objective. Where that is to be large, a loss is told with its sign changed.
        self._sign = -1.0 if search.direction == "maximize" else 1.0
        file = search.out / STORAGE
        if file.exists() and not file.read_bytes().startswith(SQLITE):
            raise InputError(f"{file}: cannot be used (no SQLite file); choose another folder with --out")
        warmup = (last_step(search.experiment) or 0) // SLOWEST_START
        median = optuna.pruners.MedianPruner(n_warmup_steps=warmup)
        pruner = median if search.pruner == "median" else optuna.pruners.NopPruner()
        try:
            self._storage = optuna.storages.RDBStorage(f"sqlite:///{file}")
            self._study: Study = optuna.create_study(
                storage=self._storage,
                study_name=search.name,
                direction=optuna.study.StudyDirection[search.direction.upper()],
                pruner=pruner,
                load_if_exists=True,
            )
            begun = self._study.user_attrs.get("definition")
        except Exception as error:  # of SQLAlchemy, whose errors have no common parent with Optuna's
            reason = str(error).split("\n")[0]
            raise InputError(f"{file}: cannot be used ({reason}); choose another folder with --out") from None
        definition = spell_nonfinite(search.definition)
        if self._sign < 0 and search.pruner == "median":
            definition["pruning"] = "by losses with their sign changed"  # which an earlier version did not do
        if begun is None:
            self._study.set_user_attr("definition", definition)
        else:
            other = next((key for key in definition if begun.get(key) != definition[key]), None)
            if other is not None:
                self.__exit__()
                message = f"the search was begun with another {other} than {search.file} has now"
                raise InputError(f"{search.out}: {message}; choose another folder with --out")
        self._open: dict[int, OptunaTrial] = {}

    def __enter__(self) -> "Trials":
        return self

    def __exit__(self, *exception: object) -> None:
        self._storage.remove_session()
        self._storage.engine.dispose()

    def all(self) -> list[Trial]:
        """Returns every trial so far, by number."""
        return [
            Trial(
                number=trial.number,
                state=trial.state.name.lower(),
                values=dict(trial.params),
                objective=_changed(trial.value, self._sign) if trial.state.name == "PRUNED" else trial.value,
                reports={step: self._sign * value for step, value in trial.intermediate_values.items()},
                error=trial.user_attrs.get("error"),
            )
            for trial in self._study.get_trials(deepcopy=False)
        ]

    def reopen(self) -> list[int]:
        """Returns the numbers of the trials that were begun and have no result, which go on."""
        from optuna.trial import Trial as OptunaTrial
        from optuna.trial import TrialState

        for trial in self._study.get_trials(states=(TrialState.RUNNING,)):
            self._open[trial.number] = OptunaTrial(self._study, trial._trial_id)
            self._open[trial.number].set_user_attr("error", None)
        return sorted(self._open)

    def ask(self) -> int:
        """Lets Optuna propose a trial and returns its number.

        The proposal depends on the seed, the number and the results so far, and not on whether the search was stopped
        between: the sampler is seeded anew for each trial.
        """
        import optuna

        number = len(self._study.get_trials(deepcopy=False))
        seed = int(np.random.SeedSequence([self.search.seed, number]).generate_state(1)[0])
        self._study.sampler = optuna.samplers.TPESampler(seed=seed)
        trial = self._study.ask({key: _distribution(place) for key, place in self.search.space.items()})
        self._open[trial.number] = trial
        return trial.number

    def values(self, number: int) -> dict[str, Any]:
        """Returns the values of the searched settings of a trial that is open."""
        return dict(self._open[number].params)

    def report(self, number: int) -> int | None:
        """Tells Optuna what a running trial has measured since the last time.

        Returns:
            The update of the last measurement, if Optuna says that the trial should be given up; otherwise None.
        """
        trial = self._open[number]
        known = self._study.get_trials(deepcopy=False)[number].intermediate_values
        found = read_reports(self.search.directory(number), self.search.prune_by)
        new = [step for step in found if step not in known]
        for step in new:
            trial.report(self._sign * found[step], step)
        return max(found) if new and trial.should_prune() else None

    def complete(self, number: int, value: float) -> None:
        """Tells the result of a trial. Where it is no number, it counts as the worst."""
        worst = math.inf if self.search.direction == "minimize" else -math.inf
        self._study.tell(self._open.pop(number), worst if math.isnan(value) else value)

    def prune(self, number: int) -> None:
        """Tells that a trial was given up."""
        from optuna.trial import TrialState

        self._study.tell(self._open.pop(number), state=TrialState.PRUNED)

    def fail(self, number: int, reason: str, for_good: bool) -> None:
        """Keeps why a trial failed.

        Args:
            for_good: it would fail again. Otherwise the same command tries it again.
        """
        from optuna.trial import TrialState

        trial = self._open.pop(number)
        trial.set_user_attr("error", reason)
        if for_good:
            self._study.tell(trial, state=TrialState.FAIL)


def _changed(value: float | None, sign: float) -> float | None:
    return None if value is None else sign * value


def require_optuna() -> None:
    """Raises InputError where Optuna is not installed."""
    try:
        import optuna  # noqa: F401
    except ImportError:
        raise InputError(NO_OPTUNA) from None


def read_reports(directory: Path, name: str) -> dict[int, float]:
    """Returns what a run has measured so far, by update: the values of one name in its metrics.jsonl."""
    found = {}
    try:
        lines = (
            (directory / "metrics.jsonl").read_text(errors="replace").split("\n")[:-1]
        )  # the last may be half written
    except OSError:
        return {}
    for line in lines:
        try:
            values = parse_json(line)
            found[int(values["step"])] = float(values[name])
        except (ValueError, KeyError, TypeError):  # a line of other measurements
            continue
    return found


def _distribution(place: Range | Choices) -> "BaseDistribution":
    from optuna import distributions

    if isinstance(place, Choices):
        return distributions.CategoricalDistribution(place.values)
    if place.whole:
        return distributions.IntDistribution(int(place.low), int(place.high), log=place.log)
    return distributions.FloatDistribution(place.low, place.high, log=place.log)
