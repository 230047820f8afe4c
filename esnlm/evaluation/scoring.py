"""Log-probabilities of token sequences under a feature stream and its readout.

`token_log_probs` works in four steps:
 1. Sort the distinct sequences, so that sequences with a common prefix are neighbours.
 2. Split them into blocks. The feature stream computes the features of each distinct prefix of a
    block once.
 3. The readout computes log p(token | prefix) once for each distinct pair of a prefix and a next
    token.
 4. Copy the log-probabilities to all sequences that contain these pairs.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from esnlm.features.lanes import Lanes
from esnlm.features.stream import DocumentFeatures, SentenceFeatures
from esnlm.machine import xla
from esnlm.machine.mesh import gather
from esnlm.readout import linear

# The rows of a chunk are padded to one of about this many sizes. Each size is compiled once.
SIZES = 8
Sentences = Iterable[np.ndarray]  # token ids, (T,) each


class WindowNll(NamedTuple):
    """The negative log-likelihood of some sentences, in nats."""

    nats: float
    tokens: int  # predicted
    eos_nats: float  # the part of `nats` from the last token of each sentence


def total_nll(
    stream: SentenceFeatures,
    params: dict,
    sentences: Sentences,
    precision: str,
    window_tokens: int,
    chunk: int,
) -> Iterator[WindowNll]:
    """Yields the negative log-likelihood of sentences (int arrays with BOS and EOS) per window,
    summed in float64.

    At most `window_tokens` states exist at once, unless one sentence alone has more, and logits of
    `chunk` states.
    """
    for window in _groups(sentences, window_tokens):
        buffer, rows = stream.read([sentence[:-1] for sentence in window])
        targets = [sentence[1:] for sentence in window]
        by_sentence = _collect(
            _launch(params, buffer, rows, targets, precision, chunk, _pair_log_probs)
        )
        del buffer  # before the next one is made
        log_probs = np.concatenate(by_sentence)
        eos_nats = -float(np.sum([sentence[-1] for sentence in by_sentence], dtype=np.float64))
        yield WindowNll(-float(log_probs.sum(dtype=np.float64)), len(log_probs), eos_nats)


def document_nll(
    stream: DocumentFeatures,
    params: dict,
    lanes: Lanes,
    precision: str,
    window_tokens: int,
    chunk: int,
) -> Iterator[WindowNll]:
    """Does the same as `total_nll` for documents, whose state is carried from one sentence to the
    next."""
    state = stream.cell.initial_state(len(lanes.sizes))
    for pieces in lanes.windows(window_tokens):
        state, buffer, rows = stream.read_on(pieces, state)
        targets = pieces.predictions()[1]
        if not len(targets):
            continue
        (log_probs,) = _collect(
            _launch(params, buffer, [rows], [targets], precision, chunk, _pair_log_probs)
        )
        del buffer
        of_eos = log_probs[pieces.left[pieces.left > 0] == 1]
        nats, eos_nats = (
            -float(log_probs.sum(dtype=np.float64)),
            -float(of_eos.sum(dtype=np.float64)),
        )
        yield WindowNll(nats, len(targets), eos_nats)


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
        group: tokens, (V,) bool; if given, log p(w_{t+1} is in the group | w_1 .. w_t) is computed
            instead.

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
    found = {key: np.empty(shape, np.float32) for key in keys}
    done, previous = 0, None
    for block in [*_groups(distinct, window_tokens, most=stream.slots), None]:
        # Collect a block after launching the next one, so that the device never waits for the host.
        launched = None
        if block is not None:
            ids = [np.array(key, np.int32) for key in block]
            buffer, rows = stream.read([sequence[:-1] for sequence in ids], prefix_tree=True)
            targets = [sequence[1:] for sequence in ids]
            launched = block, _launch(params, buffer, rows, targets, precision, chunk, score)
            del buffer
        if previous is not None:
            found |= zip(previous[0], _collect(previous[1]), strict=True)
            done += len(previous[0])
            if on_progress is not None:
                on_progress(done, len(distinct))
        previous = launched
    return [found[key] for key in keys]


def _groups(sequences: Iterable, size: int, most: int = sys.maxsize) -> Iterator[list]:
    """Yields groups of neighbours: at most `most` sequences, and at most `size` tokens unless one
    alone has more."""
    group: list = []
    filled = 0
    for sequence in sequences:
        if group and (len(group) == most or filled + len(sequence) > size):
            yield group
            group, filled = [], 0
        group.append(sequence)
        filled += len(sequence)
    if group:
        yield group


class _Launched(NamedTuple):
    """Log-probabilities that the device is computing, and the sequences they belong to."""

    chunks: list[tuple[jax.Array, int]]  # each with its number of values without padding
    place: np.ndarray  # of each prediction of each sequence, among the values without padding
    bounds: np.ndarray  # between the predictions of one sequence and the next


def _launch(
    params: dict,
    buffer: jax.Array,
    rows: list[np.ndarray],
    targets: list[np.ndarray],
    precision: str,
    chunk: int,
    score: Callable[..., jax.Array],
) -> _Launched:
    """Starts the readout of the predictions of sequences, with features in their `rows`, without
    waiting for it."""
    # A pair of a row and a token is one 64-bit integer with the row in the upper 32 bits: row 3 and
    # token 7 become 3 * 2**32 + 7; `>> 32` gives 3, `& 0xFFFFFFFF` gives 7. np.unique is fast on
    # integers and sorts pairs by row.
    packed = np.concatenate(rows).astype(np.int64) << 32 | np.concatenate(targets)
    pairs, place = np.unique(packed, return_inverse=True)
    predicted = pairs & 0xFFFFFFFF
    # (R,) rows; (P,) the row of each pair
    distinct, sources = np.unique(pairs >> 32, return_inverse=True)
    chunks = []
    # The rows per chunk: equal for all chunks, with little padding, and one of about SIZES sizes.
    even, step = -(-len(distinct) // -(-len(distinct) // chunk)), max(1, chunk // SIZES)
    size = min(chunk, -(-even // step) * step)
    for first in range(0, len(distinct), size):
        # the pairs that read these rows
        here = slice(*np.searchsorted(sources, [first, first + size]))
        real, width = here.stop - here.start, 2 * size
        while width < real:
            width *= 2
        padded = (
            _pad(distinct[first : first + size], size),
            _pad(sources[here] - first, width),
            _pad(predicted[here], width),
        )
        chunks.append((score(params, buffer, *padded, precision), real))
    return _Launched(chunks, place, np.cumsum([len(each) for each in targets])[:-1])


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


def _collect(launched: _Launched) -> list[np.ndarray]:
    """Waits for the device, and returns one float32 array (T - 1,) per sequence, or (T - 1, 2)."""
    values = np.concatenate([gather(log_probs)[:real] for log_probs, real in launched.chunks])
    return np.split(values[launched.place], launched.bounds)


def _pad(array: np.ndarray, width: int) -> np.ndarray:
    return np.pad(array, (0, width - len(array))).astype(np.int32)
