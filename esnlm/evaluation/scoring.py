"""Log-probabilities of token sequences under a feature stream and its readout.

`token_log_probs` works in four steps:
 1. Sort the distinct sequences, so that sequences with a common prefix are neighbours.
 2. Split them into blocks. The feature stream computes the features of each distinct prefix of a
    block once.
 3. The readout computes log p(token | prefix) once for each distinct pair of a prefix and a next
    token.
 4. Copy the log-probabilities to all sequences that contain these pairs.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, pairwise, tee
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from esnlm.base.errors import InputError
from esnlm.data.store import TokenStore
from esnlm.features.batching import group_by_tokens, padded_size, read_by_tokens
from esnlm.features.documents import whole_documents
from esnlm.features.stream import DocumentFeatures, SentenceFeatures
from esnlm.machine import xla
from esnlm.machine.compute import ResolvedCompute
from esnlm.machine.mesh import gather
from esnlm.readout import linear

# The rows of a chunk are padded to one of about this many sizes. Each size is compiled once.
SIZES = 8


class TextWindow(NamedTuple):
    """Predictions of a text that are made together. Delete it before the next one is made."""

    buffer: jax.Array  # features in its rows
    rows: np.ndarray  # (P,), of the features before each predicted token
    targets: np.ndarray  # (P,), the predicted tokens
    is_last: np.ndarray  # (P,) bool, whether the token is the last one of its sentence
    numbers: np.ndarray  # (P,), of the predictions, counted from 0 in the order of the text


def text_windows(
    stream: SentenceFeatures, text: TokenStore, tokens: int, by_document: bool
) -> Iterator[TextWindow]:
    """Yields the predictions of a text; with `by_document`, the state is carried over the sentences
    of a document."""
    if by_document:
        return _document_windows(document_features(stream), text, tokens)
    return sentence_windows(stream, text, tokens)


def document_features(stream: SentenceFeatures) -> DocumentFeatures:
    """Returns the stream. Raises InputError if it carries no state over sentences."""
    if not isinstance(stream, DocumentFeatures):
        raise InputError("context is document: this model carries no state; choose sentence")
    return stream


def sentence_windows(
    stream: SentenceFeatures, sentences: Iterable[np.ndarray], tokens: int
) -> Iterator[TextWindow]:
    """Yields the predictions of sentences, int arrays with BOS and EOS.

    At most `tokens` states exist at once, unless one sentence alone has more.
    """
    first = 0
    windows, again = tee(read_by_tokens(sentences, max(1, tokens // stream.parallel)))
    inputs = ([sentence[:-1] for sentence in window] for window in again)
    for window, (buffer, rows) in zip(windows, stream.read_windows(inputs), strict=True):
        targets = np.concatenate([sentence[1:] for sentence in window])
        is_last = np.zeros(len(targets), bool)
        is_last[np.cumsum(list(map(len, rows))) - 1] = True
        numbers = np.arange(first, first + len(targets))
        yield TextWindow(buffer, np.concatenate(rows), targets, is_last, numbers)
        del buffer  # before the next one is made
        first += len(targets)


def _document_windows(
    stream: DocumentFeatures, text: TokenStore, tokens: int
) -> Iterator[TextWindow]:
    """Yields the predictions of documents, whose state is carried over their sentences."""
    streams = whole_documents(text, max_streams=stream.slots)
    state = stream.cell.initial_state(len(streams.sizes))
    for chunk in streams.chunks(tokens):
        state, buffer, rows = stream.read_on(chunk, state)
        is_read = chunk.left > 0  # before a predicted token
        if is_read.any():
            places = chunk.steps.corpus_positions[is_read].astype(np.int64)
            numbers = places + 1 - np.searchsorted(text.offsets, places, side="right")
            yield TextWindow(buffer, rows, chunk.targets, chunk.left[is_read] == 1, numbers)
        del buffer


def window_log_probs(window: TextWindow, params: dict, compute: ResolvedCompute) -> np.ndarray:
    """Returns the log-probabilities of a window's predictions in nats, (P,) float32.

    Logits of at most compute.chunk_tokens states exist at once. `params` are the arrays of the
    readout.
    """
    rows, targets, chunk = [window.rows], [window.targets], compute.chunk_tokens
    (log_probs,) = _launch(params, window.buffer, rows, targets, compute.precision, chunk)()
    return log_probs


def token_log_probs(
    stream: SentenceFeatures,
    params: dict,
    sequences: list[np.ndarray],
    precision: str,
    chunk: int,
    on_progress: Callable[[int, int], None] | None = None,
    window_tokens: int = 1 << 16,
    with_likeliest: bool = False,
    group: np.ndarray | None = None,
) -> list[np.ndarray]:
    """Computes log p(w_{t+1} | w_1 .. w_t) for each sequence, in nats.

    Args:
        stream, params: the features of a model, and the arrays of its readout.
        sequences: int arrays (T,). A sequence of fewer than two tokens has nothing to predict.
        precision: precision of the matrix products.
        chunk: number of states whose logits exist at once.
        on_progress: called with the number of distinct sequences done so far and in total.
        window_tokens: maximum number of states at once, unless one sequence alone has more.
        group: tokens, (V,) bool; log p(w_{t+1} is in the group | w_1 .. w_t) is computed instead.

    Returns:
        One float32 array (T - 1,) per sequence; with `with_likeliest` (T - 1, 2): the second column
        is 1 if the token is the most probable one (the first of several), else 0.
    """
    score = partial(_pair_log_probs, with_likeliest=with_likeliest)
    if group is not None:
        score = partial(_group_log_probs, group)
    shape = (0, 2) if with_likeliest else (0,)
    keys = [tuple(np.asarray(sequence).tolist()) for sequence in sequences]
    distinct = sorted(key for key in set(keys) if len(key) > 1)

    def launch_blocks() -> Iterator[tuple[range, Callable[[], list[np.ndarray]]]]:
        ids = [np.array(key, np.int32) for key in distinct]
        most_tokens = max(1, window_tokens // stream.parallel)
        blocks = list(group_by_tokens(map(len, ids), most_tokens, stream.slots))
        inputs = ([ids[i][:-1] for i in block] for block in blocks)
        features = stream.read_windows(inputs, prefix_tree=True)
        for block, (buffer, rows) in zip(blocks, features, strict=True):
            targets = [ids[i][1:] for i in block]
            yield block, _launch(params, buffer, rows, targets, precision, chunk, score)
            del buffer

    log_probs = {key: np.empty(shape, np.float32) for key in keys}
    # A block is collected after the next one was launched, so that the device never waits.
    for launched, _ in pairwise(chain(launch_blocks(), [None])):
        assert launched is not None
        block, collect = launched
        log_probs |= zip(distinct[block.start : block.stop], collect(), strict=True)
        if on_progress is not None:
            on_progress(block.stop, len(distinct))
    return [log_probs[key] for key in keys]


@partial(jax.jit, static_argnames=("precision", "with_likeliest"))
def _pair_log_probs(
    params: dict,
    buffer: jax.Array,
    rows: jax.Array,
    sources: jax.Array,
    targets: jax.Array,
    precision: str,
    with_likeliest: bool = False,
) -> jax.Array:
    """Returns the log-probabilities (P,); with `with_likeliest` (P, 2), as in `token_log_probs`."""
    features = xla.gathered(buffer, rows)
    log_probs = linear.pair_log_probs(params, features, sources, targets, precision)
    if not with_likeliest:
        return log_probs
    likeliest = linear.logits(params, features, precision).argmax(axis=1)  # (C,)
    return jnp.stack([log_probs, likeliest[sources] == targets], axis=1)


@partial(jax.jit, static_argnames="precision")
def _group_log_probs(
    group: jax.Array,
    params: dict,
    buffer: jax.Array,
    rows: jax.Array,
    sources: jax.Array,
    _: jax.Array,
    precision: str,
) -> jax.Array:
    # (P,)
    return linear.group_log_probs(params, xla.gathered(buffer, rows), group, precision)[sources]


def _launch(
    params: dict,
    buffer: jax.Array,
    rows: list[np.ndarray],
    targets: list[np.ndarray],
    precision: str,
    chunk: int,
    score: Callable[..., jax.Array] = _pair_log_probs,
) -> Callable[[], list[np.ndarray]]:
    """Starts the readout of the predictions of sequences, with features in their `rows`.

    Returns a function that waits for the log-probabilities, an array (T - 1,) or (T - 1, 2) per
    sequence.
    """
    # A pair of a row and a token is one 64-bit integer with the row in the upper 32 bits: row 3 and
    # token 7 become 3 * 2**32 + 7; `>> 32` gives 3, `& 0xFFFFFFFF` gives 7. np.unique is fast on
    # integers and sorts pairs by row.
    packed = np.concatenate(rows).astype(np.int64) << 32 | np.concatenate(targets)
    pairs, pair_of = np.unique(packed, return_inverse=True)
    predicted = pairs & 0xFFFFFFFF
    # (R,) rows; (P,) the row of each pair
    distinct, sources = np.unique(pairs >> 32, return_inverse=True)
    # The rows per chunk: equal for all chunks, with little padding, and one of about SIZES sizes.
    even, step = -(-len(distinct) // -(-len(distinct) // chunk)), max(1, chunk // SIZES)
    size = min(chunk, -(-even // step) * step)

    def pad(array: np.ndarray, width: int) -> np.ndarray:
        return np.pad(array, (0, width - len(array))).astype(np.int32)

    chunks = []  # each with its number of values without padding
    for first in range(0, len(distinct), size):
        # the pairs that read these rows
        first_pair, last_pair = np.searchsorted(sources, [first, first + size]).tolist()
        count = last_pair - first_pair
        width = 2 * size * padded_size(-(-count // (2 * size)))
        log_probs = score(
            params,
            buffer,
            pad(distinct[first : first + size], size),
            pad(sources[first_pair:last_pair] - first, width),
            pad(predicted[first_pair:last_pair], width),
            precision,
        )
        chunks.append((log_probs, count))

    def collect() -> list[np.ndarray]:
        values = np.concatenate([gather(log_probs)[:count] for log_probs, count in chunks])
        return np.split(values[pair_of], np.cumsum([len(each) for each in targets])[:-1])

    return collect
