"""Trains a model, from a configuration to a finished run directory."""

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from esnlm.base import processes
from esnlm.base.console import debug, info, notice, warn
from esnlm.base.errors import InputError
from esnlm.base.files import write_json
from esnlm.base.remote import Upload, is_url
from esnlm.data.corpus import Corpus, open_corpus
from esnlm.data.sources import CorpusSize
from esnlm.machine import mesh
from esnlm.machine.compute import in_float32
from esnlm.machine.host import share_one_heap
from esnlm.models.devices import find_machine, placement_of
from esnlm.runs import checkpoint
from esnlm.runs.directory import RunDirectory
from esnlm.runs.trackers import Metrics, Trackers, find_tracker
from esnlm.training.config import Experiment, as_dict, flatten
from esnlm.training.interruption import Interruption, Profile, interruptible
from esnlm.training.plan import check_memory, check_validation, trainer_of
from esnlm.training.settings import decide
from esnlm.training.state import TrainState, copy_parent, open_model
from esnlm.training.summary import describe_device, summarize
from esnlm.training.trainer import Monitor, Session, Trainer

# bytes: heaps of threads other than the main one return larger blocks to the system
LARGE = 64 << 20
INTERRUPTED = processes.STOPPED  # exit status of a stopped run, which can be resumed

Listener = Callable[[dict[str, Any]], Any]
ShowResults = Callable[[RunDirectory, Corpus, dict[str, Any]], Any]


@in_float32
def train_run(
    experiment: Experiment,
    allowed: Sequence[str] = (),
    *,
    show_results: ShowResults | None = None,
    traced: range | None = None,
    listeners: Sequence[Listener] = (),
    ends_process: bool = True,
    upload: str | None = None,
) -> int:
    """Runs or resumes an experiment in its run directory.

    Args:
        experiment: the configuration, which names the run directory.
        allowed: settings that may differ from those of the existing run (training/settings.py).
        show_results: called with a finished run before its summary is written, so that a run which
            is killed in this call resumes here. None: print nothing.
        traced: the updates to profile, counted from 1; profiling does not change the result.
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
    arguments = flatten(as_dict(experiment)) | {"--allow-change": allowed, "--profile": traced}
    processes.check_same({name: str(value) for name, value in arguments.items()})
    if is_url(experiment.run):
        raise InputError(
            f"run is {experiment.run}: name a folder on this machine, and copy it with --upload URL"
        )
    folder = Path(experiment.run)
    uploads = None if upload is None or not processes.is_rank0() else Upload(folder, upload)
    directory = RunDirectory(folder, uploads)
    try:
        with interruptible(ends_process) as interruption, directory.locked():
            opened = _open(experiment, directory, allowed)
            is_finished = opened is None or _train(
                *opened,
                interruption=interruption,
                profile=Profile(traced, directory.profile),
                listeners=listeners,
                show_results=show_results,
            )
    except KeyboardInterrupt:  # before there was anything to save
        notice("stopped; the same command resumes")
        return INTERRUPTED
    if uploads is not None:
        uploads(last=True)
    return 0 if is_finished else INTERRUPTED


def has_large_arrays(experiment: Experiment, vocab_size: int) -> bool:
    """Returns whether updates allocate arrays above LARGE bytes, or differentiate through time."""
    logits_bytes = 4 * experiment.compute.chunk_tokens * vocab_size
    return not experiment.model.precomputed_width or logits_bytes > LARGE


def _open(
    experiment: Experiment, directory: RunDirectory, allowed: Sequence[str]
) -> tuple[Session, Trainer, TrainState] | None:
    """Begins or resumes a run: decides everything that stays, and restores the state.

    Returns None if the run is finished, which it leaves unchanged. Process 0 begins and writes, and
    the others resume from its files.
    """
    machine = find_machine(experiment.model, experiment.compute)
    summary = None
    if processes.is_rank0():
        directory.verify(*directory.initial_files, warn=warn)
        summary = directory.read_summary(warn)
    is_finished = processes.broadcast(summary is not None)
    with directory.begin():
        with processes.rank0_first():
            settings, changes = decide(experiment, machine, directory, allowed)
            if is_finished:
                if summary is not None:
                    _show_finished(directory, summary, changes)
                return None
            corpus = open_corpus(settings.data, settings.seed, directory, settings.model.max_length)
            copy_parent(settings.parent, settings.model, corpus, directory)
        text, vocab_size = corpus.train, corpus.tokenizer.vocab_size
        size = CorpusSize(len(text), len(text.tokens) - len(text), vocab_size)
        check_validation(settings.training, corpus)
        trainer = trainer_of(settings, size)
        check_memory(settings, trainer.plan(machine), machine, vocab_size)
        with processes.rank0_first():
            model = open_model(settings.model, vocab_size, settings.seed, directory, text)
        if settings.parent.run is not None:
            initial, _ = checkpoint.restore(directory.initial)
            model = model.with_params(jax.tree.map(jnp.asarray, initial["params"]))
        placement = placement_of(settings.model, machine, vocab_size)
        session = Session(settings, machine, placement, directory, corpus, model)
        state = trainer.open(session)
        processes.barrier()
        if processes.is_rank0() and not directory.manifest_file.exists():
            frozen_sha256 = checkpoint.metadata(directory.frozen).get("sha256")
            directory.manifest.add(*directory.initial_files, frozen_sha256=frozen_sha256)
    state.note_changes(changes)
    state.note_device(describe_device())
    return session, trainer, state


def _train(
    session: Session,
    trainer: Trainer,
    state: TrainState,
    *,
    interruption: Interruption,
    profile: Profile,
    listeners: Sequence[Listener],
    show_results: ShowResults | None,
) -> bool:
    """Trains an opened run to its end or to an interruption. Returns whether it is finished."""
    directory, is_rank0 = session.directory, processes.is_rank0()
    settings = as_dict(session.settings)
    trackers = {name: find_tracker(name) for name in session.settings.tracking if is_rank0}
    metrics = Metrics(directory.metrics if is_rank0 else None, state.step)
    with Trackers(trackers, directory, settings, state.step) as tracking:
        metrics.listeners.append(tracking.log)
        metrics.listeners.append(partial(_call_listeners, listeners, interruption))
        choices = [
            f"{name} {value}" for name, value in settings["compute"].items() if value is not None
        ]
        debug(f"computing on {jax.devices()[0].device_kind}: {', '.join(choices)}")
        monitor = Monitor(metrics, interruption, profile)
        # From here on, a process that is asked to stop has something to save.
        with interruption.awaited(), profile:
            is_finished = trainer.run(session, state, monitor)
        if not is_finished:
            if is_rank0:
                write_json(directory.summary, {"status": "interrupted", "step": state.step})
            notice(f"stopped at update {state.step} and saved; the same command resumes")
            return False
        if not is_rank0:
            return True

        # The summary is written last, so that a run killed before that resumes here.
        summary = summarize(session, state, monitor.validation, trainer.describe(state))
        if show_results is not None:
            with mesh.own_devices():
                show_results(directory, session.corpus, summary)
        write_json(directory.summary, summary)
        directory.manifest.add(directory.metrics, directory.summary)
        tracking.summary(summary)
    return True


def _call_listeners(
    listeners: Sequence[Listener], interruption: Interruption, values: dict[str, Any]
) -> None:
    """Calls each listener with a line of metrics, and stops the run if one returns True."""
    for listener in listeners:
        if listener(values) is True:
            interruption.stop()


def _show_finished(directory: RunDirectory, summary: dict[str, Any], changes: list[str]) -> None:
    """Prints that a run is finished, and warns of damaged files."""
    for line in directory.manifest.find_damage(directory.metrics):
        warn(f"{line}; restore it from a copy of the run")
    advice = f"delete {directory.summary.name} and give the same command"
    if (directory.manifest.read() or {}).get("frozen_sha256"):
        problem = checkpoint.verify(directory.frozen)
        if problem is not None:
            warn(f"{directory.frozen}: {problem}; to initialize it again, {advice}")
    step = summary["step"]
    if checkpoint.latest_step(directory.checkpoints, warn) != step:
        warn(
            f"{directory.checkpoints}: update {step} is missing or damaged; to train to it again,"
            f" {advice}"
        )
    info(f"{directory.path} is {summary['status']} (update {step}); nothing to do")
    if any(change.startswith("data.validation ") for change in changes):
        info(
            f"to measure it on another text: esnlm likelihood --run {directory.path} --store STORE"
        )
