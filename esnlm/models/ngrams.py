"""Unigram and bigram models: the baselines beside every trained model.

They are fitted on sentences of token ids that begin with BOS and end with EOS; BOS is context only, every token after
it is predicted. Only the pairs that occur are stored, so a vocabulary of 50,257 is no obstacle.

    bigram = BigramModel.fit(train, vocab_size)
    bigram.token_log_probs(sentence)        # (T-1,) nats
    bigram.nll(validation)                  # nats per predicted token
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np

from esnlm.errors import InputError

BLOCK_TOKENS = 1 << 22  # read at a time: bounds the memory that a large corpus takes


class NgramModel(ABC):
    """What a unigram and a bigram model have in common."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """V."""

    @abstractmethod
    def log_p_after(self, previous: np.ndarray, predicted: np.ndarray) -> np.ndarray:
        """Returns ln p of tokens given the token before each, (n,) nats."""

    def token_log_probs(self, ids: np.ndarray) -> np.ndarray:
        """Returns ln p of each token after BOS, (T-1,) float64 in nats, for (T,) ids."""
        ids = _checked(np.asarray(ids), self.vocab_size)
        return self.log_p_after(ids[:-1], ids[1:])

    def nll(self, sequences: Iterable[np.ndarray]) -> float:
        """Returns the total negative log-likelihood / number of predicted tokens, in nats."""
        total, tokens = 0.0, 0
        for previous, predicted in _bigrams(sequences, self.vocab_size):
            total -= self.log_p_after(previous, predicted).sum()
            tokens += len(predicted)
        if not tokens:
            raise InputError("n-gram model: no predicted token to score: give sentences that hold at least BOS and EOS")
        return float(total / tokens)


@dataclass(frozen=True)
class UnigramModel(NgramModel):
    """Predicts by frequency, with add-one smoothing over the n predicted tokens: p(w) = (c(w) + 1) / (n + V)."""

    log_p: np.ndarray  # (V,) float64, nats

    @classmethod
    def fit(cls, sequences: Iterable[np.ndarray], vocab_size: int) -> Self:
        """Fits the model on integer arrays that include BOS and EOS (a token store, a list), read once.

        Raises InputError for an id outside 0 .. vocab_size - 1, and where there is no predicted token.
        """
        counts = np.zeros(vocab_size, np.int64)
        for _, predicted in _bigrams(sequences, vocab_size):
            counts += np.bincount(predicted, minlength=vocab_size)
        return cls.from_counts(counts)

    @classmethod
    def from_counts(cls, counts: np.ndarray) -> Self:
        """Returns the model of (V,) counts of how often each token is predicted."""
        return cls(_add_one(counts))

    @property
    def vocab_size(self) -> int:
        return len(self.log_p)

    def log_p_after(self, previous: np.ndarray, predicted: np.ndarray) -> np.ndarray:
        return self.log_p[predicted]


@dataclass(frozen=True)
class BigramModel(NgramModel):
    """Predicts from the token before, with Witten-Bell smoothing (Witten and Bell 1991, method C).

    It is interpolated with the add-one unigram model p1:

        p(w | v) = (c(v, w) + t(v) p1(w)) / (c(v) + t(v)),      t(v) = how many different tokens followed v

    and p(w | v) = p1(w) for a v that was never a context.
    """

    pairs: np.ndarray  # (P,) int64, the pairs seen, as v V + w, ascending
    log_p: np.ndarray  # (P,) float64, their ln p(w | v)
    log_backoff: np.ndarray  # (V,) float64, ln of the weight of p1 after v
    log_unigram: np.ndarray  # (V,) float64, ln p1

    @classmethod
    def fit(cls, sequences: Iterable[np.ndarray], vocab_size: int) -> Self:
        """Fits the model on integer arrays that include BOS and EOS (a token store, a list), read once.

        Raises InputError for an id outside 0 .. vocab_size - 1, and where there is no predicted token.
        """
        codes, counts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for previous, predicted in _bigrams(sequences, vocab_size):
            block_codes, block_counts = np.unique(previous * vocab_size + predicted, return_counts=True)
            codes.append(block_codes)
            counts.append(block_counts)
        pairs, place = np.unique(np.concatenate(codes), return_inverse=True)
        c_vw = np.bincount(place, weights=np.concatenate(counts))  # (P,) float64, exact below 2^53

        v, w = np.divmod(pairs, vocab_size)
        c_v = np.bincount(v, weights=c_vw, minlength=vocab_size)
        t_v = np.bincount(v, minlength=vocab_size)
        log_unigram = _add_one(np.bincount(w, weights=c_vw, minlength=vocab_size))
        p = (c_vw + t_v[v] * np.exp(log_unigram[w])) / (c_v + t_v)[v]
        backoff = np.divide(t_v, c_v + t_v, out=np.ones(vocab_size), where=t_v > 0)
        return cls(pairs, np.log(p), np.log(backoff), log_unigram)

    @property
    def vocab_size(self) -> int:
        return len(self.log_unigram)

    def log_p_after(self, previous: np.ndarray, predicted: np.ndarray) -> np.ndarray:
        codes = previous * self.vocab_size + predicted
        place = np.searchsorted(self.pairs, codes).clip(max=len(self.pairs) - 1)
        unseen = self.log_backoff[previous] + self.log_unigram[predicted]
        return np.where(self.pairs[place] == codes, self.log_p[place], unseen)


def _add_one(counts: np.ndarray) -> np.ndarray:
    if not counts.any():
        raise InputError("n-gram model: no predicted token to count: give sentences that hold at least BOS and EOS")
    return np.log((counts + 1) / (counts.sum() + len(counts)))


def _bigrams(sequences: Iterable[np.ndarray], vocab_size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields blocks of (previous, predicted), int64. No pair spans two sequences."""
    for block in _blocks(sequences):
        ids = _checked(np.concatenate(block), vocab_size)
        last = np.cumsum([len(sequence) for sequence in block]) - 1
        inside = np.ones(len(ids), bool)
        inside[last] = False
        previous = np.flatnonzero(inside)
        yield ids[previous], ids[previous + 1]


def _blocks(sequences: Iterable[np.ndarray]) -> Iterator[list[np.ndarray]]:
    block, tokens = [], 0
    for sequence in sequences:
        if len(sequence):
            block.append(sequence)
            tokens += len(sequence)
        if tokens >= BLOCK_TOKENS:
            yield block
            block, tokens = [], 0
    if block:
        yield block


def _checked(ids: np.ndarray, vocab_size: int) -> np.ndarray:
    if ids.size and not (ids.min() >= 0 and ids.max() < vocab_size):
        wrong = ids.max() if ids.min() >= 0 else ids.min()
        raise InputError(f"n-gram model: token id {wrong} is outside the vocabulary of {vocab_size}")
    return ids.astype(np.int64)
