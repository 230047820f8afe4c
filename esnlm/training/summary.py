"""summary.json: the result of a run and its inputs."""

import dataclasses
import math
from typing import Any

from esnlm.base.console import spinner
from esnlm.base.versions import versions
from esnlm.data.corpus import Corpus, fingerprints
from esnlm.data.sources import DataSource
from esnlm.evaluation.likelihood import Likelihood, of_ngrams
from esnlm.machine import mesh as meshes
from esnlm.machine.compute import describe_device
from esnlm.models.ngrams import NgramModel
from esnlm.training.config import hash_settings
from esnlm.training.state import TrainState
from esnlm.training.trainer import Session


def has_diverged(train_nll: float, validation_nll: float | None, vocab_size: int) -> bool:
    """Returns whether a train or validation NLL is not finite, or above 10 ln V.

    Ueda et al. 2025b report the losses of diverged networks but give no rule for them: this one is
    [ours].
    """
    losses = [loss for loss in (train_nll, validation_nll) if loss is not None]
    return not all(math.isfinite(loss) and loss <= 10 * math.log(vocab_size) for loss in losses)


def summarize(
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
    mesh = meshes.describe(session.machine.mesh)
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
        "device": describe_device() | {"mesh": mesh},
        "data_sha256": fingerprints(corpus),
        "config_sha256": hash_settings(settings, with_seed=True),
        "references": references(settings.data, corpus),
    }
    if len(state.devices) > 1:
        summary["earlier_devices"] = state.devices[:-1]
    if settings.parent.run is not None:
        summary["parent"] = dataclasses.asdict(settings.parent)
    return summary | training


@spinner("counting the training text for the reference models")
def references(source: DataSource, corpus: Corpus) -> dict[str, float]:
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
