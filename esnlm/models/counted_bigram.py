"""A counted bigram model below the logits: what is trained is a residual over it [ours].

    o = A z + b_out + log p_WB( . | w_t)

p_WB is the bigram model of models/ngrams.py with Witten-Bell smoothing, counted on the training text before training begins.
Nothing of it is trained. A and b_out begin at 0, so that training begins at its negative log-likelihood. The tokens that are
trained on are among those that were counted, so the train NLL is too good for new text: only the validation NLL is to be compared.
"""

from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from esnlm.errors import require
from esnlm.models.ngrams import WittenBellModel
from esnlm.reservoir.arrays import Frozen

MOST_BYTES = 4_000_000_000  # of the table of all pairs of tokens


def table_bytes(vocab_size: int, setting: str) -> int:
    """Returns the memory of log p_WB on a device.

    Args:
        vocab_size: V.
        setting: the name of what asks for it, for the error.

    Raises:
        InputError: the table of V x V numbers would be too large.
    """
    size = 4 * vocab_size**2
    require(
        size <= MOST_BYTES,
        f"{setting} is bigram: its table for {vocab_size:,} tokens would take {size / 1e9:.1f} GB, and at most"
        f" {MOST_BYTES / 1e9:.0f} GB are used; choose none, or a smaller vocabulary",
    )
    return size


def count(text: Iterable[np.ndarray], vocab_size: int) -> dict[str, np.ndarray]:
    """Returns how often each token followed each other one, as the arrays of a CountedBigram, in the order of the pairs.

    Args:
        text: sentences of token ids that begin with BOS and end with EOS.
        vocab_size: V.
    """
    pairs = WittenBellModel.fit(text, vocab_size, order=2).levels[0]
    rows, columns = np.divmod(pairs.codes, vocab_size)
    return {
        "rows": rows.astype(np.int32),
        "columns": columns.astype(np.int32),
        "counts": pairs.counts.astype(np.uint32),
    }


class CountedBigram(nnx.Module):
    """`counts` (P,) of the P pairs that occur, and the tokens of each: `rows`, the first ones, and `columns`, the second ones.

    On a device there is the `table` of log p_WB, too.
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
        self.rows, self.columns, self.counts = (Frozen(jnp.asarray(array)) for array in (rows, columns, counts))
        self.table = None if table is None else Frozen(table)

    @property
    def pairs(self) -> int:
        """The pairs that occur."""
        return len(self.counts[...])

    def for_device(self) -> "CountedBigram":
        """Returns the same model with its table, made once."""
        return CountedBigram(self.vocab_size, self.rows[...], self.columns[...], self.counts[...], self.log_probs())

    def log_probs(self) -> jax.Array:
        """Returns log p_WB(w | v) in nats, (V, V) float32: a row for each token v before, a column for each token w after it.

        It is the equation of WittenBellModel, computed in float64. Of a pair that never occurs the logarithm is a sum of one
        number for v and one for w, so that only those of the P pairs are taken one by one.
        """
        if self.table is not None:
            return self.table[...]
        size, v, w = self.vocab_size, np.asarray(self.rows[...]), np.asarray(self.columns[...])
        c = np.asarray(self.counts[...]).astype(np.float64)  # (P,)
        unigram = (np.bincount(w, c, size) + 1) / (c.sum() + size)  # (V,): each predicted token ends one pair
        total, types = np.bincount(v, c, size), np.bincount(v, minlength=size)  # (V,): c(v), t(v)
        share = np.divide(types, total + types, out=np.ones(size), where=total > 0)  # that p_1 has after v
        found = np.empty((size, size), np.float32)
        np.add(np.log(share)[:, None], np.log(unigram), out=found, casting="same_kind")
        found[v, w] = np.log((c + types[v] * unigram[w]) / (total + types)[v])
        return jnp.asarray(found)
