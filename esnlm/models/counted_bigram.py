"""A counted bigram model added to the logits; the trained part learns a residual over it [ours].

    o = A z + b_out + log p_WB( . | w_t)

p_WB is the bigram model of models/ngrams.py with Witten-Bell smoothing. It is counted on the
training text before training and stays fixed. A and b_out begin at 0, so that training begins with
its probabilities. Since the counts include the tokens of the training text, readout/linear.py leaves
each target out of the counts that predict it.
"""

from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from esnlm.base.errors import InputError
from esnlm.models.ngrams import NgramModel
from esnlm.reservoir.arrays import Frozen

MOST_BYTES = 4_000_000_000  # of the table of all pairs of tokens


def table_bytes(vocab_size: int) -> int:
    """Returns the bytes of log p_WB on a device. Raises InputError if this table is too large."""
    size = 4 * vocab_size**2
    if size > MOST_BYTES:
        raise InputError(
            f"model.readout.counted is bigram: its table for {vocab_size:,} tokens would take"
            f" {size / 1e9:.1f} GB, and at most {MOST_BYTES / 1e9:.0f} GB are used; choose none, or"
            " a smaller vocabulary"
        )
    return size


def count(text: Iterable[np.ndarray], vocab_size: int) -> dict[str, np.ndarray]:
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
    """The P pairs of tokens that occur: first tokens (P,), second tokens (P,) and counts (P,).

    Call `for_device` before computing with it: it adds the table of log p_WB, (V, V).
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
