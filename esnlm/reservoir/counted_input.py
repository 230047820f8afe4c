"""A frozen W_in from co-occurrence counts: tokens with the same neighbours drive the same units.

    #(w, c)   number of times that token c is at most WINDOW tokens from token w, within a sentence
    PPMI      max(0, log P(w, c) / (P(w) P_s(c))), P_s(c) ~ #(c)^SMOOTHING
              (Levy, Goldberg and Dagan 2015, 2.2, 3.1)
    G         a random W_in, drawn as for `input_weights: random`: a random column for each token
    y(w)      the sum over all tokens c of PPMI(w, c) times column c of G
              (random indexing, Sahlgren 2005)
    W_in      column w is y(w) with only its k largest absolute values, scaled to a mean square of
              input_scale^2  [ours]

G projects the rows of PPMI at random to the N units, which nearly preserves their angles. W_in is
dense by default, with k = N, since few entries do not preserve the angles: on 1.6 million tokens
with 8,192 ids and N = 2,048, of the 10 nearest of 2,000 frequent tokens by PPMI, 4.7 are among the
10 nearest columns if W_in is dense, 1.3 with k = 128, and 0.05 by chance. `input_connectivity` sets
k; the text then decides which units a token drives.

All columns are scaled alike, so that a rare token drives the reservoir as hard as a frequent one. A
token without an entry in PPMI, such as a token that is not in the text, keeps its random column.
<|endoftext|> counts like any token.
"""

import numpy as np
import scipy.sparse
from jax.experimental.sparse import BCOO

from esnlm.data.store import TokenStore
from esnlm.reservoir.arrays import bcoo

WINDOW = 2  # tokens on either side
# exponent of the context's frequency, so that rare contexts do not get the largest PMI
SMOOTHING = 0.75
CHUNK = 1 << 22  # tokens processed at once
ENTRIES = 1 << 22  # entries of y, and of G, in float64 at once


def cooccurrences(text: TokenStore, vocab_size: int) -> scipy.sparse.csr_array:
    """Counts the tokens within the window of each token, sentence by sentence. The matrix (V, V) is
    symmetric."""
    counts = scipy.sparse.csr_array((vocab_size, vocab_size), dtype=np.int64)
    first = 0
    while first < len(text):
        # At least one sentence, and as many as fill a chunk.
        limit = int(text.offsets[first]) + CHUNK
        last = max(first + 1, int(np.searchsorted(text.offsets, limit, side="right")) - 1)
        start, end = int(text.offsets[first]), int(text.offsets[last])
        tokens = np.asarray(text.tokens[start:end], np.int64)
        sentence = np.repeat(np.arange(last - first), text.lengths[first:last])
        for distance in range(1, WINDOW + 1):
            together = sentence[distance:] == sentence[:-distance]
            left, right = tokens[:-distance][together], tokens[distance:][together]
            pairs, number = np.unique(left * vocab_size + right, return_counts=True)
            positions = pairs // vocab_size, pairs % vocab_size
            counts = counts + scipy.sparse.csr_array((number, positions), shape=counts.shape)
        first = last
    return scipy.sparse.csr_array(counts + counts.T)


def ppmi(counts: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
    """Returns the positive pointwise mutual information, (V, V) float64, without its zeros."""
    of_token = np.asarray(counts.sum(axis=1), np.float64)
    of_context = np.asarray(counts.sum(axis=0), np.float64) ** SMOOTHING
    of_context /= max(of_context.sum(), 1)
    entries = counts.tocoo()
    row, column = entries.coords
    # P(w, c) / (P(w) P_s(c)) = #(w, c) / (#(w) P_s(c)), since the total cancels.
    information = np.log(entries.data / (of_token[row] * of_context[column]))
    positive = scipy.sparse.csr_array((np.maximum(information, 0), (row, column)), counts.shape)
    positive.eliminate_zeros()
    return positive


def counted_columns(
    text: TokenStore, projection: scipy.sparse.csr_array | np.ndarray, reached: int, scale: float
) -> BCOO | np.ndarray:
    """Returns W_in (N, V), float32, dense or sparse like the projection.

    It computes in float64, some columns at a time.

    Args:
        text: the text to count.
        projection: G (N, V), a random W_in.
        reached: k, maximum number of units that a token drives.
        scale: root mean square of a column's nonzeros.
    """
    units, vocab_size = projection.shape
    weights = ppmi(cooccurrences(text, vocab_size))
    is_dense = isinstance(projection, np.ndarray)
    random = projection.T if is_dense else scipy.sparse.csr_array(projection.T)  # (V, N)
    w_in = np.empty((units, vocab_size), np.float32) if is_dense else None
    blocks = []
    step = max(1, ENTRIES // units)
    for first in range(0, vocab_size, step):
        tokens = slice(first, min(vocab_size, first + step))
        columns = _sum_columns(weights[tokens], random)  # (tokens, N) y
        is_unknown = ~columns.any(axis=1)
        drawn = random[tokens][is_unknown]
        columns[is_unknown] = drawn if isinstance(drawn, np.ndarray) else drawn.toarray()
        if reached < units:
            order = np.argpartition(np.abs(columns), units - reached - 1, axis=1)
            known = np.flatnonzero(~is_unknown)  # Random columns keep their sparsity.
            columns[known[:, None], order[known, : units - reached]] = 0
        size = np.sqrt(np.square(columns).sum(axis=1) / np.maximum((columns != 0).sum(axis=1), 1))
        size[is_unknown] = scale  # a random column needs no scaling
        columns /= size[:, None]
        columns *= scale
        if w_in is None:
            blocks.append(scipy.sparse.csr_array(columns.T.astype(np.float32)))
        else:
            w_in[:, tokens] = columns.T
    if w_in is not None:
        return w_in
    entries = scipy.sparse.hstack(blocks, format="csr").tocoo()
    return bcoo(entries.data, np.stack(entries.coords, axis=1), entries.shape)


def _sum_columns(
    weights: scipy.sparse.csr_array, random: scipy.sparse.csr_array | np.ndarray
) -> np.ndarray:
    """Returns y (tokens, N), float64: rows of `random` (V, N), summed with weights (tokens, V)."""
    if not isinstance(random, np.ndarray):
        return (weights @ random).toarray()
    vocab_size, units = random.shape
    sums = np.empty((weights.shape[0], units))
    step = max(1, ENTRIES // vocab_size)
    for first in range(0, units, step):
        block = slice(first, first + step)  # of units, since SciPy copies a dense factor to float64
        sums[:, block] = weights @ np.ascontiguousarray(random[:, block], np.float64)
    return sums
