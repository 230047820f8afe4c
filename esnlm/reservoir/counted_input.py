"""W_in from co-occurrences: tokens that stand among the same tokens drive the reservoir alike. It is counted once, and frozen.

    #(w, c)   how often token c stands at most WINDOW tokens before or after token w, in one sentence
    PPMI      max(0, log P(w, c) / (P(w) P_s(c))), with P_s(c) ~ #(c)^SMOOTHING       Levy, Goldberg and Dagan 2015, 2.2, 3.1
    G         a random W_in, as it is without a text: a random column for each token
    y(w)      the sum of G's columns of all tokens c, weighed with PPMI(w, c)             random indexing, Sahlgren 2005
    W_in      column w is y(w) with its k largest sizes kept, scaled to a mean square of input_scale^2      [ours]

G is a random projection of the rows of PPMI to the N units, which nearly keeps their angles. W_in is dense by default, with
k = N, since few entries do not keep them: on 1.6 million tokens with 8,192 ids and N = 2,048, of the 10 nearest of 2,000 frequent
tokens by PPMI, 4.7 are among the 10 nearest columns where W_in is dense, 1.3 with k = 128, and 0.05 by chance. With
`input_connectivity` k is chosen, and the text chooses the units that a token drives.

All columns have one size, so that a rare token drives the reservoir as hard as a frequent one. A token without any entry in PPMI,
such as one that the text does not have, keeps its random column. <|endoftext|> is counted as any other token.
"""

import numpy as np
import scipy.sparse
from jax.experimental.sparse import BCOO

from esnlm.data.store import TokenStore
from esnlm.reservoir.arrays import bcoo

WINDOW = 2  # tokens on either side
SMOOTHING = 0.75  # exponent of the context's frequency, so that rare contexts do not get the largest PMI
CHUNK = 1 << 22  # tokens whose pairs are in memory at once
ENTRIES = 1 << 22  # of y and of G, each, that are in memory at once in float64


def cooccurrences(text: TokenStore, vocab_size: int) -> scipy.sparse.csr_array:
    """Counts the tokens within the window of each token, sentence by sentence. The matrix (V, V) is symmetric."""
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
    """Returns the positive pointwise mutual information of tokens and contexts, (V, V) float64, without its zeros."""
    of_token = np.asarray(counts.sum(axis=1), np.float64)
    of_context = np.asarray(counts.sum(axis=0), np.float64) ** SMOOTHING
    of_context /= max(of_context.sum(), 1)
    entries = counts.tocoo()
    row, column = entries.coords
    # P(w, c) / (P(w) P_s(c)) = #(w, c) / (#(w) P_s(c)), since the total cancels.
    information = np.log(entries.data / (of_token[row] * of_context[column]))
    positive = information > 0
    return scipy.sparse.csr_array((information[positive], (row[positive], column[positive])), shape=counts.shape)


def counted_columns(
    text: TokenStore, projection: scipy.sparse.csr_array | np.ndarray, reached: int, scale: float
) -> BCOO | np.ndarray:
    """Returns W_in (N, V), float32, dense where the projection is dense, else sorted by row and then by column.

    All is computed in float64. Of a dense W_in only some columns at a time are in float64, and there is no other copy of it.

    Args:
        text: whose tokens are counted.
        projection: G (N, V), a random W_in.
        reached: k, the units that a token drives at most.
        scale: the root of the mean square of a column's nonzeros.
    """
    units, vocab_size = projection.shape
    weights = ppmi(cooccurrences(text, vocab_size))
    is_dense = isinstance(projection, np.ndarray)
    random = projection.T if is_dense else scipy.sparse.csr_array(projection.T)  # (V, N)
    w_in = np.empty((units, vocab_size), np.float32) if is_dense else None
    blocks = []
    step = max(1, ENTRIES // units)
    for first in range(0, vocab_size, step):
        some = slice(first, min(vocab_size, first + step))
        found = _summed(weights[some], random)  # (tokens, N) y
        unknown = ~found.any(axis=1)
        found[unknown] = random[some][unknown] if isinstance(random, np.ndarray) else random[some][unknown].toarray()
        if reached < units:
            weakest = np.argpartition(np.abs(found), units - reached - 1, axis=1)[:, : units - reached]
            known = np.flatnonzero(~unknown)  # A random column is as sparse as it is.
            found[known[:, None], weakest[known]] = 0
        size = np.sqrt(np.square(found).sum(axis=1) / np.maximum((found != 0).sum(axis=1), 1))
        size[unknown] = scale  # it has its values already
        found /= size[:, None]
        found *= scale
        if w_in is None:
            blocks.append(scipy.sparse.csr_array(found.T.astype(np.float32)))
        else:
            w_in[:, some] = found.T
    if w_in is not None:
        return w_in
    entries = scipy.sparse.hstack(blocks, format="csr").tocoo()
    return bcoo(entries.data, np.stack(entries.coords, axis=1), entries.shape)


def _summed(weights: scipy.sparse.csr_array, random: scipy.sparse.csr_array | np.ndarray) -> np.ndarray:
    """Returns y (tokens, N), float64: the rows of `random` (V, N), summed with `weights` (tokens, V).

    SciPy copies a dense factor of a product in float64. So it is given some units at a time; each is summed by itself.
    """
    if not isinstance(random, np.ndarray):
        return (weights @ random).toarray()
    vocab_size, units = random.shape
    found = np.empty((weights.shape[0], units))
    step = max(1, ENTRIES // vocab_size)
    for first in range(0, units, step):
        some = slice(first, first + step)
        found[:, some] = weights @ np.ascontiguousarray(random[:, some], np.float64)
    return found
