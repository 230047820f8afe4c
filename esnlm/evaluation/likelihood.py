"""Measures the likelihood of a text and converts it to the usual units.

A sentence is BOS, its tokens and EOS. BOS is only a condition: it is not predicted, and no unit
counts it. EOS is predicted like every token, so all figures but `nll_without_eos` include its nats.
It counts as no word and no bytes.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from esnlm.data.store import TokenStore
from esnlm.evaluation import scoring
from esnlm.features.batching import group_by_tokens
from esnlm.features.stream import SentenceFeatures
from esnlm.machine.compute import ResolvedCompute
from esnlm.models.ngrams import NgramModel

BLOCK_TOKENS = 1 << 20  # scored at a time by an n-gram model; bounds the memory for long texts


@dataclass(frozen=True)
class Likelihood:
    """The likelihood of a text under a model."""

    nats: float  # the sum of -log p over the predicted tokens, EOS included
    eos_nats: float  # the part of `nats` from the EOS of all sentences
    sentences: int
    tokens: int  # predicted tokens: all after BOS, EOS included
    bytes: int  # of the sentences' text in UTF-8, without BOS, EOS and separators of sentences
    words: int  # pieces of the sentences' text between white space, as str.split returns them

    @property
    def nll(self) -> float:
        """The mean of -log p, in nats per predicted token."""
        return _ratio(self.nats, self.tokens)

    @property
    def nll_without_eos(self) -> float:
        """The mean of -log p over the predicted tokens except EOS, in nats."""
        return _ratio(self.nats - self.eos_nats, self.tokens - self.sentences)

    @property
    def bits_per_byte(self) -> float:
        """All nats, EOS included, in bits per byte. Comparable across vocabularies."""
        return _ratio(self.nats / math.log(2), self.bytes)

    @property
    def nats_per_word(self) -> float:
        """All nats, EOS included, per word. Comparable across vocabularies."""
        return _ratio(self.nats, self.words)

    @property
    def perplexity(self) -> float:
        """exp(NLL), EOS included."""
        return perplexity(self.nll)


def perplexity(nll: float) -> float:
    """Returns exp of an NLL in nats per token; inf if it is too large for a float."""
    with np.errstate(over="ignore"):
        return float(np.exp(np.float64(nll)))


def of_model(
    stream: SentenceFeatures,
    readout: dict,
    text: TokenStore,
    compute: ResolvedCompute,
    on_progress: Callable[[float, int], bool | None] = lambda nats, tokens: None,
    by_document: bool = False,
) -> Likelihood | None:
    """Measures a model on a text, one window of features at a time.

    Args:
        on_progress: called after each window with the nats and tokens so far. If it returns True,
            measuring stops and the result is None.
        by_document: carry the state over the sentences of a document.
    """
    nats, eos_nats, tokens = 0.0, 0.0, 0
    for window in scoring.text_windows(stream, text, compute.window_tokens, by_document):
        log_probs = scoring.window_log_probs(window, readout, compute)
        nats -= float(log_probs.sum(dtype=np.float64))
        eos_nats -= float(log_probs[window.is_last].sum(dtype=np.float64))
        tokens += len(log_probs)
        del window
        if on_progress(nats, tokens):
            return None
    return _likelihood(text, nats, eos_nats)


def of_log_probs(text: TokenStore, log_probs: np.ndarray) -> Likelihood:
    """Returns the likelihood of a text by log p of its predicted tokens in order, (P,) in nats."""
    of_eos = log_probs[np.cumsum(text.lengths - 1) - 1]
    nats, eos_nats = (-float(part.sum(dtype=np.float64)) for part in (log_probs, of_eos))
    return _likelihood(text, nats, eos_nats)


def of_ngrams(model: NgramModel, text: TokenStore) -> Likelihood:
    """Measures an n-gram model on a text, one block of sentences at a time."""
    nats, eos_nats = 0.0, 0.0
    for block in group_by_tokens(text.lengths, BLOCK_TOKENS):
        bounds = np.asarray(text.offsets[block.start : block.stop + 1])
        ids = np.asarray(text.tokens[bounds[0] : bounds[-1]]).astype(np.int64)
        begins = np.zeros(len(ids), bool)
        begins[bounds[:-1] - bounds[0]] = True
        log_p = model.log_probs(ids, begins)
        nats -= float(log_p[~begins].sum())
        eos_nats -= float(log_p[bounds[1:] - bounds[0] - 1].sum())
    return _likelihood(text, nats, eos_nats)


def _likelihood(text: TokenStore, nats: float, eos_nats: float) -> Likelihood:
    words, size = (int(counts.sum(dtype=np.int64)) for counts in (text.words, text.bytes))
    return Likelihood(nats, eos_nats, len(text), int(text.offsets[-1]) - len(text), size, words)


def _ratio(total: float, count: int) -> float:
    return total / count if count else math.nan
