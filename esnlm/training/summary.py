"""summary.json: the result of a run and its inputs."""

import dataclasses
import math
import platform
from typing import Any

import jax

from esnlm.base import processes
from esnlm.base.versions import version
from esnlm.data.corpus import Corpus, fingerprints
from esnlm.data.store import TokenStore
from esnlm.evaluation.likelihood import Likelihood
from esnlm.machine import mesh as meshes
from esnlm.machine.host import available_cores
from esnlm.models.base import Counts
from esnlm.models.devices import mesh_of
from esnlm.training.config import Experiment, ResolvedExperiment, TrainingConfig, hash_settings
from esnlm.training.plan import updates_per_epoch
from esnlm.training.state import State


def has_diverged(train_nll: float, validation_nll: float | None, vocab_size: int) -> bool:
    """Returns whether a train or validation NLL is not finite, or above 10 ln V.

    Ueda et al. 2025b report the losses of diverged networks but give no rule for them: this one is
    [ours].
    """
    losses = [loss for loss in (train_nll, validation_nll) if loss is not None]
    return not all(math.isfinite(loss) and loss <= 10 * math.log(vocab_size) for loss in losses)


def summarize(
    experiment: ResolvedExperiment,
    corpus: Corpus,
    counts: Counts,
    state: State,
    validation: Likelihood | None,
) -> dict[str, Any]:
    """Returns the values of summary.json; losses are in nats per token."""
    training, vocab_size = experiment.training, corpus.tokenizer.vocab_size
    # by gradients: the plain mean of the last epoch's batch losses (Ueda et al. 2025a)
    train_nll = state.train_nll
    val_nll = validation.nll if validation else None
    stopped = (
        isinstance(training, TrainingConfig)
        and training.on_nonfinite == "stop"
        and state.skipped > 0
    )
    diverged = stopped or has_diverged(train_nll, val_nll, vocab_size)
    epochs, within = epochs_made(experiment, corpus.train, state.step)
    found: dict[str, Any] = {
        "status": "diverged" if diverged else "finished",
        "step": state.step,
        "epochs": epochs,
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
        "precision": experiment.compute.precision,
        "seed": experiment.seed,
        "changes": state.changes,
        "versions": versions(),
        "device": describe_device()
        | {"mesh": meshes.describe(mesh_of(experiment.model, experiment.compute))},
        "data_sha256": fingerprints(corpus),
        "config_sha256": hash_settings(experiment, with_seed=True),
    }
    # Values of some runs only:
    if within is not None:
        found["train_nll_of"] = within
    if len(state.devices) > 1:
        found["earlier_devices"] = state.devices[:-1]
    if state.regression:
        found["regression"] = state.regression
    if isinstance(training, TrainingConfig) and training.stop_after is not None:
        found["ended_because"] = ended_because(training, state)
        found |= {"best_step": state.best_step, "best_val_nll": state.best_val_nll}
    if isinstance(training, TrainingConfig) and training.ema is not None:
        found["evaluated"] = f"averaged weights (training.ema {training.ema})"
    if experiment.parent.run is not None:
        found["parent"] = dataclasses.asdict(experiment.parent)
    return found


def epochs_made(
    experiment: Experiment, text: TokenStore, step: int
) -> tuple[int | float, str | None]:
    """Returns the epochs of a run that ended at update `step`, and the basis of its train NLL if it
    is cut short."""
    if not isinstance(experiment.training, TrainingConfig):
        return experiment.training.epochs, None
    length = updates_per_epoch(experiment, len(text), len(text.tokens) - len(text))
    whole, more = divmod(step, length)
    if more == 0:
        return whole, None
    return math.floor(
        1000 * step / length
    ) / 1000, f"{more:,} of the {length:,} updates of an epoch"


def ended_because(training: TrainingConfig, state: State) -> str:
    """Returns the reason for the end of a training that may stop early."""
    if training.on_nonfinite == "stop" and state.skipped:
        return "a loss or gradient was not finite"
    if training.stop_after is not None and state.validations_since_best >= training.stop_after:
        return (
            f"{state.validations_since_best} validations without a new best (training.stop_after)"
        )
    return "all epochs are done"


def versions() -> dict[str, str]:
    """Returns the versions of Python and of packages that may affect results."""
    packages = (
        "esnlm",
        "jax",
        "jaxlib",
        "flax",
        "optax",
        "orbax-checkpoint",
        "numpy",
        "scipy",
        "tiktoken",
    )
    return {"python": platform.python_version()} | {name: version(name) for name in packages}


def describe_device() -> dict[str, str | int]:
    """Returns the device of the computation; the cores are those that JAX may use."""
    device = jax.devices()[0]
    here = {"platform": device.platform, "kind": device.device_kind, "count": jax.device_count()}
    here["cores"] = available_cores()
    return here if processes.count() == 1 else here | {"processes": processes.count()}
