"""Training, from a configuration to a finished run directory."""

from collections.abc import Sequence
from pathlib import Path

from esnlm import config
from esnlm.compute import in_float32
from esnlm.config import Experiment
from esnlm.data.corpus import open_corpus
from esnlm.reporting.run_results import references, show_results
from esnlm.runs import checkpoint
from esnlm.runs.console import say, tell, warn
from esnlm.runs.directory import RunDirectory
from esnlm.runs.json_file import write_json
from esnlm.runs.metrics import Metrics
from esnlm.runs.remote.address import is_url
from esnlm.runs.remote.working_folder import train_there
from esnlm.runs.trackers import Trackers, find_tracker
from esnlm.training import loop
from esnlm.training.interruption import Interruption, interruptible
from esnlm.training.plan import count_updates
from esnlm.training.profile import Profile, Span
from esnlm.training.settings import require_same, resolve
from esnlm.training.state import note_changes, warn_of_damage
from esnlm.training.summary import summarize

INTERRUPTED = 75  # the exit status of a run that was stopped and can be resumed


@in_float32
def train_run(experiment: Experiment, allowed: Sequence[str] = (), traced: Span | None = None) -> int:
    """Runs an experiment, or what is left of it, in its run directory.

    Args:
        experiment: what to run, and where.
        allowed: settings that may differ from those that the run was begun with (training/settings.py).
        traced: the updates of which a profile is written; it does not change the outcome.

    Returns:
        The exit status: 0 when the run is done, also when it was done before; 75 when it was interrupted, and the same
        call resumes it; 69 when the run has a URL and its last state is on this machine only.

    Raises:
        InputError: the data, the configuration or the run directory cannot be used.
    """

    def train_in(folder: Path) -> int:
        directory = RunDirectory(folder)
        try:
            with interruptible() as interruption, directory.locked():
                return _train_run(experiment, directory, interruption, allowed, Profile(traced, directory.profile))
        except KeyboardInterrupt:  # There was nothing to save.
            tell("stopped; the same command resumes")
            return INTERRUPTED

    if not is_url(experiment.run):
        return train_in(Path(experiment.run))
    try:
        return train_there(experiment.run, train_in)
    except KeyboardInterrupt:  # while the run was fetched
        tell("stopped; the same command resumes")
        return INTERRUPTED


def _train_run(
    experiment: Experiment,
    directory: RunDirectory,
    interruption: Interruption,
    allowed: Sequence[str],
    profile: Profile,
) -> int:
    # 1. A run that came to its end is left as it is.
    directory.verify(*directory.initial_files, warn=warn)
    if (before := directory.read_summary(warn)) is not None:
        _, changes = require_same(experiment, directory, allowed)
        warn_of_damage(directory, before["step"])
        say(f"{directory.path} is {before['status']} (update {before['step']}); nothing to do")
        if any(change.startswith("data.validation ") for change in changes):
            say(f"to measure it on another text: esnlm likelihood --run {directory.path} --store STORE")
        return 0

    # 2. Begin, or resume. What a run wrote before it failed on bad input is taken back.
    chosen = {name: find_tracker(name) for name in experiment.tracking}
    with directory.begin():
        experiment, changes = resolve(experiment, directory, allowed)
        corpus = open_corpus(experiment.data, experiment.seed, directory, experiment.model.longest)
        profile.require_updates(count_updates(experiment.training, len(corpus.train)))
        model, state = loop.open_training(experiment, corpus, directory)
        if not directory.manifest_file.exists():
            frozen_sha256 = checkpoint.metadata(directory.frozen).get("sha256")
            directory.manifest.add(*directory.initial_files, frozen_sha256=frozen_sha256)
    note_changes(state, changes)
    profile.warn_if_done(state.step)
    with (
        Metrics(directory.metrics, state.step, state.metrics_sha256) as metrics,
        Trackers(chosen, directory, config.as_dict(experiment), state.step) as trackers,
    ):
        metrics.listeners.append(trackers.log)

        # 3. Train. From here on there is something to save when the process is asked to stop.
        with interruption.awaited(), profile:
            validation = loop.train(experiment, corpus, model, state, metrics, directory, interruption, profile)
        if interruption:
            write_json(directory.summary, {"status": "interrupted", "step": state.step})
            tell(f"stopped at update {state.step} and saved; the same command resumes")
            return INTERRUPTED

        # 4. Show the results. The summary is written last: a run that was killed before resumes here.
        summary = summarize(experiment, corpus, model, state, validation)
        summary["references"] = references(experiment.data, corpus)
        show_results(directory, corpus, summary)
        write_json(directory.summary, summary)
        directory.manifest.add(directory.metrics, directory.summary)
        trackers.summary(summary)
    return 0
