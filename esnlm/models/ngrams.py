"""N-gram models, the baselines for every trained model.

They are fitted to sentences of token ids that begin with BOS and end with EOS. BOS is context only;
every token after it is predicted, and no context extends beyond it.

    bigram = WittenBellModel.fit(train, vocab_size, order=2)
    bigram.token_log_probs(sentence)        # (T-1,) nats
    bigram.nll(validation)                  # nats per predicted token
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from esnlm.base.errors import InputError
from esnlm.features.batching import read_by_tokens

BLOCK_TOKENS = 1 << 22  # tokens read at a time, to bound the memory that a large corpus takes


class NgramModel(ABC):
    """The interface of an n-gram model."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """V, the number of token ids."""

    @abstractmethod
    def log_probs(self, ids: np.ndarray, begins: np.ndarray) -> np.ndarray:
        """Returns ln p of tokens, (T,) float64 in nats. Ignore the value of the first token of a
        sequence."""

    def token_log_probs(self, ids: np.ndarray) -> np.ndarray:
        """Returns ln p of each token after BOS, (T-1,) float64 in nats, for (T,) ids."""
        return self.token_log_probs_of([ids])[0]

    def token_log_probs_of(self, sequences: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Returns ln p of all but the first token of each sequence, (T-1,) float64 in nats; empty
        if T < 2."""
        found = []
        for block in _blocks(sequences):
            ids, begins = _joined(block, self.vocab_size)
            found += np.split(self.log_probs(ids, begins), np.flatnonzero(begins)[1:])
        each = iter(found)
        return [next(each)[1:] if len(sequence) else np.empty(0) for sequence in sequences]

    def nll(self, sequences: Iterable[np.ndarray]) -> float:
        """Returns the mean negative log-likelihood per predicted token, in nats."""
        total, tokens = 0.0, 0
        for block in _blocks(sequences):
            ids, begins = _joined(block, self.vocab_size)
            total -= self.log_probs(ids, begins)[~begins].sum()
            tokens += int((~begins).sum())
        if not tokens:
            raise InputError(
                "n-gram model: no predicted token to score: give sentences that hold at least BOS"
                " and EOS"
            )
        return float(total / tokens)


@dataclass(frozen=True)
class UnigramModel(NgramModel):
    """Predicts by frequency, with add-one smoothing over the n predicted tokens: p(w) = (c(w) + 1)
    / (n + V)."""

    log_p: np.ndarray  # (V,) float64, nats

    @classmethod
    def fit(cls, sequences: Iterable[np.ndarray], vocab_size: int) -> Self:
        """Fits the model on integer arrays that include BOS and EOS (a token store, a list), read
        once.

        Raises InputError for an id outside 0 .. vocab_size - 1, or if there is no predicted token.
        """
        counts = np.zeros(vocab_size, np.int64)
        for block in _blocks(sequences):
            ids, begins = _joined(block, vocab_size)
            counts += np.bincount(ids[~begins], minlength=vocab_size)
        return cls.from_counts(counts)

    @classmethod
    def from_counts(cls, counts: np.ndarray) -> Self:
        """Returns the model for the counts of each token as a predicted token, (V,)."""
        if not counts.any():
            raise InputError(
                "n-gram model: no predicted token to count: give sentences that hold at least BOS"
                " and EOS"
            )
        return cls(np.log((counts + 1) / (counts.sum() + len(counts))))

    @property
    def vocab_size(self) -> int:
        return len(self.log_p)

    def log_probs(self, ids: np.ndarray, begins: np.ndarray) -> np.ndarray:
        return self.log_p[ids]


class Grams(NamedTuple):
    """The P sequences of k tokens that occur, after Q contexts, numbered in ascending order of
    their codes.

    A context is a sequence of k - 1 tokens with a number q among such sequences; for k = 2 this is
    the token's id. The code of a context and the next token w is q V + w, which is unique.
    """

    codes: np.ndarray  # (P,) int64, ascending
    counts: np.ndarray  # (P,) float64, exact below 2^53
    total: np.ndarray  # (Q,) float64, number of tokens after each context
    types: np.ndarray  # (Q,) int64, number of distinct ones


@dataclass(frozen=True)
class WittenBellModel(NgramModel):
    """Predicts from the n - 1 tokens before, with Witten-Bell smoothing (Witten and Bell 1991,
    method C).

    Each order is interpolated with the next lower one, down to the add-one unigram model p_1. Let v
    be the k - 1 tokens before w, and v' all of them but the first:

        p_k(w | v) = (c(v w) + t(v) p_{k-1}(w | v')) / (c(v) + t(v)),      t(v) = number of distinct
        tokens after v

    and p_k(w | v) = p_{k-1}(w | v') for a v that was never a context. Near the beginning of a
    sentence v is shorter.
    """

    unigram: UnigramModel
    levels: tuple[Grams, ...]  # of the orders 2 .. n

    @classmethod
    def fit(cls, sequences: Iterable[np.ndarray], vocab_size: int, order: int) -> Self:
        """Fits the model on integer arrays that include BOS and EOS (a token store, a list), read
        `order` - 1 times.

        Raises:
            InputError: an id is outside 0 .. vocab_size - 1, there is no predicted token, or the
                order is below 2.
        """
        if order < 2:
            raise InputError(f"n-gram model: order {order}: give 2 (a bigram model) or more")
        again = list(sequences) if isinstance(sequences, Iterator) else sequences
        pairs = _count(again, vocab_size, ())
        # Every predicted token ends exactly one pair, so the pairs give the counts of the tokens,
        # too.
        tokens = np.bincount(pairs.codes % vocab_size, weights=pairs.counts, minlength=vocab_size)
        levels: tuple[Grams, ...] = (pairs,)
        unigram = UnigramModel.from_counts(tokens)
        while len(levels) < order - 1:
            levels = (*levels, _count(again, vocab_size, levels))
        return cls(unigram, levels)

    @property
    def order(self) -> int:
        """n, the length of the longest counted sequences."""
        return len(self.levels) + 1

    def lower(self, order: int) -> "WittenBellModel":
        """Returns the model of a lower order (2 or more) for the same text. It shares the counts of
        this one."""
        return WittenBellModel(self.unigram, self.levels[: order - 1])

    @property
    def vocab_size(self) -> int:
        return self.unigram.vocab_size

    def log_probs(self, ids: np.ndarray, begins: np.ndarray) -> np.ndarray:
        p, context = np.exp(self.unigram.log_p)[ids], ids  # (T,)
        for level in self.levels:
            if not len(level.codes):
                break  # The text has no sequence of this length.
            before = _before(context, begins)
            place = _numbers(level, before, ids, self.vocab_size)
            count = np.where(place >= 0, level.counts[place], 0.0)
            total, types = (
                np.where(before >= 0, column[before], 0) for column in (level.total, level.types)
            )
            p = np.divide(count + types * p, total + types, out=p, where=total > 0)
            context = place
        return np.log(p)


def _count(sequences: Iterable[np.ndarray], vocab_size: int, levels: Sequence[Grams]) -> Grams:
    """Counts the sequences one token longer than those of the last level."""
    codes, counts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for block in _blocks(sequences):
        ids, begins = _joined(block, vocab_size)
        context = ids
        for level in levels:
            context = _numbers(level, _before(context, begins), ids, vocab_size)
        before = _before(context, begins)
        whole = before >= 0
        block_codes, block_counts = np.unique(
            before[whole] * vocab_size + ids[whole], return_counts=True
        )
        codes.append(block_codes)
        counts.append(block_counts)
    found, place = np.unique(np.concatenate(codes), return_inverse=True)
    c = np.bincount(place, weights=np.concatenate(counts), minlength=len(found))
    contexts = len(levels[-1].codes) if levels else vocab_size
    of_context = found // vocab_size
    total = np.bincount(of_context, weights=c, minlength=contexts)
    return Grams(found, c, total, np.bincount(of_context, minlength=contexts))


def _before(context: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """Returns the number of the context before each position; -1 at the start of a sequence, or
    without a context."""
    return np.where(begins, -1, np.roll(context, 1))


def _numbers(level: Grams, before: np.ndarray, ids: np.ndarray, vocab_size: int) -> np.ndarray:
    """Returns the number of the sequence that ends at each position; -1 if it does not occur or
    crosses a beginning."""
    if not len(level.codes):
        return np.full(len(ids), -1)
    codes = before * vocab_size + ids
    place = np.searchsorted(level.codes, codes).clip(max=len(level.codes) - 1)
    return np.where((before >= 0) & (level.codes[place] == codes), place, -1)


def _blocks(sequences: Iterable[np.ndarray]) -> Iterator[list[np.ndarray]]:
    return read_by_tokens((sequence for sequence in sequences if len(sequence)), BLOCK_TOKENS)


def _joined(block: list[np.ndarray], vocab_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the concatenated ids of the sequences, (T,) int64, and a mask of their first tokens,
    (T,) bool."""
    ids = np.concatenate([np.asarray(sequence) for sequence in block])
    if ids.size and not (ids.min() >= 0 and ids.max() < vocab_size):
        wrong = ids.max() if ids.min() >= 0 else ids.min()
        raise InputError(
            f"n-gram model: token id {wrong} is outside the vocabulary of {vocab_size}"
        )
    begins = np.zeros(len(ids), bool)
    begins[np.cumsum([0, *map(len, block[:-1])])] = True
    return ids.astype(np.int64), begins
