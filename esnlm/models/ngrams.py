"""N-gram models: the baselines for every trained model, and a counted bigram model within one.

They are fitted to sentences of token ids that begin with BOS and end with EOS. BOS is context only;
every token after it is predicted, and no context extends beyond it.

    bigram = NgramModel.fit(train, vocab_size, order=2)
    bigram.token_log_probs_of_ids([sentence])   # [(T-1,)] nats
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from esnlm.base.errors import InputError
from esnlm.features.batching import read_by_tokens
from esnlm.reservoir.arrays import Frozen

BLOCK_TOKENS = 1 << 22  # tokens read at a time, to bound the memory that a large corpus takes
MAX_TABLE_BYTES = 4_000_000_000  # of the table of all pairs of tokens


class Grams(NamedTuple):
    """The P sequences of k tokens that occur, after Q contexts, in ascending order of their codes.

    A context is a sequence of k - 1 tokens with a number q among such sequences; for k = 2 this is
    the token's id. The code of a context and the next token w is q V + w, which is unique.
    """

    codes: np.ndarray  # (P,) int64, ascending
    counts: np.ndarray  # (P,) float64, exact below 2^53
    total: np.ndarray  # (Q,) float64, number of tokens after each context
    types: np.ndarray  # (Q,) int64, number of distinct ones


@dataclass(frozen=True)
class NgramModel:
    """Predicts from the n - 1 tokens before, with smoothing (Witten and Bell 1991, method C).

    Each order is interpolated with the next lower one. Let v be the k - 1 tokens before w, v' all
    of them but the first, and t(v) the number of distinct tokens after v:

        p_1(w) = (c(w) + 1) / (c + V)
        p_k(w | v) = (c(v w) + t(v) p_{k-1}(w | v')) / (c(v) + t(v))

    and p_k(w | v) = p_{k-1}(w | v') for a v that was never a context. Near the beginning of a
    sentence v is shorter.
    """

    log_p: np.ndarray  # (V,) float64, log p_1 in nats
    levels: tuple[Grams, ...] = ()  # of the orders 2 .. n

    @classmethod
    def fit(cls, sequences: Iterable[np.ndarray], vocab_size: int, order: int) -> Self:
        """Fits the model to integer arrays with BOS and EOS, such as a token store.

        Raises:
            InputError: an id is outside 0 .. vocab_size - 1, or there is no predicted token.
        """
        again = list(sequences) if isinstance(sequences, Iterator) else sequences
        levels = [_count(again, vocab_size, ())]
        # Every predicted token ends exactly one pair, so the pairs give the counts of the tokens.
        last = levels[0].codes % vocab_size
        unigram = cls.from_counts(np.bincount(last, levels[0].counts, vocab_size))
        while len(levels) < order - 1:
            levels.append(_count(again, vocab_size, levels))
        return cls(unigram.log_p, tuple(levels[: order - 1]))

    @classmethod
    def from_counts(cls, counts: np.ndarray) -> Self:
        """Returns the unigram model for the counts of each token as a predicted token, (V,)."""
        if not counts.any():
            raise InputError("n-gram model: no predicted token: give sentences with BOS and EOS")
        return cls(np.log((counts + 1) / (counts.sum() + len(counts))))

    def lower(self, order: int) -> "NgramModel":
        """Returns the model of a lower order for the same text, which shares this one's counts."""
        return NgramModel(self.log_p, self.levels[: order - 1])

    def token_log_probs_of_ids(
        self, sequences: Sequence[np.ndarray], *, group: np.ndarray | None = None
    ) -> list[np.ndarray]:
        """Returns ln p of each sequence's tokens but the first, (T-1,) float64, in nats.

        With `group`, (V,) bool, it is ln p that the token is one of this group.
        """
        log_probs = []
        for ids, begins in _blocks(sequences, len(self.log_p)):
            log_probs += np.split(self.log_probs(ids, begins, group), np.flatnonzero(begins)[1:])
        each = iter(log_probs)
        return [next(each)[1:] if len(sequence) else np.empty(0) for sequence in sequences]

    def log_probs(
        self, ids: np.ndarray, begins: np.ndarray, group: np.ndarray | None = None
    ) -> np.ndarray:
        """Returns ln p of tokens, or of a group; (T,) float64 in nats. Ignore that of each
        sequence's first."""
        if group is None and not self.levels:
            return self.log_p[ids]
        p, context = np.exp(self.log_p)[ids], ids  # (T,)
        if group is not None:
            p = np.full(len(ids), np.exp(self.log_p)[group].sum())
        for level in self.levels:
            if not len(level.codes):
                break  # The text has no sequence of this length.
            before = _before(context, begins)
            place = _numbers(level, before, ids, len(self.log_p))
            count = np.where(place >= 0, level.counts[place], 0.0)
            if group is not None:
                contexts, last = np.divmod(level.codes, len(self.log_p))
                count = np.bincount(contexts, level.counts * group[last], len(level.total))[before]
            total, types = (
                np.where(before >= 0, column[before], 0) for column in (level.total, level.types)
            )
            p = np.divide(count + types * p, total + types, out=p, where=total > 0)
            context = place
        return np.log(p)


def _count(sequences: Iterable[np.ndarray], vocab_size: int, levels: Sequence[Grams]) -> Grams:
    """Counts the sequences one token longer than those of the last level."""
    codes, counts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for ids, begins in _blocks(sequences, vocab_size):
        context = ids
        for level in levels:
            context = _numbers(level, _before(context, begins), ids, vocab_size)
        before = _before(context, begins)
        is_whole = before >= 0
        block_codes, block_counts = np.unique(
            before[is_whole] * vocab_size + ids[is_whole], return_counts=True
        )
        codes.append(block_codes)
        counts.append(block_counts)
    unique, place = np.unique(np.concatenate(codes), return_inverse=True)
    total = np.bincount(place, np.concatenate(counts), len(unique))
    size = len(levels[-1].codes) if levels else vocab_size
    contexts = unique // vocab_size
    by_context = np.bincount(contexts, total, size)
    return Grams(unique, total, by_context, np.bincount(contexts, minlength=size))


def _before(context: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """Returns the number of the context before each position; -1 at the start of a sequence."""
    return np.where(begins, -1, np.roll(context, 1))


def _numbers(level: Grams, before: np.ndarray, ids: np.ndarray, vocab_size: int) -> np.ndarray:
    """Returns the number of the sequence that ends at each position; -1 if it does not occur."""
    if not len(level.codes):
        return np.full(len(ids), -1)
    codes = before * vocab_size + ids
    place = np.searchsorted(level.codes, codes).clip(max=len(level.codes) - 1)
    return np.where((before >= 0) & (level.codes[place] == codes), place, -1)


def _blocks(
    sequences: Iterable[np.ndarray], vocab_size: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields the ids of several sequences, (T,) int64, and a mask of their first tokens, (T,)."""
    for block in read_by_tokens(filter(len, sequences), BLOCK_TOKENS):
        ids = np.concatenate(block).astype(np.int64)
        for token in (ids.min(), ids.max()):
            if not 0 <= token < vocab_size:
                raise InputError(
                    f"n-gram model: token id {token} is outside the vocabulary of {vocab_size}"
                )
        begins = np.zeros(len(ids), bool)
        begins[np.cumsum([0, *map(len, block[:-1])])] = True
        yield ids, begins


def bigram_table_bytes(vocab_size: int) -> int:
    """Returns the bytes of log p_WB on a device. Raises InputError if this table is too large."""
    size = 4 * vocab_size**2
    if size > MAX_TABLE_BYTES:
        raise InputError(
            f"model.readout.counted is bigram: its table for {vocab_size:,} tokens would take"
            f" {size / 1e9:.1f} GB, and at most {MAX_TABLE_BYTES / 1e9:.0f} GB are used; choose"
            " none, or a smaller vocabulary"
        )
    return size


def count_bigrams(text: Iterable[np.ndarray], vocab_size: int) -> dict[str, np.ndarray]:
    """Counts the pairs of successive tokens in sentences of ids with BOS and EOS.

    Returns:
        The arrays of a CountedBigram, in the order of the pairs: "rows" and "columns" (P,) int32,
        and "counts" (P,) uint32.
    """
    pairs = NgramModel.fit(text, vocab_size, order=2).levels[0]
    rows, columns = np.divmod(pairs.codes, vocab_size)
    return {
        "rows": rows.astype(np.int32),
        "columns": columns.astype(np.int32),
        "counts": pairs.counts.astype(np.uint32),
    }


class CountedBigram(nnx.Module):
    """The bigram model as a frozen part of a model; the trained part learns a residual over it.

        o = A z + b_out + log p_WB( . | w_t)     [ours]

    p_WB is an NgramModel of order 2, counted on the training text before training. A and b_out
    begin at 0, so that training begins with its probabilities. Since the counts include the tokens
    of the training text, readout/linear.py leaves each target out of the counts that predict it.

    It holds the P pairs of tokens that occur: first tokens (P,), second tokens (P,) and counts
    (P,). Call `for_device` before computing with it: it adds the table of log p_WB, (V, V).
    """

    def __init__(
        self,
        vocab_size: int,
        rows: jax.typing.ArrayLike,
        columns: jax.typing.ArrayLike,
        counts: jax.typing.ArrayLike,
        table: jax.Array | None = None,
    ) -> None:
        self.vocab_size = vocab_size
        self.rows, self.columns, self.counts = (
            Frozen(jnp.asarray(array)) for array in (rows, columns, counts)
        )
        self.table = None if table is None else Frozen(table)

    @property
    def pairs(self) -> int:
        """P, the number of pairs that occur."""
        return len(self.counts[...])

    def for_device(self) -> "CountedBigram":
        """Returns the same model with its table."""
        return CountedBigram(
            self.vocab_size, self.rows[...], self.columns[...], self.counts[...], self.log_probs()
        )

    def prior(self) -> dict[str, jax.Array]:
        """Returns the arrays that readout/linear.py reads: "table" (V, V), and others (V,)."""
        pairs, types, unigram = self._totals()
        return {
            "table": self.log_probs(),
            "types": jnp.float32(types),
            "total": jnp.float32(pairs + types),
            "unigram": jnp.float32(unigram),
        }

    def log_probs(self) -> jax.Array:
        """Returns log p_WB(w | v) in nats, (V, V) float32, a row per token v and a column per w.

        It is the equation of NgramModel, computed in float64. For a pair that never occurs the
        logarithm is a sum of one number for v and one for w, so only the P pairs that occur are
        computed one by one.
        """
        if self.table is not None:
            return self.table[...]
        size, v, w = self.vocab_size, np.asarray(self.rows[...]), np.asarray(self.columns[...])
        c, (pairs, types, unigram) = np.asarray(self.counts[...]).astype(np.float64), self._totals()
        both = pairs + types  # (V,)
        share = np.divide(types, both, out=np.ones(size), where=both > 0)  # weight of p_1 after v
        table = np.empty((size, size), np.float32)
        np.add(np.log(share)[:, None], np.log(unigram), out=table, casting="same_kind")
        table[v, w] = np.log((c + types[v] * unigram[w]) / both[v])
        return jnp.asarray(table)

    def _totals(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns c(v), the pairs that begin with v, t(v), the distinct ones, and p_1(v), (V,)."""
        size, v, w = self.vocab_size, np.asarray(self.rows[...]), np.asarray(self.columns[...])
        c = np.asarray(self.counts[...]).astype(np.float64)  # (P,)
        # each predicted token ends one pair
        unigram = (np.bincount(w, c, size) + 1) / (c.sum() + size)
        return np.bincount(v, c, size), np.bincount(v, minlength=size), unigram
