"""Trains a model, from a configuration to a finished run directory."""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax

from esnlm.base import processes
from esnlm.base.console import debug, info, notice, spinner, warn
from esnlm.base.errors import InputError
from esnlm.base.files import write_json
from esnlm.base.remote import Upload, is_url
from esnlm.base.versions import versions
from esnlm.data.corpus import Corpus, fingerprints, open_corpus
from esnlm.data.sources import CorpusSize, DataSource
from esnlm.evaluation.likelihood import Likelihood, of_ngrams
from esnlm.machine import mesh
from esnlm.machine.compute import describe_device, in_float32
from esnlm.machine.host import share_one_heap
from esnlm.models.devices import Machine, find_machine
from esnlm.models.ngrams import NgramModel
from esnlm.runs import checkpoint
from esnlm.runs.directory import RunDirectory
from esnlm.runs.trackers import Metrics, Trackers, find_tracker
from esnlm.training.config import Experiment, as_dict, flatten, hash_settings
from esnlm.training.interruption import Interruption, Profile, interruptible
from esnlm.training.plan import check_memory, check_validation, trainer_of
from esnlm.training.settings import decide
from esnlm.training.state import TrainState, open_model
from esnlm.training.trainer import Monitor, Session, Trainer

# glibc returns larger blocks of worker threads to the system at every use (machine/host.py).
LARGE_BLOCK_BYTES = 64 << 20

Listener = Callable[[dict[str, Any]], bool | None]
ShowResults = Callable[[RunDirectory, Corpus, dict[str, Any]], Any]


@in_float32
def train_run(
    experiment: Experiment,
    allow_change: Sequence[str] = (),
    *,
    show_results: ShowResults | None = None,
    traced: range | None = None,
    listeners: Sequence[Listener] = (),
    owns_process: bool = True,
    upload: str | None = None,
) -> int:
    """Runs or resumes an experiment in its run directory.

    Args:
        experiment: the configuration, which names the run directory.
        allow_change: settings that may differ from those of the existing run, see settings.py.
        show_results: called with a finished run before its summary is written, so that a run which
            is killed in this call resumes here. None: print nothing.
        traced: the updates to profile, counted from 1; profiling does not change the result.
        listeners: called with the values of each line of metrics. One that returns True stops the
            run as SIGTERM does.
        owns_process: whether the process exists for this run only, as in a command. Then a second
            SIGINT ends it at once, and the run may configure the process's memory.
        upload: a URL to which the run directory is copied after each checkpoint and at the end.

    Returns:
        The exit status: 0 if the run is done, also if it was done before; 75 if it was interrupted,
        and the same call resumes it.

    Raises:
        InputError: the data, the configuration or the run directory is not usable.
    """
    # Memory is configured before JAX starts its threads.
    with contextlib.suppress(InputError):  # opening the data raises it again
        if owns_process and needs_one_heap(experiment, experiment.data.size().vocab_size):
            share_one_heap()
    # Every process must have the same arguments.
    arguments = flatten(as_dict(experiment)) | {"--allow-change": allow_change, "--profile": traced}
    processes.check_same({name: str(value) for name, value in arguments.items()})
    if is_url(experiment.run):
        raise InputError(
            f"run is {experiment.run}: name a folder on this machine, and copy it with --upload URL"
        )
    folder = experiment.folder
    uploader = None if upload is None or not processes.is_rank0() else Upload(folder, upload)
    directory = RunDirectory(folder, uploader)
    try:
        with interruptible(owns_process) as interruption, directory.locked():
            machine = find_machine(experiment.model, experiment.compute)
            is_finished = _report_if_finished(experiment, machine, directory, allow_change)
            if not is_finished:
                session, trainer, state = _open(experiment, machine, directory, allow_change)
                is_finished = _train(
                    session,
                    trainer,
                    state,
                    interruption=interruption,
                    profile=Profile(traced, directory.profile),
                    listeners=listeners,
                    show_results=show_results,
                )
    except KeyboardInterrupt:  # before there was anything to save
        notice("stopped; the same command resumes")
        return processes.STOPPED
    if uploader is not None:
        uploader(last=True)
    return 0 if is_finished else processes.STOPPED


def needs_one_heap(experiment: Experiment, vocab_size: int) -> bool:
    """Returns whether updates allocate large blocks, or differentiate through time."""
    logits_bytes = 4 * experiment.compute.chunk_tokens * vocab_size
    return not experiment.model.precomputed_width or logits_bytes > LARGE_BLOCK_BYTES


def _report_if_finished(
    experiment: Experiment, machine: Machine, directory: RunDirectory, allow_change: Sequence[str]
) -> bool:
    """Returns whether the run is finished, and then reports on it and leaves it unchanged."""
    summary = None  # also of an interrupted run
    if processes.is_rank0():
        directory.verify(*directory.initial_files, warn=warn)
        summary = directory.read_summary(warn)
    if not processes.broadcast(summary is not None):
        return False
    with processes.rank0_first():
        _, changes = decide(experiment, machine, directory, allow_change)
    if summary is not None:
        _show_finished(directory, summary, changes)
    return True


def _open(
    experiment: Experiment, machine: Machine, directory: RunDirectory, allow_change: Sequence[str]
) -> tuple[Session, Trainer, TrainState]:
    """Begins a run or restores it from its files.

    Process 0 writes the files; the others read them afterwards.
    """
    with directory.begin():
        with processes.rank0_first():
            settings, changes = decide(experiment, machine, directory, allow_change)
            corpus = open_corpus(settings.data, settings.seed, directory, settings.model.max_length)
        vocab_size = corpus.tokenizer.vocab_size
        check_validation(settings.training, corpus)
        trainer = trainer_of(settings, CorpusSize.of(corpus.train, vocab_size))
        check_memory(settings, trainer.plan(machine), machine, vocab_size)
        with processes.rank0_first():
            model = open_model(settings, corpus, directory)
        session = Session(settings, machine, directory, corpus, model)
        state = trainer.open(session)
        # A manifest marks a begun run: process 0 writes it once no process opens the run any more.
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
        summary = _summarize(session, state, monitor.validation, trainer.describe(state))
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


# ---- summary.json: the result of a run and its inputs ----


def has_diverged(train_nll: float, validation_nll: float | None, vocab_size: int) -> bool:
    """Returns whether a train or validation NLL is not finite, or above 10 ln V.

    Ueda et al. 2025b report the losses of diverged networks but give no rule for them: this one is
    [ours].
    """
    losses = [loss for loss in (train_nll, validation_nll) if loss is not None]
    return not all(math.isfinite(loss) and loss <= 10 * math.log(vocab_size) for loss in losses)


def _summarize(
    session: Session, state: TrainState, validation: Likelihood | None, training: dict[str, Any]
) -> dict[str, Any]:
    """Returns the values of summary.json; losses are in nats per token.

    `training` has the values that `Trainer.describe` adds or replaces.
    """
    settings, corpus, counts = session.settings, session.corpus, session.model.counts()
    # by gradients: the plain mean of the last epoch's batch losses (Ueda et al. 2025a)
    train_nll = state.train_nll
    val_nll = validation.nll if validation else None
    diverged = has_diverged(train_nll, val_nll, corpus.tokenizer.vocab_size)
    device = describe_device() | {"mesh": mesh.describe(session.machine.mesh)}
    summary: dict[str, Any] = {
        "status": "diverged" if diverged else "finished",
        "step": state.step,
        "epochs": settings.training.epochs,
        "tokens": state.tokens,
        "words": state.words,
        "skipped_updates": state.skipped,
        "train_nll": train_nll,
        "val_nll": val_nll,
        "val_nll_without_eos": validation.nll_without_eos if validation else None,
        "val_bits_per_byte": validation.bits_per_byte if validation else None,
        "val_nats_per_word": validation.nats_per_word if validation else None,
        "perplexity": validation.perplexity if validation else None,
        "trainable_params": counts.trainable,
        "total_params": counts.total,
        "total_entries": counts.entries,
        "tokens_per_second": state.tokens / state.seconds if state.seconds else None,
        "peak_memory_bytes": state.peak_memory_bytes,
        "seconds": state.seconds,
        "precision": settings.compute.precision,
        "seed": settings.seed,
        "changes": state.changes,
        "versions": versions(),
        "device": device,
        "data_sha256": fingerprints(corpus),
        "config_sha256": hash_settings(settings, with_seed=True),
        "references": _references(settings.data, corpus),
    }
    if len(state.devices) > 1:
        summary["earlier_devices"] = state.devices[:-1]
    if settings.parent.run is not None:
        summary["parent"] = dataclasses.asdict(settings.parent)
    return summary | training


@spinner("counting the training text for the reference models")
def _references(source: DataSource, corpus: Corpus) -> dict[str, float]:
    """Returns reference values of the validation NLL in nats per token, by name.

    They come from a unigram and a bigram model of the training text, and from the data source.
    """
    store, vocab_size = corpus.validation, corpus.tokenizer.vocab_size
    if store is None:
        return {}
    bigram = NgramModel.fit(corpus.train, vocab_size, order=2)
    return {
        "unigram model": of_ngrams(bigram.lower(1), store).nll,
        "bigram model": of_ngrams(bigram, store).nll,
        **source.reference_nlls(store, corpus.tokenizer),
    }
