"""Trains a model, from a configuration to a finished run directory."""

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from esnlm.base import processes
from esnlm.base.console import say, tell, warn
from esnlm.base.errors import InputError
from esnlm.base.files import write_json
from esnlm.base.remote import Upload, is_url
from esnlm.data.corpus import open_corpus
from esnlm.machine import mesh
from esnlm.machine.compute import in_float32
from esnlm.machine.host import share_one_heap
from esnlm.reports.run_results import references, show_results
from esnlm.runs import checkpoint
from esnlm.runs.directory import RunDirectory
from esnlm.runs.trackers import Metrics, Trackers, find_tracker
from esnlm.training import loop, parent
from esnlm.training.config import Experiment, as_dict, flatten
from esnlm.training.interruption import Interruption, Profile, Span, interruptible
from esnlm.training.settings import require_same, require_validation, resolve
from esnlm.training.state import note_changes, note_device, warn_of_damage
from esnlm.training.summary import describe_device, summarize

# bytes: heaps of threads other than the main one return larger blocks to the system
LARGE = 64 << 20
INTERRUPTED = processes.STOPPED  # exit status of a stopped run, which can be resumed

Listener = Callable[[dict[str, Any]], Any]


@in_float32
def train_run(
    experiment: Experiment,
    allowed: Sequence[str] = (),
    traced: Span | None = None,
    listeners: Sequence[Listener] = (),
    ends_process: bool = True,
    upload: str | None = None,
) -> int:
    """Runs or resumes an experiment in its run directory.

    Args:
        experiment: the configuration, which names the run directory.
        allowed: settings that may differ from those of the existing run (training/settings.py).
        traced: the updates to profile; profiling does not change the result.
        listeners: called with the values of each line of metrics. One that returns True stops the
            run as SIGTERM does.
        ends_process: whether the process exists for this run only, as in a command. Then a second
            SIGINT ends it at once, and the run may configure the process's memory.
        upload: a URL to which the run directory is copied after each checkpoint and at the end.

    Returns:
        The exit status: 0 if the run is done, also if it was done before; 75 if it was interrupted,
        and the same call resumes it.

    Raises:
        InputError: the data, the configuration or the run directory is not usable.
    """
    with contextlib.suppress(InputError):  # opening the data raises it again
        if ends_process and has_large_arrays(experiment, experiment.data.size().vocab_size):
            share_one_heap()
    settings = flatten(as_dict(experiment)) | {"--allow-change": allowed, "--profile": traced}
    processes.require_same({name: str(value) for name, value in settings.items()})

    if is_url(experiment.run):
        raise InputError(
            f"run is {experiment.run}: name a folder on this machine, and copy it with --upload URL"
        )
    folder = Path(experiment.run)
    uploads = None if upload is None or not processes.writes() else Upload(folder, upload)
    directory = RunDirectory(folder, uploads)
    try:
        with interruptible(ends_process) as interruption, directory.locked():
            profile = Profile(traced, directory.profile)
            status = _train_run(experiment, directory, interruption, allowed, profile, listeners)
    except KeyboardInterrupt:  # before there was anything to save
        tell("stopped; the same command resumes")
        return INTERRUPTED
    if uploads is not None:
        uploads(last=True)
    return status


def has_large_arrays(experiment: Experiment, vocab_size: int) -> bool:
    """Returns whether updates allocate arrays above LARGE bytes, such as logits, or differentiate
    through time."""
    return (
        not experiment.model.ahead_size or 4 * experiment.compute.chunk_tokens * vocab_size > LARGE
    )


def _train_run(
    asked: Experiment,
    directory: RunDirectory,
    interruption: Interruption,
    allowed: Sequence[str],
    profile: Profile,
    listeners: Sequence[Listener],
) -> int:
    # 1. Leave a finished run unchanged.
    if processes.agree(processes.writes() and _came_to_its_end(asked, directory, allowed)):
        return 0

    # 2. Begin or resume. If bad input stops the beginning, its files are removed. With several
    # processes, process 0 begins and writes, and the others resume from its files.
    chosen = {name: find_tracker(name) for name in asked.tracking}
    with directory.begin():
        with processes.in_turn():
            experiment, changes = resolve(asked, directory, allowed)
            corpus = open_corpus(
                experiment.data, experiment.seed, directory, experiment.model.longest
            )
            require_validation(experiment, corpus)
            parent.copy_arrays(experiment, corpus, directory)
        model, state = loop.open_training(experiment, corpus, directory)
        processes.meet()
        if processes.writes() and not directory.manifest_file.exists():
            frozen_sha256 = checkpoint.metadata(directory.frozen).get("sha256")
            directory.manifest.add(*directory.initial_files, frozen_sha256=frozen_sha256)
    note_changes(state, changes)
    note_device(state, describe_device())
    metrics = Metrics(directory.metrics if processes.writes() else None, state.step)
    with Trackers(
        chosen if processes.writes() else {}, directory, as_dict(experiment), state.step
    ) as trackers:
        metrics.listeners += [trackers.log, partial(_tell, listeners, interruption)]

        # 3. Train. From here on, a process that is asked to stop has something to save.
        with interruption.awaited(), profile:
            training = loop.Training(
                experiment, corpus, model, state, metrics, directory, interruption, profile
            )
            validation, ended = training.run()
        if not ended:
            if processes.writes():
                write_json(directory.summary, {"status": "interrupted", "step": state.step})
            tell(f"stopped at update {state.step} and saved; the same command resumes")
            return INTERRUPTED

        if not processes.writes():
            return 0

        # 4. Show the results. The summary is written last, so that a run killed before that resumes
        # here.
        summary = summarize(experiment, corpus, model.counts(), state, validation)
        summary["references"] = references(experiment.data, corpus)
        with mesh.own_devices():
            show_results(directory, corpus, summary)
        if summary.get("best_step") is not None:
            best = (
                f"best validation: {summary['best_val_nll']:.4f} nats per token at update"
                f" {summary['best_step']}"
            )
            say(f"{summary['ended_because']}; {best} (load it with --step best)")
        write_json(directory.summary, summary)
        directory.manifest.add(directory.metrics, directory.summary)
        trackers.summary(summary)
    return 0


def _came_to_its_end(
    experiment: Experiment, directory: RunDirectory, allowed: Sequence[str]
) -> bool:
    """Returns whether the run is finished, and prints that."""
    directory.verify(*directory.initial_files, warn=warn)
    if (before := directory.read_summary(warn)) is None:
        return False
    _, changes = require_same(experiment, directory, allowed)
    warn_of_damage(directory, before["step"])
    say(f"{directory.path} is {before['status']} (update {before['step']}); nothing to do")
    if any(change.startswith("data.validation ") for change in changes):
        say(f"to measure it on another text: esnlm likelihood --run {directory.path} --store STORE")
    return True


def _tell(
    listeners: Sequence[Listener], interruption: Interruption, values: dict[str, Any]
) -> None:
    """Calls each listener with the values of a line of metrics, and stops the run if one returns
    True."""
    for listener in listeners:
        if listener(values) is True:
            interruption.stop()
